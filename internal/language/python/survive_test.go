//go:build unix

package python_test

import (
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/wire"
)

// TestWhatASessionSurvives: each program starts a session of its own, so that
// nothing of what a report needs is there yet, and the session goes on.
func TestWhatASessionSurvives(t *testing.T) {
	const exhausted = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (1000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n" +
		"kept = []\nwhile True:\n    try: kept.append(open('/dev/null'))\n    except OSError: break\n"
	tests := []struct {
		name, code     string
		status         wire.Status
		stderr, absent string // stderr: what it must contain, and must not
		err            wire.Exception
	}{
		{name: "closed standard error", code: "import os\nos.close(2)\n1/0", status: wire.StatusError,
			stderr: "    1/0\n", err: wire.Exception{Type: "ZeroDivisionError", Message: "division by zero"}},
		{name: "all descriptors closed", code: "import os\nos.closerange(0, 3)\nprint(1)", status: wire.StatusError,
			stderr: "OSError: ", err: wire.Exception{Type: "OSError", Message: "[Errno 9] Bad file descriptor"}},
		{name: "no descriptor left", code: exhausted + "1/0", status: wire.StatusError,
			stderr: "line 7, in <module>\n", err: wire.Exception{Type: "ZeroDivisionError", Message: "division by zero"}},
		{name: "no standard output", code: "import sys\ndel sys.stdout", status: wire.StatusOK},
		{name: "no standard error", code: "import sys\ndel sys.stderr, sys.excepthook, sys.displayhook\nraise KeyError('k')", status: wire.StatusError,
			stderr: "KeyError: 'k'\n", err: wire.Exception{Type: "KeyError", Message: "'k'"}},
		{name: "a trace function that raises", code: "import sys\nx = 1\nsys.settrace(lambda *a: 1/0)\nx = 2", status: wire.StatusOK},
		{name: "lines", code: "raise ValueError('first\\nHint: second')", status: wire.StatusError,
			stderr: "ValueError: first\nHint: second\n", err: wire.Exception{Type: "ValueError", Message: "first"}},
		{name: "long", code: "raise ValueError('x' * 10000)", status: wire.StatusError,
			stderr: "ValueError: x", err: wire.Exception{Type: "ValueError", Message: strings.Repeat("x", 500)}},
		{name: "class of the session", code: "class E(Exception):\n    def __str__(self): 1/0\nraise E", status: wire.StatusError,
			stderr: "E: <", err: wire.Exception{Type: "E"}},
		{name: "class of a module", code: "import json\njson.loads('x')", status: wire.StatusError,
			stderr: "JSONDecodeError", err: wire.Exception{Type: "json.decoder.JSONDecodeError", Message: "Expecting value: line 1 column 1 (char 0)"}},
		{name: "frames of asyncio", code: "import asyncio\nawait asyncio.sleep(0.001)\n1/0", status: wire.StatusError,
			stderr: "line 3, in <module>", absent: "base_events", err: wire.Exception{Type: "ZeroDivisionError", Message: "division by zero"}},
		{name: "frames of asyncio that user code called", code: "import asyncio\nasync def f(): 1/0\nasyncio.run(f())", status: wire.StatusError,
			stderr: "base_events", err: wire.Exception{Type: "ZeroDivisionError", Message: "division by zero"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := launch(t)
			r := p.exec(t, tt.code)
			if r.err != nil || r.Status != tt.status {
				t.Fatalf("status %s, %v: %s", r.Status, r.err, r.stderr)
			}
			var got wire.Exception
			if r.Error != nil {
				got = *r.Error
			}
			if got != tt.err {
				t.Errorf("the exception is %+v, want %+v", got, tt.err)
			}
			if !strings.Contains(r.stderr, tt.stderr) || tt.absent != "" && strings.Contains(r.stderr, tt.absent) {
				t.Errorf("standard error %q", r.stderr)
			}
			if r := p.exec(t, "kept = None\nprint('on')"); r.err != nil || r.stdout != "on\n" || r.Error != nil {
				t.Errorf("afterwards: %q, %v", r.stdout, r.err)
			}
		})
	}
}

func TestScripts(t *testing.T) {
	const code = "\ufeffimport atexit, os, sys, threading, time\n" +
		"from concurrent.futures import ThreadPoolExecutor\n" +
		"print(os.path.relpath(__file__), os.path.exists(__file__), sys.argv, __name__)\n" +
		"atexit.register(print, 'exit function')\n" +
		"ThreadPoolExecutor(1).submit(print, 'executor').result()\n" +
		"threading.Thread(target=lambda: (time.sleep(0.05), print('thread'))).start()\n"
	p := launch(t)
	r := p.run(t, wire.Exec{Code: code, Filename: "a.py", Script: true}, nil)
	if want := "a.py True ['a.py'] __main__\nexecutor\nthread\nexit function\n"; r.err != nil || r.Status != wire.StatusOK || r.stdout != want {
		t.Errorf("%v, status %s: %q, want %q (%s)", r.err, r.Status, r.stdout, want, r.stderr)
	}
	r = p.exec(t, "os.path.exists('a.py'), sys.argv == ['a.py'], ThreadPoolExecutor(1).submit(int).result()")
	if want := "(False, False, 0)\n"; r.err != nil || r.stdout != want {
		t.Errorf("%v: %q, want %q", r.err, r.stdout, want)
	}
	r = p.run(t, wire.Exec{Code: "import atexit, sys\natexit.register(print, 'bye')\nsys.exit(4)", Filename: "b.py", Script: true}, nil)
	if r.err != nil || r.Status != wire.StatusExit || r.ExitCode != 4 || r.stdout != "bye\n" {
		t.Errorf("%v, status %s, %d: %q", r.err, r.Status, r.ExitCode, r.stdout)
	}
}
