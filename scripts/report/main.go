// Command report adds up what the tests of a run said. It reads files of
// `go test -json` events (NAME.json) and of JUnit XML (NAME.xml), shows every
// failure with its output and every skip, holds the results against a list of
// tests that must not be skipped and against the tests that a list of
// requirements names, and ends with one line of counts.
//
//	go run ./scripts/report -must .ci/must-run.txt -mapped docs/COMPATIBILITY.md -failed-checks 0 DIR...
//
// NAME is the label of a run ("root", "user", "race"). A line of the list is a
// label and a pattern, matched against "package.Test/subtest" (of pytest, against
// "module.test"): at least one test must match it, and each that does must have
// passed.
//
// NAME.again1.json has the second runs of tests that failed in NAME.json: see
// settle.
//
// Before the counts it lists the slowest tests.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// An outcome of one test.
type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
	unknown outcome = "" // it began and never ended
)

type result struct {
	label, name string // name is package.Test/subtest
	outcome     outcome
	output      string
	parent      bool // of subtests, which count in its place
	seconds     float64
}

func main() {
	var must []string
	flag.Func("must", "a list of tests that must have passed; may be repeated", func(file string) error {
		must = append(must, file)
		return nil
	})
	checksPassed := flag.Int("passed-checks", 0, "checks other than tests that passed")
	checksFailed := flag.Int("failed-checks", 0, "checks other than tests that failed")
	requirements := flag.String("mapped", "", "a list of requirements; the tests that it names must have passed")
	list := flag.Bool("list-failed", false, "only list the failed tests of one file of events that are worth running again")
	flag.Parse()
	if *list {
		worth, err := listFailed(os.Stdout, flag.Arg(0))
		if err != nil {
			fmt.Fprintln(os.Stderr, "report:", err)
		}
		if err != nil || !worth {
			os.Exit(1)
		}
		return
	}
	ok, err := run(os.Stdout, flag.Args(), must, *requirements, *checksPassed, *checksFailed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(w io.Writer, dirs, must []string, requirements string, checksPassed, checksFailed int) (bool, error) {
	var results []result
	for _, dir := range dirs {
		some, err := readAll(dir)
		if err != nil {
			return false, err
		}
		results = append(results, some...)
	}
	results = settle(w, results)
	count := map[outcome]int{passed: checksPassed, failed: checksFailed}
	for _, r := range results {
		if r.parent {
			continue
		}
		switch r.outcome {
		case passed:
		case skipped:
			fmt.Fprintf(w, "--- SKIP: [%s] %s\n%s", r.label, r.name, indent(r.output))
		default:
			fmt.Fprintf(w, "--- FAIL: [%s] %s\n%s", r.label, r.name, indent(r.output))
		}
		o := r.outcome
		if o == unknown {
			o = failed
		}
		count[o]++
	}
	for _, list := range must {
		missing, err := unmet(list, results)
		if err != nil {
			return false, err
		}
		for _, m := range missing {
			fmt.Fprintln(w, "--- FAIL: must run:", m)
			count[failed]++
		}
	}
	if requirements != "" {
		missing, err := unproved(requirements, results)
		if err != nil {
			return false, err
		}
		for _, m := range missing {
			fmt.Fprintln(w, "--- FAIL: requirement:", m)
			count[failed]++
		}
	}
	if len(must) > 0 && len(results) == 0 {
		fmt.Fprintln(w, "--- FAIL: no test ran")
		count[failed]++
	}
	writeSlowest(w, results)
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", count[passed], count[failed], count[skipped])
	return count[failed] == 0, nil
}

// writeSlowest lists the tests that took longest, of those that took a second or
// more.
func writeSlowest(w io.Writer, results []result) {
	const most, least = 20, 1.0
	slow := slices.DeleteFunc(slices.Clone(results), func(r result) bool { return r.parent || r.seconds < least })
	slices.SortStableFunc(slow, func(a, b result) int { return cmp.Compare(b.seconds, a.seconds) })
	if len(slow) > 0 {
		fmt.Fprintln(w, "slowest tests:")
	}
	for _, r := range slow[:min(most, len(slow))] {
		fmt.Fprintf(w, "%7.1f s  [%s] %s\n", r.seconds, r.label, r.name)
	}
}

func indent(s string) string {
	const limit = 16 << 10
	if len(s) > limit {
		s = "… " + s[len(s)-limit:]
	}
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString("    " + line)
	}
	if s != "" && !strings.HasSuffix(s, "\n") {
		b.WriteByte('\n')
	}
	return b.String()
}

func readAll(dir string) ([]result, error) {
	var all []result
	for pattern, read := range map[string]func(string, io.Reader) ([]result, error){
		"*.json": readEvents, "*.xml": readJUnit,
	} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			label := strings.TrimSuffix(filepath.Base(name), pattern[1:])
			rs, err := readFile(name, label, read)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, rs...)
		}
	}
	sort.SliceStable(all, func(i, j int) bool {
		return all[i].label+" "+all[i].name < all[j].label+" "+all[j].name
	})
	return all, nil
}

func readFile(name, label string, read func(string, io.Reader) ([]result, error)) ([]result, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return read(label, f)
}

// readEvents reads `go test -json`. A test with subtests counts only through
// them, unless it failed where none of them did. A package that failed without
// a failed test (it did not build, or it crashed) is a failed result itself.
func readEvents(label string, r io.Reader) ([]result, error) {
	type event struct {
		Action, Package, Test, Output string
		ImportPath                    string
		Elapsed                       float64 // seconds
	}
	type state struct {
		outcome outcome
		output  strings.Builder
		test    bool // not a package
		parent  bool // of subtests
		seconds float64
	}
	tests := map[string]*state{}
	var order []string
	get := func(name string) *state {
		s := tests[name]
		if s == nil {
			s = &state{}
			tests[name] = s
			order = append(order, name)
		}
		return s
	}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		line := sc.Bytes()
		if len(line) == 0 || line[0] != '{' {
			continue // what a test binary wrote past the framework
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			continue
		}
		pkg := e.Package
		if pkg == "" {
			pkg = e.ImportPath // of what did not build
		}
		name := pkg
		if e.Test != "" {
			name += "." + e.Test
		}
		s := get(name)
		s.test = e.Test != ""
		switch e.Action {
		case "output", "build-output":
			if s.output.Len() < 1<<20 {
				s.output.WriteString(e.Output)
			}
		case "pass", "fail", "skip":
			s.seconds = max(s.seconds, e.Elapsed)
			// Of several runs, one that failed counts.
			if s.outcome != failed {
				s.outcome = outcome(e.Action)
			}
		case "run", "start":
			// A slash may also stand in a subtest's own name: what is before
			// it is a parent only where it is a test.
			for i, c := range e.Test {
				if p := tests[pkg+"."+e.Test[:i]]; c == '/' && p != nil {
					p.parent = true
				}
			}
		}
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}

	childFailed := func(name, separator string) bool {
		for other, s := range tests {
			if strings.HasPrefix(other, name+separator) && s.outcome != passed && s.outcome != skipped {
				return true
			}
		}
		return false
	}
	var results []result
	for _, name := range order {
		s := tests[name]
		if !s.test && (s.outcome != failed || childFailed(name, ".")) {
			continue
		}
		parent := s.parent && (s.outcome == passed || s.outcome == skipped || childFailed(name, "/"))
		results = append(results, result{label, name, s.outcome, s.output.String(), parent, s.seconds})
	}
	return results, nil
}

// readJUnit reads what pytest --junitxml writes.
func readJUnit(label string, r io.Reader) ([]result, error) {
	type note struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	type testcase struct {
		Class   string  `xml:"classname,attr"`
		Name    string  `xml:"name,attr"`
		Seconds float64 `xml:"time,attr"`
		Failure *note   `xml:"failure"`
		Error   *note   `xml:"error"`
		Skipped *note   `xml:"skipped"`
	}
	var doc struct {
		Cases []testcase `xml:"testsuite>testcase"`
		Alone []testcase `xml:"testcase"` // where the document is one suite
	}
	if err := xml.NewDecoder(r).Decode(&doc); err != nil {
		return nil, err
	}
	var results []result
	for _, c := range append(doc.Cases, doc.Alone...) {
		res := result{label: label, name: c.Class + "." + c.Name, outcome: passed, seconds: c.Seconds}
		for o, n := range map[outcome]*note{skipped: c.Skipped, failed: firstOf(c.Failure, c.Error)} {
			if n != nil {
				res.outcome, res.output = o, n.Message+"\n"+n.Text+"\n"
			}
		}
		results = append(results, res)
	}
	return results, nil
}

func firstOf[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// unmet returns the lines of the list that the results do not satisfy.
func unmet(list string, results []result) ([]string, error) {
	raw, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	var bad []string
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		label, pattern, ok := strings.Cut(line, " ")
		if !ok {
			return nil, fmt.Errorf("%s: %q is not a label and a pattern", list, line)
		}
		re, err := regexp.Compile(strings.TrimSpace(pattern))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %q", list, line), err)
		}
		matched := 0
		for _, r := range results {
			if r.label != label || !re.MatchString(r.name) {
				continue
			}
			matched++
			if r.outcome != passed {
				bad = append(bad, fmt.Sprintf("[%s] %s: %s", label, r.name, orUnfinished(r.outcome)))
			}
		}
		if matched == 0 {
			bad = append(bad, line+": no such test ran")
		}
	}
	return bad, nil
}

func orUnfinished(o outcome) string {
	if o == unknown {
		return "did not finish"
	}
	return string(o)
}
