package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// mapped names a test in the tables of the compatibility list, in backquotes:
// package.TestName/sub of Go, file.py::test_name[case] of pytest, or a script.
var mapped = regexp.MustCompile("`(?:([a-z0-9/]+\\.Test[^`]*)|([\\w/]+)\\.py::([^`]+)|([\\w/]+)/testdata/script/([\\w-]+)\\.txtar)`")

// unproved returns the tests which a list of requirements names and which did
// not pass under any label, each with the first requirement that names it.
func unproved(list string, results []result) ([]string, error) {
	raw, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	outcomes := map[string][]outcome{}
	note := func(name string, o outcome) {
		if !slices.Contains(outcomes[name], o) {
			outcomes[name] = append(outcomes[name], o)
		}
	}
	for _, r := range results {
		note(r.name, r.outcome)
		// A case counts for its test, as the test's own result does.
		if name, _, ok := strings.Cut(r.name, "["); ok {
			note(name, r.outcome)
		}
	}
	var bad []string
	named := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, "| C") {
			continue
		}
		number, _, _ := strings.Cut(line[2:], " ")
		for _, m := range mapped.FindAllStringSubmatch(line, -1) {
			name := "github.com/sallyport/sallyport/" + m[1]
			switch {
			case m[2] != "":
				name = strings.ReplaceAll(m[2], "/", ".") + "." + m[3]
			case m[4] != "":
				name = "github.com/sallyport/sallyport/" + m[4] + ".TestScripts/" + m[5]
			}
			if named[name] {
				continue
			}
			named[name] = true
			if seen := outcomes[name]; len(seen) == 0 {
				bad = append(bad, number+": "+name+": no such test ran")
			} else if !slices.Contains(seen, passed) {
				bad = append(bad, fmt.Sprintf("%s: %s: %s", number, name, orUnfinished(seen[0])))
			}
		}
	}
	if len(named) == 0 {
		return nil, errors.New(list + ": names no tests")
	}
	return bad, nil
}
