//go:build linux

package machine

import (
	"bufio"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

//go:embed testdata/cpython/boot.py
var suiteBoot string

//go:embed testdata/cpython/expected.txt
var suiteExpected string

// quiet is how long a module of CPython's tests may say nothing. The longest test
// takes a small part of it.
const quiet = 10 * time.Minute

// leastPassed is how many tests pass at least, so that they do not all skip themselves
// unnoticed.
const leastPassed = 30_000

// suiteLimits are for tests that write large files and lists.
var suiteLimits = sandbox.Limits{MemoryBytes: 1 << 30, TmpBytes: 256 << 20}

// divided are the packages whose modules are tested one by one, as CPython does.
var divided = []string{"test_asyncio", "test_concurrent_futures", "test_future_stmt", "test_gdb", "test_inspect",
	"test_multiprocessing_fork", "test_multiprocessing_forkserver", "test_multiprocessing_spawn", "test_pydoc"}

// An expectation says what is known of tests: a line of expected.txt.
type expectation struct {
	kind    string // fail, flaky, skip or none
	pattern string // of path.Match, for the test's name
	reason  string
}

// module returns the longest of the modules that the expectation is about.
func (e expectation) module(modules []string) string {
	found := ""
	for _, m := range modules {
		if (e.pattern == m || strings.HasPrefix(e.pattern, m+".")) && len(m) > len(found) {
			found = m
		}
	}
	return found
}

// parseExpected reads the list.
func parseExpected(text string) (all []expectation, err error) {
	for n, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 || !slices.Contains([]string{"fail", "flaky", "skip", "none"}, fields[0]) {
			return nil, fmt.Errorf("line %d: %q", n+1, line)
		}
		if _, err := path.Match(fields[1], ""); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		all = append(all, expectation{fields[0], fields[1], strings.Join(fields[2:], " ")})
	}
	return all, nil
}

// suiteModules lists the test modules in a folder, which is the library's.
func suiteModules(library string) (all []string, err error) {
	for _, dir := range append([]string{""}, divided...) {
		files, err := filepath.Glob(filepath.Join(library, "test", dir, "test_*"))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			name, isFile := strings.CutSuffix(filepath.Base(f), ".py")
			if dir != "" {
				name = dir + "." + name
			}
			info, err := os.Stat(f)
			if err != nil {
				return nil, err
			}
			if (isFile || info.IsDir()) && !slices.Contains(divided, name) {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

// A moduleRun is what one module's tests have shown.
type moduleRun struct {
	passed, skipped int
	failed          map[string]string // reasons by name
	none            string            // why no test ran, if none did
	left            map[string]bool   // tests that were left out
}

// suiteRun runs a module's tests. Where a test ends the interpreter or hangs, the rest
// runs in another session.
func suiteRun(t *testing.T, img *Image, module string, skip []string) *moduleRun {
	t.Helper()
	whole := &moduleRun{failed: map[string]string{}, left: map[string]bool{}}
	for range 20 {
		part, last, end := suiteSession(t, img, module, skip)
		maps.Copy(whole.failed, part.failed)
		maps.Copy(whole.left, part.left)
		whole.passed, whole.skipped, whole.none = part.passed, part.skipped, part.none
		if end == "" {
			return whole
		}
		whole.failed[last] = end
		if last == module {
			return whole
		}
		// A failure is reported once, and tests that have passed pass again.
		skip = append(slices.Clone(skip), last)
	}
	t.Error("more than twenty tests end the interpreter")
	return whole
}

// suiteSession runs a module's tests in one session. If the session does not come to its
// end, it returns the test in which that happened, and how.
func suiteSession(t *testing.T, img *Image, module string, skip []string) (run *moduleRun, last, end string) {
	t.Helper()
	c, in, out := pipes(t)
	defer out.Close()
	c.Limits = suiteLimits
	noise, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr.Close()
	c.Stderr = stderr
	heard := make(chan struct{})
	defer func() { <-heard }()
	go func() {
		defer close(heard)
		defer noise.Close()
		_, _ = io.Copy(io.Discard, noise)
	}()
	s, err := img.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		s.Kill(sandbox.Destroyed)
		<-s.Done()
	}()
	order, err := json.Marshal(map[string]any{"module": module, "skip": append([]string{}, skip...)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(append(order, '\n')); err != nil {
		t.Fatal(err)
	}
	in.Close() // tests that read find the end
	run, last = &moduleRun{failed: map[string]string{}, left: map[string]bool{}}, module
	for lines := bufio.NewReader(out); ; {
		out.SetReadDeadline(time.Now().Add(quiet))
		line, err := lines.ReadBytes('\n')
		if os.IsTimeout(err) {
			return run, last, "hangs"
		}
		if err != nil {
			break
		}
		var event []string
		if err := json.Unmarshal(line, &event); err != nil || len(event) < 2 {
			t.Fatalf("%s said %q", module, line)
		}
		what, name, reason := event[0], event[1], strings.Join(event[2:], "")
		switch what {
		case "begin":
			last = name
		case "pass":
			run.passed++
		case "skip":
			run.skipped++
		case "fail":
			run.failed[name] = reason
		case "leave":
			run.left[name] = true
		case "none":
			run.none = cmp.Or(reason, "no reason")
		}
		if what != "begin" {
			last = module
		}
	}
	if got, want := s.Exit(), (sandbox.Exit{Reason: sandbox.Exited}); got != want {
		return run, last, fmt.Sprintf("the interpreter ended: %+v", got)
	}
	return run, "", ""
}

// check compares what a module's tests have shown with what is expected of them.
func (r *moduleRun) check(module string, expected []expectation) (errs []string) {
	if r.none == "" && r.passed == 0 && len(r.failed) == 0 {
		r.none = "all its tests skip themselves"
	}
	results := map[string]string{}
	maps.Copy(results, r.failed)
	if r.none != "" {
		results[module] = "no test runs: " + r.none
	}
	known := map[string]bool{}
	for _, e := range expected {
		fits := func(name string) bool { ok, _ := path.Match(e.pattern, name); return ok }
		found := false
		switch e.kind {
		case "none":
			found = r.none != "" && fits(module)
			known[module] = known[module] || found
		case "skip":
			for name := range r.left {
				found = found || fits(name)
			}
		default:
			for name := range r.failed {
				if fits(name) {
					found, known[name] = true, true
				}
			}
			found = found || e.kind == "flaky"
		}
		if !found {
			errs = append(errs, fmt.Sprintf("%s %s: expected, and is not so: %s", e.kind, e.pattern, e.reason))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(results)) {
		if !known[name] {
			errs = append(errs, fmt.Sprintf("%s: not expected: %s", name, results[name]))
		}
	}
	return errs
}

// TestSuite runs CPython's own tests, module by module, and compares what fails with
// testdata/cpython/expected.txt. It runs where SALLYPORT_TEST_CPYTHON names the library of
// CPython's source, which scripts/wasmpython/build --tests unpacks.
func TestSuite(t *testing.T) {
	library, cache := os.Getenv("SALLYPORT_TEST_CPYTHON"), os.Getenv("SALLYPORT_TEST_WASM")
	if library == "" || cache == "" {
		t.Skip("SALLYPORT_TEST_CPYTHON and SALLYPORT_TEST_WASM do not name the library with its tests and a directory for compiled code")
	}
	expected, err := parseExpected(suiteExpected)
	if err != nil {
		t.Fatal(err)
	}
	modules, err := suiteModules(library)
	if err != nil {
		t.Fatal(err)
	}
	if len(modules) < 400 {
		t.Fatalf("%s has %d modules of tests, want at least 400", library, len(modules))
	}
	of := map[string][]expectation{}
	for _, e := range expected {
		m := e.module(modules)
		if m == "" {
			t.Errorf("%s %s is about no module", e.kind, e.pattern)
		}
		of[m] = append(of[m], e)
	}
	img := openSuite(t, library, cache)
	var ran, passed, failed, skipped atomic.Int64
	t.Cleanup(func() {
		if int(ran.Load()) == len(modules) && passed.Load() < leastPassed {
			t.Errorf("%d tests pass, want at least %d", passed.Load(), leastPassed)
		}
		t.Logf("together %d passed, %d failed, %d skip themselves", passed.Load(), failed.Load(), skipped.Load())
	})
	for _, module := range modules {
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			ran.Add(1)
			var skip []string
			for _, e := range of[module] {
				if e.kind == "skip" {
					skip = append(skip, e.pattern)
				}
			}
			if slices.Contains(skip, module) {
				return // the module as a whole
			}
			began := time.Now()
			r := suiteRun(t, img, module, skip)
			for _, e := range r.check(module, of[module]) {
				t.Error(e)
			}
			passed.Add(int64(r.passed))
			failed.Add(int64(len(r.failed)))
			skipped.Add(int64(r.skipped))
			t.Logf("%d passed, %d failed, %d skip themselves, %d left out, %.1f s",
				r.passed, len(r.failed), r.skipped, len(r.left), time.Since(began).Seconds())
		})
	}
}

// openSuite returns an image of the interpreter that has loaded what tests need.
func openSuite(t *testing.T, library, cache string) *Image {
	t.Helper()
	i, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	i.Scripts = map[string]string{"boot.py": suiteBoot}
	m := openKept(t, cache, i)
	f, err := memoryFile("image")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := m.Boot(t.Context(), Program{Digest: "tests", Argv: []string{sandbox.InterpreterArg}, Files: os.DirFS(library)}, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { img.Close() })
	return img
}

// TestExpected: what fails and is not expected is found, and so is what is expected and
// does not fail.
func TestExpected(t *testing.T) {
	if _, err := parseExpected(suiteExpected); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"fail test_a", "wrong test_a reason", "fail test_[ reason"} {
		if got, err := parseExpected(bad); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
	for _, test := range []struct {
		list string
		run  moduleRun
		want []string
	}{
		{"", moduleRun{passed: 1}, nil},
		{"", moduleRun{passed: 1, failed: map[string]string{"test_a.B.c": "broken"}}, []string{"test_a.B.c: not expected: broken"}},
		{"fail  test_a.B.* old", moduleRun{failed: map[string]string{"test_a.B.c": "broken", "test_a.B.d": "broken"}}, nil},
		{"fail test_a.B.* old", moduleRun{passed: 1}, []string{"fail test_a.B.*: expected, and is not so: old"}},
		{"flaky test_a.B.c old", moduleRun{passed: 1}, nil},
		{"flaky test_a.B.c old", moduleRun{failed: map[string]string{"test_a.B.c": "broken"}}, nil},
		{"", moduleRun{none: "it has no sockets"}, []string{"test_a: not expected: no test runs: it has no sockets"}},
		{"none test_a old", moduleRun{none: "it has no sockets"}, nil},
		{"none test_a old", moduleRun{passed: 1}, []string{"none test_a: expected, and is not so: old"}},
		{"", moduleRun{skipped: 1}, []string{"test_a: not expected: no test runs: all its tests skip themselves"}},
		{"skip test_a.B.* old", moduleRun{passed: 1, left: map[string]bool{"test_a.B.c": true}}, nil},
		{"skip test_a.B.* old", moduleRun{passed: 1}, []string{"skip test_a.B.*: expected, and is not so: old"}},
	} {
		expected, err := parseExpected(test.list)
		if err != nil {
			t.Fatal(err)
		}
		if got := test.run.check("test_a", expected); !slices.Equal(got, test.want) {
			t.Errorf("%q, %+v: got %q, want %q", test.list, test.run, got, test.want)
		}
	}
}
