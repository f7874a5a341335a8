package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// againLabel marks the results of tests that were run again, alone, because they
// had failed: NAME.again1.json and NAME.again2.json hold those of NAME.json,
// NAME.again1.xml and so on those of NAME.xml.
var againLabel = regexp.MustCompile(`\.again[0-9]*$`)

// mostAgain is how many failed tests are worth running again. More are no accident.
const mostAgain = 10

// listFailed writes a line "package pattern" for each test of one file of events
// that failed, for running it again with go test -run. A subtest stands for the
// tests that failed with it. A package that failed as a whole, or ended before its
// tests did, has the pattern of all tests. It is false when running again cannot
// help: nothing failed, or too much did.
func listFailed(w io.Writer, file string) (bool, error) {
	results, err := readFile(file, "", readEvents)
	if err != nil {
		return false, err
	}
	var lines []string
	whole := map[string]bool{} // packages to run whole
	for _, r := range results {
		if pkg, _, ok := splitTest(r.name); !r.ended() && !(ok && r.outcome == failed) {
			whole[pkg] = true
		}
	}
	for _, r := range results {
		if r.ended() || r.parent {
			continue
		}
		pkg, test, _ := splitTest(r.name)
		line := pkg + " " + pattern(test)
		if whole[pkg] {
			line = pkg + " ."
		}
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 || len(lines) > mostAgain {
		return false, nil
	}
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	return true, nil
}

// splitTest splits "package.Test/subtest". It is false for a package alone.
func splitTest(name string) (pkg, test string, ok bool) {
	for _, kind := range []string{".Test", ".Fuzz", ".Example"} {
		if i := strings.Index(name, kind); i >= 0 {
			return name[:i], name[i+1:], true
		}
	}
	return name, "", false
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
// and passed when it was run again counts as passed, and is named as flaky; so
// do the tests that failed only because of it.
func settle(w io.Writer, results []result) []result {
	passedAgain := map[string]bool{} // label and name, of a package too
	brokenAgain := map[string]bool{} // label of the second run and package
	for _, r := range results {
		if againLabel.MatchString(r.label) && !r.ended() {
			pkg, _, _ := splitTest(r.name)
			brokenAgain[r.label+" "+pkg] = true
		}
	}
	for _, r := range results {
		if label := againLabel.ReplaceAllString(r.label, ""); label != r.label && r.outcome == passed {
			passedAgain[label+" "+r.name] = true
			if pkg, _, _ := splitTest(r.name); !brokenAgain[r.label+" "+pkg] {
				passedAgain[label+" "+pkg] = true
			}
		}
	}
	stays := map[string]bool{} // tests that failed for good, and those that they are part of
	for _, r := range results {
		if r.ended() || r.parent || againLabel.MatchString(r.label) || passedAgain[r.label+" "+r.name] {
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
		if !r.ended() && !stays[r.label+" "+r.name] {
			if !r.parent {
				fmt.Fprintf(w, "--- FLAKY: [%s] %s failed, and passed when it was run again\n%s", r.label, r.name, indent(r.output))
			}
			r.outcome = passed
		}
		settled = append(settled, r)
	}
	return settled
}

// ended reports whether the test passed or was skipped.
func (r result) ended() bool { return r.outcome == passed || r.outcome == skipped }
