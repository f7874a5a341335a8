package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// againLabel marks the results of tests that were run again, alone, because they
// had failed: NAME.again.json holds those of NAME.json, NAME.again1.xml and so on
// those of NAME.xml.
var againLabel = regexp.MustCompile(`\.again[0-9]*$`)

// mostAgain is how many failed tests may be run again. More are no accident.
const mostAgain = 2

// listFailed writes a line "package pattern" for each test of one file of events
// that failed, for running it again with go test -run; a subtest stands for the
// tests that failed with it. It is false when that cannot help: none failed, too
// many did, or a package failed as a whole.
func listFailed(w io.Writer, file string) (bool, error) {
	results, err := readFile(file, "", readEvents)
	if err != nil {
		return false, err
	}
	var lines []string
	for _, r := range results {
		if r.outcome == passed || r.outcome == skipped || r.parent {
			continue
		}
		pkg, test, ok := splitTest(r.name)
		if !ok || r.outcome == unknown {
			return false, nil
		}
		lines = append(lines, pkg+" "+pattern(test))
	}
	if len(lines) == 0 || len(lines) > mostAgain {
		return false, nil
	}
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	return true, nil
}

// splitTest splits "package.Test/subtest".
func splitTest(name string) (pkg, test string, ok bool) {
	dot := strings.Index(name, ".Test")
	if dot < 0 {
		return "", "", false
	}
	return name[:dot], name[dot+1:], true
}

// pattern returns the argument of -run that selects one test or subtest.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// settle takes the results of second runs out of the list. A test that failed
// and passed each time that it was run again counts as passed, and is said; so do
// the tests that failed only because of it.
func settle(w io.Writer, results []result) []result {
	again := map[string]outcome{}
	for _, r := range results {
		if label := againLabel.ReplaceAllString(r.label, ""); label != r.label {
			key := label + " " + r.name
			if again[key] != failed {
				again[key] = r.outcome
			}
		}
	}
	stays := map[string]bool{} // tests that failed for good, and those that they are part of
	for _, r := range results {
		if r.outcome != failed || r.parent || againLabel.MatchString(r.label) || again[r.label+" "+r.name] == passed {
			continue
		}
		for name := r.name; ; name = name[:strings.LastIndex(name, "/")] {
			stays[r.label+" "+name] = true
			if _, test, ok := splitTest(name); !ok || !strings.Contains(test, "/") {
				break
			}
		}
	}
	var settled []result
	for _, r := range results {
		if againLabel.MatchString(r.label) {
			continue
		}
		if r.outcome == failed && !stays[r.label+" "+r.name] {
			if !r.parent {
				fmt.Fprintf(w, "--- FLAKY: [%s] %s failed once, and passed each time that it was run again\n%s", r.label, r.name, indent(r.output))
			}
			r.outcome = passed
		}
		settled = append(settled, r)
	}
	return settled
}
