//go:build unix

package python_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/wire"
)

// inOneProcess reports whether the guests of a test run as a single process each,
// without what CPython lacks on WASI.
func inOneProcess(t testing.TB) bool {
	return strings.HasPrefix(t.Name(), "TestSingleProcess/") || strings.HasPrefix(t.Name(), "TestParked/")
}

var beyondOneProcess = regexp.MustCompile(`(?i)thread|fork|subprocess|executor|os\.system|os\.close\(|SelectorEventLoop\(`)

// skipped reports whether code needs what a single process lacks, and is one.
func skipped(t testing.TB, code string) bool {
	return inOneProcess(t) && beyondOneProcess.MatchString(code)
}

// testsInOneProcess are the tests of the guest that a single process passes too.
func testsInOneProcess() []testInOneProcess {
	return []testInOneProcess{
		{"Programs", TestPrograms},
		{"Drained", TestDrained},
		{"Calls", TestCalls},
		{"LoadServer", TestLoadServer},
		{"AsyncioOnTheWay", TestAsyncioOnTheWay},
		{"GatherIsParallel", TestGatherIsParallel},
		{"LargeReply", TestLargeReply},
		{"LargeArguments", TestLargeArguments},
		{"GivenUp", TestGivenUp},
		{"ResourcesAndPrompts", TestResourcesAndPrompts},
		{"Names", TestNames},
		{"NotGranted", TestNotGranted},
		{"Hints", TestHints},
		{"HintsOfHostileCode", TestHintsOfHostileCode},
		{"CodeAsModelsSendIt", TestCodeAsModelsSendIt},
		{"Memory", TestMemory},
		{"SavedTools", TestSavedTools},
		{"UserTools", TestUserTools},
		{"Interrupts", TestInterrupts},
		{"Shutdown", TestShutdown},
		{"Artifacts", TestArtifacts},
		{"FilesAreCopied", TestFilesAreCopied},
		{"Streaming", TestStreaming},
		{"TakeOut", TestTakeOut},
		{"PutIn", TestPutIn},
		{"TaskUnknown", TestTaskUnknown},
		{"Order", testOrderInOneProcess},
		{"Input", testInputInOneProcess},
		{"Descriptors", testDescriptorsInOneProcess},
		{"Script", testScriptInOneProcess},
		{"Exit", testExitInOneProcess},
	}
}

type testInOneProcess struct {
	name string
	run  func(*testing.T)
}

// TestSingleProcess runs tests of the guest once more, as a single process.
func TestSingleProcess(t *testing.T) { runInOneProcess(t, testsInOneProcess()) }

// TestParked runs them in a single process that leaves the interpreter whenever it
// waits for the next execution.
func TestParked(t *testing.T) {
	runInOneProcess(t, append(testsInOneProcess(), testInOneProcess{"Background", testBackgroundWhileParked}))
}

func runInOneProcess(t *testing.T, tests []testInOneProcess) {
	if *launcher != "" {
		t.Skip("the launcher starts the guest its own way")
	}
	for _, test := range tests {
		t.Run(test.name, test.run)
	}
}

// Tasks go on while no execution is under way.
func testBackgroundWhileParked(t *testing.T) {
	p := launch(t)
	r := p.exec(t, `import asyncio, os
async def work():
    for i in range(3):
        await asyncio.sleep(0.01)
    print("worked")
    await asyncio.Event().wait()
task = asyncio.create_task(work())`)
	if r.err != nil || r.Background.Tasks != 1 {
		t.Fatalf("got %v, background %+v; want one task", r.err, r.Background)
	}
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(p.stray.Stdout(), "worked") {
		if time.Now().After(deadline) {
			t.Fatalf("the task has not gone on: got %q", p.stray.Stdout())
		}
		time.Sleep(time.Millisecond)
	}
	if r := p.exec(t, "print(task.done()); task.cancel()"); r.err != nil || r.stdout != "False\nTrue\n" {
		t.Errorf("got %v, %q, %q; want False and True", r.err, r.stdout, r.stderr)
	}
	if r := p.exec(t, "print(task.cancelled())"); r.err != nil || r.stdout != "True\n" {
		t.Errorf("got %v, %q, %q; want True", r.err, r.stdout, r.stderr)
	}
}

// What is written by different means appears in the order in which it was written,
// and all of it before the execution ends.
func testOrderInOneProcess(t *testing.T) {
	p := launch(t)
	r := p.exec(t, "import os, sys\nfor i in range(1000): print(i)\nos.write(1, b'os\\n')\nprint('x' * 3_000_000)\nsys.stdout.buffer.write(b'end\\n');")
	if want := lines(1000) + "os\n" + strings.Repeat("x", 3_000_000) + "\nend\n"; r.err != nil || r.stdout != want || r.stderr != "" {
		t.Errorf("%v: got %d bytes, want %d; stderr %q", r.err, len(r.stdout), len(want), r.stderr)
	}
	r = p.exec(t, "os.write(2, b'error\\n'); print('more', file=sys.stderr)")
	if r.stdout != "" || r.stderr != "error\nmore\n" {
		t.Errorf("got stdout %q, stderr %q; want the lines error and more on stderr", r.stdout, r.stderr)
	}
}

func testInputInOneProcess(t *testing.T) {
	p := launch(t)
	for _, test := range []struct{ code, input, stdout, stderr string }{
		{"import sys\ninput('? '), sys.stdin.read()", "one\ntwo\n", "? ('one', 'two\\n')\n", ""},
		{"import os\nos.read(0, 3), os.read(0, 3), os.read(0, 3)", "abcd", "(b'abc', b'd', b'')\n", ""},
		{"list(sys.stdin)", "a\nb\n", "['a\\n', 'b\\n']\n", ""},
		{"open('/dev/stdin').read()", "lost", "", "standard input is sys.stdin here"},
	} {
		rest := test.input
		give := func(_ context.Context, c wire.Call) (json.RawMessage, error) {
			var ask struct{ Most int }
			if err := json.Unmarshal(c.Params, &ask); err != nil || c.Method != wire.MethodStdin {
				t.Errorf("%s: %v", c.Method, err)
			}
			if rest == "" {
				return json.RawMessage("null"), nil
			}
			n := min(ask.Most, len(rest))
			data := []byte(rest[:n])
			rest = rest[n:]
			return json.Marshal(map[string][]byte{"data": data})
		}
		r := p.run(t, wire.Exec{Code: test.code, Stdin: true}, give)
		if r.err != nil || r.stdout != test.stdout || !strings.Contains(r.stderr, test.stderr) || test.stderr == "" && r.stderr != "" {
			t.Errorf("%s: %v; got stdout %q, want %q; stderr %q, want %q in it", test.code, r.err, r.stdout, test.stdout, r.stderr, test.stderr)
		}
	}
	if r := p.exec(t, "os.read(0, 10), sys.stdin.read()"); r.stdout != "(b'', '')\n" {
		t.Errorf("without an input: got %q, %q; want nothing read", r.stdout, r.stderr)
	}
}

// Honest code cannot tear the channel, whose descriptors are the standard ones.
func testDescriptorsInOneProcess(t *testing.T) {
	p := launch(t)
	for _, code := range []string{
		"import os\nos.close(0)", "os.close(1)", "os.close(2)", "open(0)", "open(1, 'w')", "os.fdopen(2, 'w')",
		"import sys\nopen(sys.stdout.fileno(), 'w', closefd=False)",
		"import threading\nthreading.Thread(target=print).start()", "os.fork()", "import subprocess\nsubprocess.run(['true'])",
		"import asyncio\nawait asyncio.to_thread(print) if hasattr(asyncio, 'to_thread') else 1/0",
	} {
		if r := p.exec(t, code); r.err != nil || r.Status != wire.StatusError {
			t.Errorf("%s: got %v, status %s; want an exception", code, r.err, r.Status)
		}
	}
	if r := p.exec(t, "print('on')"); r.err != nil || r.stdout != "on\n" {
		t.Errorf("afterwards: got %v, %q; want on", r.err, r.stdout)
	}
}

func testScriptInOneProcess(t *testing.T) {
	p := launch(t)
	r := p.run(t, wire.Exec{Code: "import atexit, os, sys\nprint(os.path.relpath(__file__), __name__)\natexit.register(print, 'bye')\nsys.exit(4)", Filename: "b.py", Script: true}, nil)
	if want := "b.py __main__\nbye\n"; r.err != nil || r.Status != wire.StatusExit || r.ExitCode != 4 || r.stdout != want {
		t.Errorf("%v: got status %s, %d, %q; want exit, 4, %q (%s)", r.err, r.Status, r.ExitCode, r.stdout, want, r.stderr)
	}
}

// The host learns how the interpreter ended.
func testExitInOneProcess(t *testing.T) {
	p := launch(t)
	r := p.exec(t, "import os\nprint('last')\nos._exit(3)")
	if r.err == nil || !strings.Contains(r.err.Error(), "3") || r.stdout != "last\n" {
		t.Errorf("got error %v, stdout %q; want the exit code 3 and last", r.err, r.stdout)
	}
}
