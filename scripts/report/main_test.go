package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"github.com/sallyport/sallyport/internal/a"}
{"Action":"run","Package":"github.com/sallyport/sallyport/internal/a","Test":"TestPlain"}
{"Action":"pass","Package":"github.com/sallyport/sallyport/internal/a","Test":"TestPlain"}
{"Action":"run","Package":"github.com/sallyport/sallyport/internal/a","Test":"TestTree"}
{"Action":"run","Package":"github.com/sallyport/sallyport/internal/a","Test":"TestTree/one"}
{"Action":"pass","Package":"github.com/sallyport/sallyport/internal/a","Test":"TestTree/one"}
{"Action":"run","Package":"github.com/sallyport/sallyport/internal/a","Test":"TestTree/two"}
{"Action":"output","Package":"github.com/sallyport/sallyport/internal/a","Test":"TestTree/two","Output":"no root here\n"}
{"Action":"skip","Package":"github.com/sallyport/sallyport/internal/a","Test":"TestTree/two"}
{"Action":"run","Package":"github.com/sallyport/sallyport/internal/a","Test":"TestTree/a/slash"}
{"Action":"pass","Package":"github.com/sallyport/sallyport/internal/a","Test":"TestTree/a/slash"}
{"Action":"pass","Package":"github.com/sallyport/sallyport/internal/a","Test":"TestTree"}
not an event
{"Action":"pass","Package":"github.com/sallyport/sallyport/internal/a"}
`

const crash = `{"Action":"start","Package":"github.com/sallyport/sallyport/internal/b"}
{"Action":"run","Package":"github.com/sallyport/sallyport/internal/b","Test":"TestHangs"}
{"Action":"fail","Package":"github.com/sallyport/sallyport/internal/b"}
{"Action":"start","Package":"github.com/sallyport/sallyport/internal/c"}
{"Action":"output","Package":"github.com/sallyport/sallyport/internal/c","Output":"build failed\n"}
{"Action":"fail","Package":"github.com/sallyport/sallyport/internal/c"}
`

const junit = `<?xml version="1.0"?><testsuites><testsuite name="pytest">
<testcase classname="test.clients.test_x" name="test_good"/>
<testcase classname="test.clients.test_x" name="test_bad"><failure message="assert 1 == 2">line 3</failure></testcase>
<testcase classname="test.clients.test_x" name="test_not"><skipped message="no node"/></testcase>
</testsuite></testsuites>`

const junitAgain = `<?xml version="1.0"?><testsuites><testsuite name="pytest">
<testcase classname="test.clients.test_x" name="test_bad"/>
</testsuite></testsuites>`

const oneFailed = `{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"run","Package":"p","Test":"TestTree"}
{"Action":"run","Package":"p","Test":"TestTree/one"}
{"Action":"output","Package":"p","Test":"TestTree/one","Output":"once\n"}
{"Action":"fail","Package":"p","Test":"TestTree/one"}
{"Action":"fail","Package":"p","Test":"TestTree"}
{"Action":"fail","Package":"p"}
`

const passedAgain = `{"Action":"run","Package":"p","Test":"TestTree"}
{"Action":"run","Package":"p","Test":"TestTree/one"}
{"Action":"pass","Package":"p","Test":"TestTree/one"}
{"Action":"pass","Package":"p","Test":"TestTree"}
{"Action":"pass","Package":"p"}
`

const failedAgain = `{"Action":"run","Package":"p","Test":"TestTree"}
{"Action":"run","Package":"p","Test":"TestTree/one"}
{"Action":"fail","Package":"p","Test":"TestTree/one"}
{"Action":"fail","Package":"p","Test":"TestTree"}
{"Action":"run","Package":"p","Test":"TestTree"}
{"Action":"run","Package":"p","Test":"TestTree/one"}
{"Action":"pass","Package":"p","Test":"TestTree/one"}
{"Action":"pass","Package":"p","Test":"TestTree"}
{"Action":"fail","Package":"p"}
`

const crashed = `{"Action":"run","Package":"b","Test":"TestHangs"}
{"Action":"fail","Package":"b"}
`

const notCrashed = `{"Action":"run","Package":"b","Test":"TestHangs"}
{"Action":"pass","Package":"b","Test":"TestHangs"}
{"Action":"pass","Package":"b"}
`

const leaked = `{"Action":"run","Package":"b","Test":"TestOne"}
{"Action":"pass","Package":"b","Test":"TestOne"}
{"Action":"fail","Package":"b"}
`

const notLeaked = `{"Action":"run","Package":"b","Test":"TestOne"}
{"Action":"pass","Package":"b","Test":"TestOne"}
{"Action":"pass","Package":"b"}
`

func TestListFailed(t *testing.T) {
	var many string
	for i := range mostAgain + 1 {
		many += strings.ReplaceAll(oneFailed, "TestTree", fmt.Sprint("TestTree", i))
	}
	for _, c := range []struct {
		name, events, want string
		ok                 bool
	}{
		{"one", oneFailed, "p ^TestTree$/^one$\n", true},
		{"two", oneFailed + strings.ReplaceAll(oneFailed, "one", "a(b)"), "p ^TestTree$/^one$\np ^TestTree$/^a\\(b\\)$\n", true},
		{"none", events, "", false},
		{"a crash", crash, "github.com/sallyport/sallyport/internal/b .\ngithub.com/sallyport/sallyport/internal/c .\n", true},
		{"too many", many, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "root.json")
			if err := os.WriteFile(file, []byte(c.events), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if ok, err := listFailed(&out, file); ok != c.ok || err != nil || out.String() != c.want {
				t.Error(ok, err, out.String())
			}
		})
	}
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		must  string
		last  string
		want  []string // lines that must be there
		ok    bool
	}{
		{
			name: "go", files: map[string]string{"root.json": events},
			last: "3 passed, 0 failed, 1 skipped", want: []string{"--- SKIP: [root] github.com/sallyport/sallyport/internal/a.TestTree/two", "    no root here"}, ok: true,
		},
		{
			name: "failed once", files: map[string]string{"root.json": oneFailed, "root.again1.json": passedAgain},
			must: "root ^p.TestTree\n", last: "2 passed, 0 failed, 0 skipped", want: []string{"--- FLAKY: [root] p.TestTree/one failed, and passed when it was run again", "    once"}, ok: true,
		},
		{
			name: "failed again", files: map[string]string{"root.json": oneFailed, "root.again1.json": failedAgain},
			last: "1 passed, 1 failed, 0 skipped", want: []string{"--- FAIL: [root] p.TestTree/one"},
		},
		{
			name: "failed once in pytest", files: map[string]string{"clients.xml": junit, "clients.again1.xml": junitAgain, "clients.again2.xml": junitAgain},
			must: "clients test_bad\n", last: "2 passed, 0 failed, 1 skipped", want: []string{"--- FLAKY: [clients] test.clients.test_x.test_bad failed, and passed when it was run again"}, ok: true,
		},
		{
			name: "failed twice in pytest", files: map[string]string{"clients.xml": junit, "clients.again1.xml": junit, "clients.again2.xml": junitAgain},
			last: "2 passed, 0 failed, 1 skipped", ok: true,
		},
		{
			name: "failed three times in pytest", files: map[string]string{"clients.xml": junit, "clients.again1.xml": junit, "clients.again2.xml": junit},
			last: "1 passed, 1 failed, 1 skipped",
		},
		{
			name: "crashed once", files: map[string]string{"root.json": crashed, "root.again1.json": notCrashed},
			last: "1 passed, 0 failed, 0 skipped", want: []string{"--- FLAKY: [root] b.TestHangs failed, and passed when it was run again"}, ok: true,
		},
		{
			name: "leaked once", files: map[string]string{"root.json": leaked, "root.again1.json": notLeaked},
			last: "2 passed, 0 failed, 0 skipped", want: []string{"--- FLAKY: [root] b failed, and passed when it was run again"}, ok: true,
		},
		{
			name: "leaked twice", files: map[string]string{"root.json": leaked, "root.again1.json": leaked},
			last: "1 passed, 1 failed, 0 skipped", want: []string{"--- FAIL: [root] b"},
		},
		{
			name: "another run's second runs", files: map[string]string{"root.json": oneFailed, "race.again1.json": passedAgain},
			last: "1 passed, 1 failed, 0 skipped", want: []string{"--- FAIL: [root] p.TestTree/one"},
		},
		{
			name: "must run, met", files: map[string]string{"root.json": events},
			must: "# a comment\n\nroot ^github.com/sallyport/sallyport/internal/a\\.TestPlain$\n", last: "3 passed, 0 failed, 1 skipped", ok: true,
		},
		{
			name: "must run, skipped", files: map[string]string{"root.json": events},
			must: "root internal/a\\.TestTree/\n", last: "3 passed, 1 failed, 1 skipped",
			want: []string{"--- FAIL: must run: [root] github.com/sallyport/sallyport/internal/a.TestTree/two: skip"},
		},
		{
			name: "must run, under another label", files: map[string]string{"root.json": events},
			must: "user internal/a\\.TestPlain\n", last: "3 passed, 1 failed, 1 skipped",
			want: []string{"--- FAIL: must run: user internal/a\\.TestPlain: no such test ran"},
		},
		{
			name: "crash and broken build", files: map[string]string{"root.json": crash},
			last: "0 passed, 2 failed, 0 skipped",
			want: []string{"--- FAIL: [root] github.com/sallyport/sallyport/internal/b.TestHangs", "--- FAIL: [root] github.com/sallyport/sallyport/internal/c", "    build failed"},
		},
		{
			name: "pytest", files: map[string]string{"clients.xml": junit},
			last: "1 passed, 1 failed, 1 skipped",
			want: []string{"--- FAIL: [clients] test.clients.test_x.test_bad", "    assert 1 == 2"},
		},
		{
			name: "one suite", files: map[string]string{"conformance.xml": `<testsuite name="conformance"><testcase classname="c" name="n"/></testsuite>`},
			last: "1 passed, 0 failed, 0 skipped", ok: true,
		},
		{
			name: "must run, with subtests", files: map[string]string{"root.json": events},
			must: "root a\\.TestTree$\n", last: "3 passed, 0 failed, 1 skipped", ok: true,
		},
		{name: "nothing", must: "# nothing in particular\n", last: "0 passed, 1 failed, 0 skipped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				write(t, filepath.Join(dir, name), text)
			}
			var must []string
			if c.must != "" {
				must = []string{filepath.Join(dir, "must.txt")}
				write(t, must[0], c.must)
			}
			var b strings.Builder
			ok, err := run(&b, []string{dir}, must, "", 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
			if got := lines[len(lines)-1]; got != c.last || ok != c.ok {
				t.Errorf("last line %q, ok %v; want %q, %v\n%s", got, ok, c.last, c.ok, b.String())
			}
			for _, w := range c.want {
				if !strings.Contains(b.String(), w) {
					t.Errorf("no line %q in\n%s", w, b.String())
				}
			}
		})
	}
}

func TestChecksCount(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "root.json"), events)
	var b strings.Builder
	if ok, err := run(&b, []string{dir}, nil, "", 4, 1); err != nil || ok {
		t.Errorf("a failed check: ok %v, error %v", ok, err)
	}
	if !strings.HasSuffix(b.String(), "\n7 passed, 1 failed, 1 skipped\n") {
		t.Errorf("ends with %q", b.String())
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSlowest(t *testing.T) {
	results := []result{{label: "a", name: "quick", seconds: 0.9}, {label: "a", name: "parent", seconds: 60, parent: true}}
	for i := range 30 {
		results = append(results, result{label: "b", name: fmt.Sprint("T", i), seconds: float64(i)})
	}
	var b strings.Builder
	writeSlowest(&b, results)
	got := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(got) != 21 || got[0] != "slowest tests:" || got[1] != "   29.0 s  [b] T29" || got[20] != "   10.0 s  [b] T10" {
		t.Errorf("got\n%s\nwant a heading and T29 to T10", b.String())
	}
	b.Reset()
	writeSlowest(&b, results[:2])
	if b.String() != "" {
		t.Errorf("with no slow test: got %q, want nothing", b.String())
	}
	events := `{"Action":"run","Package":"p","Test":"T"}
{"Action":"pass","Package":"p","Test":"T","Elapsed":2.5}
`
	from, err := readEvents("x", strings.NewReader(events))
	if err != nil || len(from) != 1 || from[0].seconds != 2.5 {
		t.Errorf("of events: got %+v, %v, want one test of 2.5 seconds", from, err)
	}
	from, err = readJUnit("x", strings.NewReader(`<testsuites><testsuite><testcase classname="c" name="n" time="3.5"/></testsuite></testsuites>`))
	if err != nil || len(from) != 1 || from[0].seconds != 3.5 {
		t.Errorf("of JUnit XML: got %+v, %v, want one test of 3.5 seconds", from, err)
	}
}
