//go:build unix

package python_test

import (
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/wire"
)

// TestPrograms runs programs one after the other in one session, as an agent
// would: whatever one of them does, the next must work.
func TestPrograms(t *testing.T) {
	programs := []struct {
		name, code     string
		stdout, stderr string // stderr: what it must contain
		status         wire.Status
		exit           int
		script         bool
	}{
		{name: "print", code: `print(1+1)`, stdout: "2\n"},
		{name: "echo", code: `1+1`, stdout: "2\n"},
		{name: "echo nothing", code: `None`},
		{name: "echo silenced", code: `1+1;`},
		{name: "echo silenced in parentheses", code: "(1+\n1) ; # not shown"},
		{name: "semicolon in a string", code: `"a;b"`, stdout: "'a;b'\n"},
		{name: "semicolon in a comment", code: `5 # a;b`, stdout: "5\n"},
		{name: "assignment", code: `x = 41`},
		{name: "persistent", code: `x + 1`, stdout: "42\n"},
		{name: "underscore", code: `_`, stdout: "42\n"},
		{name: "empty", code: ""},
		{name: "only a comment", code: "# nothing"},
		{name: "module name", code: `__name__`, stdout: "'__main__'\n"},
		{name: "exception", code: "def f():\n    return 1/0\nf()", status: wire.StatusError, exit: 1,
			stderr: "Traceback (most recent call last):\n  File \"<cell 14>\", line 3, in <module>\n    f()\n"},
		{name: "exception in a function", code: "f()", status: wire.StatusError, exit: 1, stderr: "\n  File \"<cell 14>\", line 2, in f\n    return 1/0\n"},
		{name: "still there", code: `f.__name__`, stdout: "'f'\n"},
		{name: "source", code: "import inspect\nprint(inspect.getsource(f))", stdout: "def f():\n    return 1/0\n\n"},
		{name: "class", code: "class Ab: x = 0\nclass A:\n    x = 1\n\n    def f(self): pass\ny = 2"},
		{name: "source of a class", code: "print(inspect.getsource(A), inspect.getsource(A.f))", stdout: "class A:\n    x = 1\n\n    def f(self): pass\n     def f(self): pass\n\n"},
		{name: "syntax error", code: "x = = 1", status: wire.StatusError, exit: 1, stderr: "SyntaxError: invalid syntax"},
		{name: "await", code: "async def g():\n    return 7\nawait g()", stdout: "7\n"},
		{name: "await before the last", code: "y = await g()\ny+1", stdout: "8\n"},
		{name: "exit", code: "import sys\nsys.exit(3)", status: wire.StatusExit, exit: 3},
		{name: "exit with a message", code: `sys.exit("bad")`, status: wire.StatusExit, exit: 1, stderr: "bad\n"},
		{name: "exit by name", code: `exit()`, status: wire.StatusExit},
		{name: "exit while awaiting", code: "async def q():\n    sys.exit(4)\nawait q()", status: wire.StatusExit, exit: 4},
		{name: "input", code: `input("name? ")`, status: wire.StatusError, exit: 1, stderr: "EOFError: input() cannot work here"},
		{name: "stdin is empty", code: `sys.stdin.read()`, stdout: "''\n"},
		{name: "base exception", code: "class B(BaseException): pass\nraise B('b')", status: wire.StatusError, exit: 1, stderr: "B: b\n"},
		{name: "own KeyboardInterrupt", code: "raise KeyboardInterrupt", status: wire.StatusError, exit: 1, stderr: "KeyboardInterrupt"},
		{name: "str that raises", code: "class S(Exception):\n    def __str__(self): 1/0\nraise S", status: wire.StatusError, exit: 1, stderr: "S: <"},
		{name: "repr that raises", code: "class R:\n    def __repr__(self): 1/0\nR()", status: wire.StatusError, exit: 1, stderr: "ZeroDivisionError"},
		{name: "recursion", code: "def r(): r()\nr()", status: wire.StatusError, exit: 1, stderr: "RecursionError"},
		{name: "surrogates", code: `print("\udc80ä")`, stdout: "\\udc80ä\n"},
		{name: "bytes", code: "sys.stdout.buffer.write(b'\\xff\\x00') and None", stdout: "\xff\x00"},
		{name: "closed stdout", code: "sys.stdout.close()"},
		{name: "after a closed stdout", code: `print("back")`, stdout: "back\n"},
		{name: "closed descriptor", code: "import os\nos.close(1)\nos.close(0)"},
		{name: "after a closed descriptor", code: `print("back")`, stdout: "back\n"},
		{name: "detached stdout", code: "sys.stdout.detach() and None"},
		{name: "after a detached stdout", code: `print("back")`, stdout: "back\n"},
		{name: "replaced stdout", code: "import io\nsys.stdout = io.StringIO()\nprint('lost')"},
		{name: "after a replaced stdout", code: `print("back")`, stdout: "back\n"},
		{name: "wrapped stdout", code: "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='latin-1')\nprint('wrapped')", stdout: "wrapped\n"},
		{name: "after a wrapped stdout", code: `print("back")`, stdout: "back\n"},
		{name: "replaced builtins", code: "import builtins\nkept = builtins.print, builtins.len, builtins.open\nbuiltins.print = builtins.len = builtins.open = None"},
		{name: "after replaced builtins", code: "builtins.print, builtins.len, builtins.open = kept\nprint(len('abc'))", stdout: "3\n"},
		{name: "modules gone", code: "saved = dict(sys.modules)\nsys.modules.clear()"},
		{name: "after modules gone", code: "saved['sys'].modules.update(saved)\n1", stdout: "1\n"},
		{name: "trace", code: "traced = []\nsys.settrace(lambda *a: traced.append(a[1]))"},
		{name: "after trace", code: `2`, stdout: "2\n"},
		{name: "recursion limit", code: "sys.setrecursionlimit(60)"},
		{name: "after the recursion limit", code: `3`, stdout: "3\n"},
		{name: "child output", code: "import subprocess\nprint('a')\nsubprocess.run(['echo', 'b'])\nprint('c')", stdout: "a\nb\nc\n"},
		{name: "os.system", code: `os.system("echo sys; echo err >&2");`, stdout: "sys\n", stderr: "err\n"},
		{name: "fork that returns", code: "pid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('parent' if pid else 'child')", stdout: "child\nparent\n"},
		{name: "fork that raises", code: "pid = os.fork()\nif pid: print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\nelse: 1/0", stdout: "1\n", stderr: "ZeroDivisionError"},
		{name: "thread", code: "import threading\nt = threading.Thread(target=print, args=('t',))\nt.start(); t.join()", stdout: "t\n"},
		{name: "pickle", code: "import pickle\nclass P: pass\ntype(pickle.loads(pickle.dumps(P()))) is P", stdout: "True\n"},
		{name: "dataclass", code: "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass D:\n    a: int\nD(1)", stdout: "D(a=1)\n"},
		{name: "future is forgotten", code: "def h(a: int): pass\nh.__annotations__['a']", stdout: "<class 'int'>\n"},
		{name: "null byte", code: "x = '\x00'", status: wire.StatusError, exit: 1, stderr: "null bytes"},
		{name: "asyncio.run", code: "import asyncio\nasync def main():\n    await asyncio.sleep(0.001)\n    return 'ran'\nasyncio.run(main())", stdout: "'ran'\n"},
		{name: "asyncio await", code: "await asyncio.sleep(0.001, 'slept')", stdout: "'slept'\n"},
		{name: "asyncio.run while awaiting", code: "await asyncio.sleep(0)\nasyncio.run(main())", stdout: "'ran'\n"},
		{name: "run_until_complete", code: "asyncio.get_event_loop().run_until_complete(main())", stdout: "'ran'\n"},
		{name: "own loop", code: "loop = asyncio.new_event_loop()\nprint(loop.run_until_complete(main()))\nloop.close()", stdout: "ran\n"},
		{name: "create_task", code: "task = asyncio.create_task(main())\ntask.done()", stdout: "False\n"},
		{name: "task went on", code: "await task", stdout: "'ran'\n"},
		{name: "gather", code: "await asyncio.gather(main(), main())", stdout: "['ran', 'ran']\n"},
		{name: "to_thread", code: "await asyncio.to_thread(lambda: 5) if hasattr(asyncio, 'to_thread') else 5", stdout: "5\n"},
		{name: "subprocess in asyncio", code: "p = await asyncio.create_subprocess_exec('echo', 'sub')\nawait p.wait()", stdout: "sub\n0\n"},
		{name: "exception while awaiting", code: "async def bad():\n    raise ValueError('x')\nawait bad()", status: wire.StatusError, exit: 1, stderr: "line 3, in <module>\n    await bad()\n  File"},
		{name: "exit in asyncio.run", code: "async def q():\n    sys.exit(5)\nasyncio.run(q())", status: wire.StatusExit, exit: 5},
		{name: "loop closed", code: "asyncio.get_event_loop().close()"},
		{name: "after the loop closed", code: "await main()", stdout: "'ran'\n"},
		{name: "cancelled", code: "asyncio.current_task().cancel()\nawait asyncio.sleep(1)", status: wire.StatusError, exit: 1, stderr: "CancelledError"},
		{name: "chained", code: "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise ValueError('v') from e", status: wire.StatusError, exit: 1, stderr: "The above exception was the direct cause"},
		{name: "process pool", code: "from concurrent.futures import ProcessPoolExecutor\nimport multiprocessing\ndef square(x): return x * x\nif 'fork' in multiprocessing.get_all_start_methods():\n    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context('fork')) as pool: print(list(pool.map(square, range(4))))", stdout: "[0, 1, 4, 9]\n"},
		{name: "memory", code: "'x' * 10**15", status: wire.StatusError, exit: 1, stderr: "MemoryError"},
		{name: "exception group", code: "if sys.version_info >= (3, 11):\n    raise ExceptionGroup('g', [ValueError('inner')])\nraise ValueError('inner')", status: wire.StatusError, exit: 1, stderr: "ValueError: inner"},
		{name: "generator exit", code: "raise GeneratorExit", status: wire.StatusError, exit: 1, stderr: "GeneratorExit"},
		{name: "stop iteration", code: "raise StopIteration(3)", status: wire.StatusError, exit: 1, stderr: "StopIteration"},
		{name: "own excepthook", code: "sys.excepthook = lambda t, v, tb: print('hook', v)\n1/0", status: wire.StatusError, exit: 1, stdout: "hook division by zero\n"},
		{name: "own displayhook", code: "sys.excepthook = sys.__excepthook__\nkept = sys.displayhook\nsys.displayhook = lambda v: print('<', v, '>')\n5", stdout: "< 5 >\n"},
		{name: "no displayhook", code: "sys.displayhook = kept;"},
		{name: "script", code: "if __name__ == '__main__': print('main')\n1+1", script: true, stdout: "main\n"},
		{name: "after a script", code: "__name__", stdout: "'__main__'\n"},
		{name: "last", code: "print('end')", stdout: "end\n"},
	}
	p := launch(t)
	for _, prog := range programs {
		if skipped(t, prog.code) {
			continue
		}
		t.Run(prog.name, func(t *testing.T) {
			if prog.status == "" {
				prog.status = wire.StatusOK
			}
			r := p.run(t, wire.Exec{Code: prog.code, Script: prog.script}, nil)
			if r.err != nil {
				t.Fatal(r.err)
			}
			if r.Status != prog.status || r.ExitCode != prog.exit {
				t.Errorf("status %s, exit code %d; want %s, %d", r.Status, r.ExitCode, prog.status, prog.exit)
			}
			if r.stdout != prog.stdout {
				t.Errorf("stdout %q, want %q", r.stdout, prog.stdout)
			}
			if !strings.Contains(r.stderr, prog.stderr) || prog.stderr == "" && r.stderr != "" {
				t.Errorf("stderr %q, want %q in it", r.stderr, prog.stderr)
			}
			if strings.Contains(r.stderr, "sallyport_guest") {
				t.Errorf("our own frames are shown: %s", r.stderr)
			}
		})
	}
}

// TestErrorBeginsALine: a report is not glued to a progress bar.
func TestErrorBeginsALine(t *testing.T) {
	const bar = "import sys; sys.stderr.write('\\r50%'); "
	p := launch(t)
	for _, prog := range []struct{ code, begins string }{
		{bar + "1/0", "\r50%\nTraceback (most recent call last):\n"},
		{bar + "sys.exit('bad')", "\r50%\nbad\n"},
		{bar + "sys.stderr.write('\\n'); 1/0", "\r50%\nTraceback (most recent call last):\n"},
		{bar + "sys.stderr.close(); 1/0", "\r50%\nTraceback (most recent call last):\n"},
		{bar + "sys.stderr = None; 1/0", "\r50%Traceback (most recent call last):\n"},
		{"1/0", "Traceback (most recent call last):\n"},
	} {
		if r := p.run(t, wire.Exec{Code: prog.code}, nil); r.err != nil || !strings.HasPrefix(r.stderr, prog.begins) {
			t.Errorf("%s: got %q, %v, want %q", prog.code, r.stderr, r.err, prog.begins)
		}
	}
}

// TestEchoBeginsALine: the last value is not glued to what was printed before it.
func TestEchoBeginsALine(t *testing.T) {
	p := launch(t)
	for _, prog := range []struct{ name, code, stdout string }{
		{"echo in a line of its own", "print('a', end='')\n42", "a\n42\n"},
		{"echo after a line", "print('a')\n42", "a\n42\n"},
		{"echo nothing within a line", "print('a', end='')\nNone", "a"},
		{"echo in the next execution", "42", "42\n"},
		{"echo after bytes", "import sys\nsys.stdout.write('a'); sys.stdout.flush(); sys.stdout.buffer.write(b'b') and None\n42", "ab\n42\n"},
		{"echo after nothing", "sys.stdout.write(''); sys.stdout.buffer.write(b'')\n42", "42\n"},
		{"echo after a carriage return", "print('50%', end='\\r')\n42", "50%\r\n42\n"},
		{"echo after many lines", "for i in range(300): print(flush=True)\nprint('a', end='', flush=True)\n42", strings.Repeat("\n", 300) + "a\n42\n"},
		{"display within a line", "print('a', end='')\ndisplay(1)", "a\n1\n"},
		{"echo into another stream", "import contextlib, io\nprint('a', end='')\nwith contextlib.redirect_stdout(io.StringIO()) as f: sys.displayhook(1)\nf.getvalue()", "a\n'1\\n'\n"},
	} {
		if skipped(t, prog.code) {
			continue
		}
		if r := p.run(t, wire.Exec{Code: prog.code}, nil); r.err != nil || r.stdout != prog.stdout || r.stderr != "" {
			t.Errorf("%s: got %q and %q, %v, want %q", prog.name, r.stdout, r.stderr, r.err, prog.stdout)
		}
	}
}
