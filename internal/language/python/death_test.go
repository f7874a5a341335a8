//go:build unix

package python_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/guest/guesttest"
	"github.com/sallyport/sallyport/internal/wire"
)

// TestDeaths: what ends the interpreter is told as it is, with all the output
// that came before.
func TestDeaths(t *testing.T) {
	tests := []struct {
		name, code string
		died       guest.Died // what must be said
		stdout     string
	}{
		{"os._exit", "print('before')\nimport os\nos._exit(3)", guest.Died{Known: true, Code: 3}, "before\n"},
		{"killed by itself", "import os\nprint('before')\nos.kill(os.getpid(), 9)", guest.Died{Known: true, Signal: 9}, "before\n"},
		{"terminated", "import os, signal\nprint('before')\nos.kill(os.getpid(), signal.SIGTERM)", guest.Died{Known: true, Signal: 15}, "before\n"},
		{"much output before", "import os\nprint('x' * 3_000_000)\nos._exit(0)", guest.Died{Known: true}, strings.Repeat("x", 3_000_000) + "\n"},
		{"many lines before", "import os, sys\nfor i in range(10000): print(i)\nsys.stdout.buffer.drain()\nos._exit(0)", guest.Died{Known: true}, lines(10000)},
		{"all descriptors closed", "import os\nos.closerange(3, 4096)", guest.Died{Known: true}, ""},
		{"all descriptors closed while calling", "import os\nos.closerange(3, 4096)\nruntime.search_tool_docs_sync('x')", guest.Died{Known: true}, ""},
		{"the nonces' descriptor closed", "import os\nos.close(702)\nos.write(1, b'');", guest.Died{Known: true}, ""},
		{"a child keeps the pipes", "import os\nif os.fork() == 0:\n    import time\n    time.sleep(30)\n    os._exit(0)\nos._exit(4)", guest.Died{Known: true, Code: 4}, ""},
		{"a child keeps writing", "import os, time\nif os.fork() == 0:\n    while True: os.write(1, b'y' * 1000)\ntime.sleep(0.1)\nos._exit(5)", guest.Died{Known: true, Code: 5}, "y"},
		{"garbage on the channel", "import os\nos.write(701, b'\\0\\0\\0\\5hello')\nimport time\ntime.sleep(5)", guest.Died{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := launch(t)
			r := p.exec(t, tt.code)
			var d *guest.Died
			switch {
			case tt.name == "garbage on the channel":
				if !errors.Is(r.err, guest.ErrProtocol) {
					t.Error(r.err)
				}
			case !errors.As(r.err, &d):
				t.Fatalf("no death: %+v %v %.300q", r.Done, r.err, r.stderr)
			case *d != tt.died:
				t.Errorf("%+v, want %+v; stderr %q", *d, tt.died, r.stderr)
			}
			if !strings.HasPrefix(r.stdout, tt.stdout) || tt.stdout != "y" && len(r.stdout) != len(tt.stdout) {
				t.Errorf("%d bytes of stdout, want %d", len(r.stdout), len(tt.stdout))
			}
			select {
			case <-p.Dead():
			case <-time.After(time.Minute):
				t.Error("the conversation goes on")
			}
		})
	}
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strconv.Itoa(i) + "\n")
	}
	return b.String()
}

// TestSegfault: the signal is told. Needs ctypes.
func TestSegfault(t *testing.T) {
	p := launch(t)
	if r := p.exec(t, "import ctypes"); r.Status != wire.StatusOK {
		t.Skip("no ctypes")
	}
	r := p.exec(t, "ctypes.string_at(0)")
	var d *guest.Died
	if !errors.As(r.err, &d) || d.Signal != int(syscall.SIGSEGV) {
		t.Error(r.err)
	}
}

// TestInitSurvives what code of the same user may send it. (32 and 33 are the C
// library's own and cannot be ignored; to a container's first process nothing
// that it does not handle is delivered.)
func TestInitSurvives(t *testing.T) {
	p := launch(t)
	r := p.exec(t, "import os, signal\nfor s in range(1, 65):\n    if s not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, 32, 33):\n        try: os.kill(os.getppid(), s)\n        except OSError: pass\nprint('ok')")
	if r.err != nil || r.stdout != "ok\n" {
		t.Fatal(r)
	}
	if r := p.exec(t, "2"); r.stdout != "2\n" {
		t.Error(r)
	}
}

// TestShutdown: asked to end, or left alone, the guest ends by itself.
func TestShutdown(t *testing.T) {
	for _, how := range []string{"asked", "left alone"} {
		t.Run(how, func(t *testing.T) {
			p := launch(t)
			p.exec(t, "import asyncio\nasync def f():\n    while True: await asyncio.sleep(0.01)\nx = asyncio.create_task(f())")
			if how == "asked" {
				if err := p.Shutdown(); err != nil {
					t.Fatal(err)
				}
			} else {
				_ = p.stdin.Close()
			}
			<-p.Dead()
			var d *guest.Died
			if err := p.Err(); !errors.As(err, &d) || *d != (guest.Died{Known: true}) {
				t.Error(err)
			}
		})
	}
}

// TestZombies: init reaps what is left to it.
func TestZombies(t *testing.T) {
	p := launch(t)
	r := p.exec(t, "import subprocess, time\nfor _ in range(5): subprocess.Popen('sleep 0.01 & exit', shell=True).wait()\ntime.sleep(0.1)\nsubprocess.run(['ps', '-o', 'stat=,ppid=', '-A'], capture_output=True, text=True).stdout.count('Z') >= 0")
	if r.stdout != "True\n" {
		t.Error(r)
	}
}

// TestCStreams: what C code printed arrives with its execution.
func TestCStreams(t *testing.T) {
	p := launch(t)
	if r := p.exec(t, "import ctypes\nlibc = ctypes.CDLL(None)"); r.Status != wire.StatusOK {
		t.Skip("no ctypes")
	}
	if r := p.exec(t, "libc.printf(b'from C\\n');"); r.stdout != "from C\n" {
		t.Errorf("%q", r.stdout)
	}
	// A megabyte while the GIL is held: more than any pipe takes at once.
	r := p.exec(t, "ctypes.PyDLL(None).write(1, b'z' * 3_000_000, 3_000_000);")
	if r.err != nil || len(r.stdout) != 3_000_000 {
		t.Errorf("%d bytes, %v", len(r.stdout), r.err)
	}
}

func TestBackground(t *testing.T) {
	p := launch(t)
	r := p.exec(t, "import threading, time, asyncio, subprocess\n"+
		"def tick():\n    for i in range(100): print('tick'); time.sleep(0.01)\n"+
		"threading.Thread(target=tick, daemon=True).start()\n"+
		"async def tock():\n    for i in range(100):\n        print('tock')\n        await asyncio.sleep(0.01)\n"+
		"k = asyncio.create_task(tock())\nc = subprocess.Popen(['sleep', '30'])")
	if r.err != nil || r.Background != (wire.Background{Threads: 1, Tasks: 1, Children: 1}) {
		t.Errorf("%+v %v %s", r.Background, r.err, r.stderr)
	}
	said := strings.Join(r.Running, "\n")
	for _, want := range []string{"thread Thread-1", "task Task-", " tock", "process ", " sleep 30"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not named among what runs: %q", want, said)
		}
	}
	both := func() bool {
		s := p.stray.Stdout()
		return strings.Contains(s, "tick") && strings.Contains(s, "tock")
	}
	for end := time.Now().Add(time.Minute); !both(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("between executions: got %q, want tick and tock", p.stray.Stdout())
		}
	}
	if r := p.exec(t, "await k\nc.kill()\nc.wait()"); r.err != nil || !strings.Contains(r.stdout, "-9\n") {
		t.Errorf("%q %v", r.stdout, r.err)
	}
}

func TestArtifacts(t *testing.T) {
	p := launch(t)
	artifacts := func(code string) []wire.Artifact {
		t.Helper()
		r := p.exec(t, code)
		if r.err != nil || r.Status != wire.StatusOK {
			t.Fatal(r)
		}
		return r.Artifacts
	}
	is := func(got []wire.Artifact, want ...wire.Artifact) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%v, want %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%v, want %v", got, want)
			}
		}
	}
	is(artifacts("1"))
	is(artifacts("import os\nopen('b.txt', 'w').write('12');"), wire.Artifact{Path: "b.txt", Size: 2})
	is(artifacts("open('b.txt').read();"))
	is(artifacts("os.makedirs('d/e')\nopen('d/e/ä.bin', 'wb').write(b'123')\nopen('a', 'w')\nos.symlink('/etc/passwd', 'link')\nos.mkfifo('fifo')\nos.mkdir('__pycache__')\nopen('__pycache__/x', 'w');"),
		wire.Artifact{Path: "a"}, wire.Artifact{Path: "d/e/ä.bin", Size: 3})
	is(artifacts("open('b.txt', 'a').write('3');"), wire.Artifact{Path: "b.txt", Size: 3})
	is(artifacts("os.remove('b.txt')"))
	r := p.exec(t, "for i in range(1200): open(f'f{i:03}', 'w').close()")
	if len(r.Artifacts) != 1000 || !r.ArtifactsTruncated {
		t.Error(len(r.Artifacts), r.ArtifactsTruncated)
	}
	// Beside a large tree, what is new is found.
	p.exec(t, "for d in range(30):\n    os.makedirs(f'tree/{d}')\n    for i in range(30): open(f'tree/{d}/{i}', 'w').close()")
	is(artifacts("1"))
	is(artifacts("open('tree/7/new', 'w').write('x');"), wire.Artifact{Path: "tree/7/new", Size: 1})
	is(artifacts("os.remove('tree/7/new'); open('tree/8/x', 'w').close(); os.replace('tree/8/x', 'tree/8/0')"), wire.Artifact{Path: "tree/8/0"})
}

func TestFilesAreCopied(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/sub/data.txt", []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "SALLYPORT_FILES="+dir)
	r := p.exec(t, "print(open('sub/data.txt').read())\nopen('sub/data.txt', 'a').write('!');")
	if r.stdout != "content\n" || len(r.Artifacts) != 1 || r.Artifacts[0].Path != "sub/data.txt" {
		t.Error(r)
	}
}

// TestOrder: what is written by different means appears in the order in which
// it was written, also once output is gathered.
func TestOrder(t *testing.T) {
	p := launch(t)
	r := p.exec(t, "import subprocess\nfor i in range(1000): print(i)\nsubprocess.run(['echo', 'child'])\nprint('end')")
	if want := lines(1000) + "child\nend\n"; r.stdout != want {
		t.Errorf("%v: %d bytes, want %d; ends %q; stray %q; stderr %q", r.err, len(r.stdout), len(want), r.stdout[max(0, len(r.stdout)-40):], p.stray.Stdout(), r.stderr)
	}
}

// TestStreaming: a line is delivered while the code goes on.
func TestStreaming(t *testing.T) {
	p := launch(t)
	p.exec(t, "import time")
	h := guesttest.NewHandler(nil)
	x, err := p.Start(wire.Exec{Code: "import time\nfor i in range(300): print(i)\ntime.sleep(600)"}, h)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); h.Stdout() != lines(300); {
		select {
		case <-h.Arrived:
		case <-x.Done():
			t.Fatal("only at the end")
		case <-time.After(time.Until(deadline)):
			t.Fatalf("not in time: %d bytes", len(h.Stdout()))
		}
	}
}

func TestSitePackages(t *testing.T) {
	p := launch(t)
	r := p.exec(t, "import sys\nbefore = [x for x in sys.path if 'packages' in x]\ntry: import no_such_module_anywhere\nexcept ImportError as e: print(e)\nbefore == [], any('packages' in x for x in sys.path)")
	if r.stdout != "No module named 'no_such_module_anywhere'\n(True, True)\n" {
		t.Error(r.stdout, r.stderr)
	}
	q := launch(t)
	q.exec(t, "1")
	if r := q.exec(t, "import sys\nany('packages' in x for x in sys.path)"); r.stdout != "True\n" {
		t.Error(r.stdout)
	}
}
