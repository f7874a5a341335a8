package main

import (
	"path/filepath"
	"reflect"
	"testing"
)

func TestUnproved(t *testing.T) {
	results := []result{
		{label: "root", name: "github.com/sallyport/sallyport/internal/a.TestPlain", outcome: passed},
		{label: "root", name: "github.com/sallyport/sallyport/internal/a.TestTree/one", outcome: passed},
		{label: "root", name: "github.com/sallyport/sallyport/internal/a.TestTree", outcome: passed, parent: true},
		{label: "root", name: "github.com/sallyport/sallyport/internal/a.TestElsewhere", outcome: skipped},
		{label: "race", name: "github.com/sallyport/sallyport/internal/a.TestElsewhere", outcome: passed},
		{label: "root", name: "github.com/sallyport/sallyport/internal/a.TestSkipped", outcome: skipped},
		{label: "root", name: "github.com/sallyport/sallyport/internal/cli.TestScripts/config", outcome: passed},
		{label: "clients", name: "test.x.test_y.test_case[a b]", outcome: passed},
		{label: "clients", name: "test.x.test_y.test_plain", outcome: failed},
	}
	list := filepath.Join(t.TempDir(), "list.md")
	write(t, list, "# `internal/a.TestProse`\n| no. | `internal/a.TestHead` |\n"+
		"| C1.1 | a | `internal/a.TestPlain` `internal/a.TestTree/one` `internal/a.TestTree` |\n"+
		"| C1.2 | b | differs: because `this` is so. `internal/a.TestElsewhere` |\n"+
		"| C1.3 | c | `internal/a.TestSkipped` |\n"+
		"| C1.4 | d | `internal/a.TestGone` `internal/a.TestPlain/sub` |\n"+
		"| C1.5 | e | `test/x/test_y.py::test_case[a b]` `test/x/test_y.py::test_case` `test/x/test_y.py::test_case[c]` |\n"+
		"| C1.6 | f | `test/x/test_y.py::test_plain` `internal/a.TestGone` |\n"+
		"| C1.7 | g | `internal/cli/testdata/script/config.txtar` `internal/cli/testdata/script/other.txtar` |\n"+
		"| C1.8 | h | pending: nothing yet |\n")
	got, err := unproved(list, results)
	want := []string{
		"C1.3: github.com/sallyport/sallyport/internal/a.TestSkipped: skip",
		"C1.4: github.com/sallyport/sallyport/internal/a.TestGone: no such test ran",
		"C1.4: github.com/sallyport/sallyport/internal/a.TestPlain/sub: no such test ran",
		"C1.5: test.x.test_y.test_case[c]: no such test ran",
		"C1.6: test.x.test_y.test_plain: fail",
		"C1.7: github.com/sallyport/sallyport/internal/cli.TestScripts/other: no such test ran",
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v\nwant %q", got, err, want)
	}
	write(t, list, "| C1.1 | a | pending: nothing yet |\n")
	if _, err := unproved(list, results); err == nil {
		t.Error("a list that names no tests is no list")
	}
}
