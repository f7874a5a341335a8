package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// againLabel marks the results of tests that were run again, alone, because they
// had failed: NAME.again.json holds those of NAME.json.
const againLabel = ".again"

// mostAgain is how many failed tests may be run again. More are no accident.
const mostAgain = 2

// listFailed writes a line "package Test" for each test of one file of events
// that failed, for running it again. It is false when that cannot help: none
// failed, too many did, or a package failed as a whole.
func listFailed(w io.Writer, file string) (bool, error) {
	results, err := readFile(file, "", readEvents)
	if err != nil {
		return false, err
	}
	var lines []string
	for _, r := range results {
		if r.outcome == passed || r.outcome == skipped {
			continue
		}
		pkg, test, ok := topTest(r.name)
		if !ok || r.outcome == unknown {
			return false, nil
		}
		if line := pkg + " " + test; !slices.Contains(lines, line) {
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

// topTest splits "package.Test/subtest".
func topTest(name string) (pkg, test string, ok bool) {
	dot := strings.Index(name, ".Test")
	if dot < 0 {
		return "", "", false
	}
	test, _, _ = strings.Cut(name[dot+1:], "/")
	return name[:dot], test, true
}

// settle takes the results of second runs out of the list. A test that failed
// and passed each time that it was run again counts as passed, and is said.
func settle(w io.Writer, results []result) []result {
	again := map[string]outcome{}
	for _, r := range results {
		if label, ok := strings.CutSuffix(r.label, againLabel); ok {
			key := label + " " + r.name
			if again[key] != failed {
				again[key] = r.outcome
			}
		}
	}
	var settled []result
	for _, r := range results {
		if strings.HasSuffix(r.label, againLabel) {
			continue
		}
		if pkg, test, ok := topTest(r.name); ok && r.outcome == failed && again[r.label+" "+pkg+"."+test] == passed {
			if !r.parent {
				fmt.Fprintf(w, "--- FLAKY: [%s] %s failed once, and passed each time that it was run again\n%s", r.label, r.name, indent(r.output))
			}
			r.outcome = passed
		}
		settled = append(settled, r)
	}
	return settled
}
