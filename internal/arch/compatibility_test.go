package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestCompatibility holds docs/COMPATIBILITY.md to its promise: each line of
// what users of the first code-execution bridge know names a test that exists,
// or a reason. (That those tests ran and passed, scripts/report checks.)
func TestCompatibility(t *testing.T) {
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(top, "docs/COMPATIBILITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines, problems := requirements(string(raw))
	if len(lines) < 150 {
		t.Errorf("only %d requirements: is this test looking at the right table?", len(lines))
	}
	known := newTestIndex(t, top)
	for _, l := range lines {
		for _, why := range l.unmapped(known) {
			problems = append(problems, l.number+": "+why)
		}
	}
	for _, p := range problems {
		t.Error(p)
	}
}

// TestCompatibilityIsComplete: what the code itself counts is all there.
func TestCompatibilityIsComplete(t *testing.T) {
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	document := read("docs/COMPATIBILITY.md")
	for _, name := range regexp.MustCompile(`\bMCP_[A-Z_]+[A-Z]\b`).FindAllString(read("docs/CONFIGURATION.md"), -1) {
		if !strings.Contains(document, name) {
			t.Errorf("%s is in CONFIGURATION.md and in no requirement", name)
		}
	}
}

// A requirement is one row of the tables in the numbered sections.
type requirement struct {
	number, text, shown string
}

var (
	sectionHeading = regexp.MustCompile(`^## (\d+)\. `)
	numbered       = regexp.MustCompile(`^C(\d+)\.(\d+)$`)
	backquoted     = regexp.MustCompile("`([^`]*)`")
)

// requirements reads the rows and reports what is wrong with their numbers.
func requirements(document string) (lines []requirement, problems []string) {
	section, next := 0, 0
	texts := map[string]string{}
	for i, line := range strings.Split(document, "\n") {
		if m := sectionHeading.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1])
			if n != section+1 {
				problems = append(problems, fmt.Sprintf("line %d: section %d follows section %d", i+1, n, section))
			}
			section, next = n, 1
			continue
		}
		if strings.HasPrefix(line, "## ") {
			section = -1 << 20 // prose from here on
		}
		if section < 1 || !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, "\x00"), "|"), "|")
		for j := range cells {
			cells[j] = strings.TrimSpace(strings.ReplaceAll(cells[j], "\x00", "|"))
		}
		if cells[0] == "no." || strings.HasPrefix(cells[0], "---") {
			continue
		}
		if want := fmt.Sprintf("C%d.%d", section, next); cells[0] != want || len(cells) != 3 {
			problems = append(problems, fmt.Sprintf("line %d: %q in %d cells, want %s, what is required, and what shows it", i+1, cells[0], len(cells), want))
		}
		next++
		if m := numbered.FindStringSubmatch(cells[0]); m != nil {
			n, _ := strconv.Atoi(m[2])
			next = n + 1
		}
		if len(cells) != 3 {
			continue
		}
		if first, twice := texts[cells[1]]; twice {
			problems = append(problems, fmt.Sprintf("line %d: %s says the same as %s", i+1, cells[0], first))
		}
		texts[cells[1]] = cells[0]
		lines = append(lines, requirement{cells[0], cells[1], cells[2]})
	}
	if section != 5 && section >= 0 {
		problems = append(problems, fmt.Sprintf("there are %d sections, not 5", section))
	}
	return lines, problems
}

// postponed are what a requirement may wait for: engines that are to come.
var postponed = []string{"container engines"}

// unmapped says why a requirement is not shown.
func (r requirement) unmapped(known *testIndex) (why []string) {
	if r.text == "" {
		why = append(why, "requires nothing")
	}
	names := backquoted.FindAllStringSubmatch(r.shown, -1)
	// In prose, other words stand in backquotes too.
	reasoned := strings.HasPrefix(r.shown, "differs: ") || strings.HasPrefix(r.shown, "pending: ")
	for _, m := range names {
		if reasoned && !goTest.MatchString(m[1]) && !pythonTest.MatchString(m[1]) && !scriptTest.MatchString(m[1]) {
			continue
		}
		if err := known.find(m[1]); err != nil {
			why = append(why, err.Error())
		}
	}
	prose := strings.TrimSpace(strings.Trim(backquoted.ReplaceAllString(r.shown, ""), " ,;"))
	switch {
	case strings.HasPrefix(prose, "differs: "):
		if len(prose) < len("differs: ")+20 {
			why = append(why, "differs without a reason")
		}
	case strings.HasPrefix(prose, "pending: "):
		if !slices.ContainsFunc(postponed, func(p string) bool { return strings.HasPrefix(prose, "pending: "+p) }) {
			why = append(why, fmt.Sprintf("%q is nothing that a requirement may wait for (%s)", prose, strings.Join(postponed, ", ")))
		}
	case len(names) == 0:
		why = append(why, "names no test, no difference and nothing that it waits for")
	case strings.Trim(prose, " ,;and") != "":
		why = append(why, fmt.Sprintf("%q is neither a test nor begins with differs: or pending:", prose))
	}
	return why
}

// testIndex knows the tests of the tree by their names.
type testIndex struct {
	top      string
	tests    map[string]bool            // package.TestName
	literals map[string]map[string]bool // package: its strings, as names of subtests
}

// suites are packages whose tests are in another's name.
var suites = map[string]string{"test/engines": "internal/sandbox/sandboxtest"}

func newTestIndex(t *testing.T, top string) *testIndex {
	index := &testIndex{top: top, tests: map[string]bool{}, literals: map[string]map[string]bool{}}
	for _, f := range sources(t) {
		if !f.test && !slices.Contains([]string{"internal/sandbox/sandboxtest"}, f.pkg) {
			continue
		}
		if index.literals[f.pkg] == nil {
			index.literals[f.pkg] = map[string]bool{}
		}
		for _, d := range f.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				index.tests[f.pkg+"."+fn.Name.Name] = true
			}
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			if s, err := strconv.Unquote(lit.Value); err == nil {
				index.literals[f.pkg][strings.ReplaceAll(s, " ", "_")] = true
			}
			return true
		})
	}
	return index
}

var (
	goTest     = regexp.MustCompile(`^([a-z0-9/]+)\.(Test\w+)((?:/[^/]+)*)$`)
	pythonTest = regexp.MustCompile(`^([\w/]+\.py)::(test_\w+)(?:\[([^\]]+)\])?$`)
	scriptTest = regexp.MustCompile(`^[\w/]+\.txtar$`)
)

// find is an error unless name is a test: package.TestName/sub of Go,
// file.py::test_name[case] of pytest, or a script of testscript.
func (x *testIndex) find(name string) error {
	if m := goTest.FindStringSubmatch(name); m != nil {
		pkg, test := m[1], m[2]
		if !x.tests[pkg+"."+test] {
			return fmt.Errorf("there is no test %s in %s", test, pkg)
		}
		for _, sub := range strings.Split(m[3], "/")[1:] {
			if !x.literals[pkg][sub] && !x.literals[suites[pkg]][sub] {
				return fmt.Errorf("%s.%s has no subtest %q", pkg, test, sub)
			}
		}
		return nil
	}
	if m := pythonTest.FindStringSubmatch(name); m != nil {
		raw, err := os.ReadFile(filepath.Join(x.top, m[1]))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !regexp.MustCompile(`(?m)^\s*def ` + m[2] + `\(`).Match(raw) {
			return fmt.Errorf("%s has no %s", m[1], m[2])
		}
		if m[3] != "" && !strings.Contains(string(raw), `"`+m[3]+`"`) && !exists(filepath.Join(x.top, filepath.Dir(m[1]), "examples", m[3]+".py")) {
			return fmt.Errorf("%s has no case %q", m[1], m[3])
		}
		return nil
	}
	if scriptTest.MatchString(name) {
		if !exists(filepath.Join(x.top, name)) {
			return fmt.Errorf("there is no script %s", name)
		}
		return nil
	}
	return fmt.Errorf("`%s` is not the name of a test", name)
}

// TestCompatibilityRules: the rules above catch what they are for.
func TestCompatibilityRules(t *testing.T) {
	const head = "## 1. One\n| no. | what | how |\n|---|---|---|\n"
	rest := "\n## 2. A\n## 3. B\n## 4. C\n## 5. D\n"
	tests := []struct{ name, rows, problem string }{
		{"a number left out", "| C1.1 | a | x |\n| C1.3 | b | x |", `"C1.3" in 3 cells, want C1.2`},
		{"a number twice", "| C1.1 | a | x |\n| C1.1 | b | x |", `"C1.1" in 3 cells, want C1.2`},
		{"no number", "| a | x | |", `"a" in 3 cells, want C1.1`},
		{"too few cells", "| C1.1 | a |", "in 2 cells"},
		{"a text twice", "| C1.1 | a | x |\n| C1.2 | a | x |", "C1.2 says the same as C1.1"},
	}
	for _, tt := range tests {
		if _, problems := requirements(head + tt.rows + rest); !strings.Contains(strings.Join(problems, "\n"), tt.problem) {
			t.Errorf("%s: %q", tt.name, problems)
		}
	}
	if _, problems := requirements(head + "| C1.1 | a \\| b | x |" + rest); len(problems) != 0 {
		t.Errorf("good rows: %q", problems)
	}
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	known := newTestIndex(t, top)
	for shown, want := range map[string]string{
		"":                                       "names no test",
		"`internal/arch.TestCompatibilityRules`": "",
		"`internal/arch.TestCompatibilityRules/a_text_twice`":     "",
		"`internal/arch.TestCompatibilityRules/no_" + "such`":     "has no subtest",
		"`internal/arch.TestNothing`":                             "there is no test TestNothing",
		"`nothing.py::test_it`":                                   "no such file",
		"`test/docs/test_documents.py::test_nothing`":             "has no test_nothing",
		"`test/docs/test_documents.py::test_there_are_documents`": "",
		"`nothing.txtar`":                                         "there is no script",
		"`a name`":                                                "is not the name of a test",
		"a test somewhere":                                        "names no test",
		"`internal/arch.TestNoInit` mostly":                       "neither a test nor begins",
		"differs: so":                                             "without a reason",
		"differs: because that is what its users would expect":    "",
		"pending: nobody has the time":                            "may wait for",
		"pending: container engines, which are to come":           "",
	} {
		got := strings.Join(requirement{"C1.1", "a", shown}.unmapped(known), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", shown, got, want)
		}
	}
}
