package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"sallyport/internal/a"}
{"Action":"run","Package":"sallyport/internal/a","Test":"TestPlain"}
{"Action":"pass","Package":"sallyport/internal/a","Test":"TestPlain"}
{"Action":"run","Package":"sallyport/internal/a","Test":"TestTree"}
{"Action":"run","Package":"sallyport/internal/a","Test":"TestTree/one"}
{"Action":"pass","Package":"sallyport/internal/a","Test":"TestTree/one"}
{"Action":"run","Package":"sallyport/internal/a","Test":"TestTree/two"}
{"Action":"output","Package":"sallyport/internal/a","Test":"TestTree/two","Output":"no root here\n"}
{"Action":"skip","Package":"sallyport/internal/a","Test":"TestTree/two"}
{"Action":"run","Package":"sallyport/internal/a","Test":"TestTree/a/slash"}
{"Action":"pass","Package":"sallyport/internal/a","Test":"TestTree/a/slash"}
{"Action":"pass","Package":"sallyport/internal/a","Test":"TestTree"}
not an event
{"Action":"pass","Package":"sallyport/internal/a"}
`

const crash = `{"Action":"start","Package":"sallyport/internal/b"}
{"Action":"run","Package":"sallyport/internal/b","Test":"TestHangs"}
{"Action":"fail","Package":"sallyport/internal/b"}
{"Action":"start","Package":"sallyport/internal/c"}
{"Action":"output","Package":"sallyport/internal/c","Output":"build failed\n"}
{"Action":"fail","Package":"sallyport/internal/c"}
`

const junit = `<?xml version="1.0"?><testsuites><testsuite name="pytest">
<testcase classname="test.clients.test_x" name="test_good"/>
<testcase classname="test.clients.test_x" name="test_bad"><failure message="assert 1 == 2">line 3</failure></testcase>
<testcase classname="test.clients.test_x" name="test_not"><skipped message="no node"/></testcase>
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
{"Action":"pass","Package":"p","Test":"TestTree"}
{"Action":"pass","Package":"p"}
`

const failedAgain = `{"Action":"run","Package":"p","Test":"TestTree"}
{"Action":"fail","Package":"p","Test":"TestTree"}
{"Action":"run","Package":"p","Test":"TestTree"}
{"Action":"pass","Package":"p","Test":"TestTree"}
{"Action":"fail","Package":"p"}
`

func TestListFailed(t *testing.T) {
	third := strings.ReplaceAll(oneFailed, "TestTree", "TestOther") + strings.ReplaceAll(oneFailed, "TestTree", "TestThird")
	for _, c := range []struct {
		name, events, want string
		ok                 bool
	}{
		{"one", oneFailed, "p TestTree\n", true},
		{"none", events, "", false},
		{"a crash", crash, "", false},
		{"too many", oneFailed + third, "", false},
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
			last: "3 passed, 0 failed, 1 skipped", want: []string{"--- SKIP: [root] sallyport/internal/a.TestTree/two", "    no root here"}, ok: true,
		},
		{
			name: "failed once", files: map[string]string{"root.json": oneFailed, "root.again.json": passedAgain},
			must: "root ^p.TestTree\n", last: "2 passed, 0 failed, 0 skipped", want: []string{"--- FLAKY: [root] p.TestTree/one failed once, and passed each time that it was run again", "    once"}, ok: true,
		},
		{
			name: "failed again", files: map[string]string{"root.json": oneFailed, "root.again.json": failedAgain},
			last: "1 passed, 1 failed, 0 skipped", want: []string{"--- FAIL: [root] p.TestTree/one"},
		},
		{
			name: "another run's second runs", files: map[string]string{"root.json": oneFailed, "race.again.json": passedAgain},
			last: "1 passed, 1 failed, 0 skipped", want: []string{"--- FAIL: [root] p.TestTree/one"},
		},
		{
			name: "must run, met", files: map[string]string{"root.json": events},
			must: "# a comment\n\nroot ^sallyport/internal/a\\.TestPlain$\n", last: "3 passed, 0 failed, 1 skipped", ok: true,
		},
		{
			name: "must run, skipped", files: map[string]string{"root.json": events},
			must: "root internal/a\\.TestTree/\n", last: "3 passed, 1 failed, 1 skipped",
			want: []string{"--- FAIL: must run: [root] sallyport/internal/a.TestTree/two: skip"},
		},
		{
			name: "must run, under another label", files: map[string]string{"root.json": events},
			must: "user internal/a\\.TestPlain\n", last: "3 passed, 1 failed, 1 skipped",
			want: []string{"--- FAIL: must run: user internal/a\\.TestPlain: no such test ran"},
		},
		{
			name: "crash and broken build", files: map[string]string{"root.json": crash},
			last: "0 passed, 2 failed, 0 skipped",
			want: []string{"--- FAIL: [root] sallyport/internal/b.TestHangs", "--- FAIL: [root] sallyport/internal/c", "    build failed"},
		},
		{
			name: "pytest", files: map[string]string{"clients.xml": junit},
			last: "1 passed, 1 failed, 1 skipped",
			want: []string{"--- FAIL: [clients] test.clients.test_x.test_bad", "    assert 1 == 2"},
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
			ok, err := run(&b, dir, must, "", 0, 0)
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
	if ok, err := run(&b, dir, nil, "", 4, 1); err != nil || ok {
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
