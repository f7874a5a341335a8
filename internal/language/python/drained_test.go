//go:build unix

package python_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/wire"
)

// TestDrained: an execution whose output is all in its last frame needs no nonce, and
// any other one does. All of the output has arrived with its end, in order.
func TestDrained(t *testing.T) {
	slow := "import sys\nclass Slow:\n    def __repr__(self):\n        print('first')\n        return 'then'\n"
	tests := []struct {
		name, before, code string
		stdout, stderr     string
		drained            bool
	}{
		{name: "nothing", code: "x = 1", drained: true},
		{name: "last expression prints", code: "x = 1\nprint(x + 1)", stdout: "2\n", drained: true},
		{name: "without a newline", code: "print('a', end='')", stdout: "a", drained: true},
		{name: "many arguments", code: "print('a', 'b', 'c', sep='\\n')", stdout: "a\nb\nc\n", drained: true},
		{name: "value", code: "'ä\\U0001f600\\x00'", stdout: "'ä\U0001f600\\x00'\n", drained: true},
		{name: "awaited", code: "async def f(): return 5\nprint(await f())", stdout: "5\n", drained: true},
		{name: "awaited value", code: "async def f(): return 5\nawait f()", stdout: "5\n", drained: true},
		{name: "bytes that are no text", code: "import sys\nsys.stdout.buffer.write(b'\\xff') and None", stdout: "\xff"},
		{name: "too long", code: "print('x' * 9000)", stdout: strings.Repeat("x", 9000) + "\n"},
		{name: "twice", code: "print(1)\nprint(2)", stdout: "1\n2\n"},
		{name: "in an argument", code: "print(print('a'))", stdout: "a\nNone\n"},
		{name: "in a repr", before: slow, code: "Slow()", stdout: "first\nthen\n"},
		{name: "not the last thing", code: "[print(i) for i in range(2)] and None", stdout: "0\n1\n"},
		{name: "statement", code: "if True: print(1)", stdout: "1\n"},
		{name: "function", before: "def f():\n    print(1)\n    return 2", code: "f()", stdout: "1\n2\n"},
		{name: "printed by a generator", before: "def g():\n    yield 'a'\n    print('b')", code: "list(map(print, g())) and None", stdout: "a\nb\n"},
		{name: "text that runs code", before: slow, code: "print('a', Slow())", stdout: "a first\nthen\n"},
		{name: "much", code: "print(*[''] * 60000, sep='\\n')", stdout: strings.Repeat("\n", 60000)},
		{name: "large integer", code: "print(10 ** 2000)", stdout: "1" + strings.Repeat("0", 2000) + "\n"},
		{name: "another print", before: "kept = print\ndef print(*a): kept('mine', *a)", code: "print(1)", stdout: "mine 1\n"},
		{name: "no print", before: "import builtins\nkept = builtins.print\ndel builtins.print", code: "print(1)", stderr: "NameError: name 'print' is not defined"},
		{name: "print and more", code: "print(1) or [1]", stdout: "1\n[1]\n"},
		{name: "to another file", code: "print('e', file=__import__('sys').stderr)", stderr: "e\n"},
		{name: "wrapped", before: "import io, sys", code: "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, 'latin-1', line_buffering=True)\nprint('ä')", stdout: "\xe4\n"},
		{name: "handler", before: "import signal\nsignal.signal(signal.SIGUSR1, lambda *a: print('h'))", code: "signal.raise_signal(signal.SIGUSR1)\nprint('a')", stdout: "h\na\n"},
		{name: "error after it", code: "print('a') + 1", stdout: "a\n", stderr: "TypeError"},
		{name: "standard error", code: "import sys\nprint('e', file=sys.stderr)", stderr: "e\n"},
		{name: "both", code: "import sys\nprint('e', file=sys.stderr)\nprint('o')", stdout: "o\n", stderr: "e\n"},
		{name: "hint after it", before: "async def f(): pass", code: "f()\nprint(1)", stdout: "1\n", stderr: "f"},
		{name: "finalizer", before: "class Held:\n    def __del__(self): print('gone')\n    def __str__(self): return 'held'", code: "print(Held())", stdout: "held\ngone\n"},
		{name: "the next one", before: "print(1)\nprint(2)", code: "print(3)", stdout: "3\n", drained: true},
		{name: "descriptor", code: "import os\nos.write(1, b'd') and None", stdout: "d"},
		{name: "descriptor from the stream", before: "import sys\nfd = sys.stdout.fileno()", code: "print(1)", stdout: "1\n"},
		{name: "bare thread", before: "import _thread\nlock = _thread.allocate_lock()\nlock.acquire()\nclass T:\n    def __str__(self):\n        lock.release()\n        return 't'",
			code: "_thread.start_new_thread(print, (T(),)) and lock.acquire() and [None for _ in iter(_thread._count, 0)].clear()", stdout: "t\n"},
		{name: "thread", before: "import threading\nstop = threading.Event()\nthreading.Thread(target=stop.wait).start()", code: "print(1)", stdout: "1\n"},
	}
	several := []struct{ name, code, stdout string }{
		{"child", "import subprocess\nsubprocess.run(['echo', 'c']) and None", "c\n"},
		{"shell", "import os\nos.system('echo c');", "c\n"},
		{"gathered output and a shell", "import os\nfor i in range(300): print(i)\nos.system('echo c');", numbers(300) + "c\n"},
		{"spawned", "import os\npid = os.posix_spawn('/bin/echo', ['echo', 'c'], {})\nos.waitpid(pid, 0) and None", "c\n"},
		{"forked", "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('parent' if pid else 'child')", "child\nparent\n"},
		{"descriptor", "import os\nos.write(1, b'd\\n') and None", "d\n"},
		{"descriptor by another name", "import os as o\no.write(1, b'd\\n') and None", "d\n"},
		{"closed by another name", "import os as o\nprint('d')\no.close(1)", "d\n"},
		{"file of the descriptor", "open(file=1, mode='w', closefd=False).write('d\\n') and None", "d\n"},
		{"file of the device", "f = open('/dev/stdout', 'w')\nf.write('f')\nf.flush()", "f"},
		{"C", "import ctypes\nctypes.CDLL(None).puts(b'c') and None", "c\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if skipped(t, tt.before+tt.code) {
				t.Skip("a single process has no other threads")
			}
			p := launch(t)
			if r := p.exec(t, tt.before); r.err != nil || r.Status != wire.StatusOK {
				t.Fatal(r.err, r.stderr)
			}
			r := p.exec(t, tt.code)
			if r.err != nil || r.stdout != tt.stdout || !strings.Contains(r.stderr, tt.stderr) || r.Drained != tt.drained || r.Done.Stdout != "" {
				t.Errorf("%v; stdout %q, want %q; stderr %q, want %q in it; drained %v, want %v; left %q",
					r.err, r.stdout, tt.stdout, r.stderr, tt.stderr, r.Drained, tt.drained, r.Done.Stdout)
			}
		})
	}
	if inOneProcess(t) {
		return
	}
	for _, tt := range several {
		t.Run(tt.name, func(t *testing.T) {
			p := launch(t)
			for range 2 { // the second finds what the first has left
				if r := p.exec(t, tt.code); r.err != nil || r.stdout != tt.stdout || r.Drained {
					t.Errorf("%v; stdout %q, want %q; stderr %q; drained %v", r.err, r.stdout, tt.stdout, r.stderr, r.Drained)
				}
			}
			if r := p.exec(t, "print('on')"); r.err != nil || r.stdout != "on\n" {
				t.Errorf("afterwards: %v; stdout %q, stderr %q", r.err, r.stdout, r.stderr)
			}
		})
	}
}

// numbers returns the numbers below n, one on each line.
func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}
