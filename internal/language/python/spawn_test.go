//go:build unix

package python_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/wire"
)

// started is the beginning of a session that starts processes: run calls a
// function in a pool of one process.
const started = "import multiprocessing as mp, os, sys\n" +
	"from concurrent.futures import ProcessPoolExecutor\n" +
	"ctx = mp.get_context(%q)\n" +
	"def run(f, *args):\n    with ctx.Pool(1) as p: return p.map(f, args)\n"

// TestNewProcesses: a process that does not begin as a copy of the session has
// what the session's cells have defined.
func TestNewProcesses(t *testing.T) {
	cells := []struct{ name, code, stdout string }{
		{"pool", "def tw(x): return x * 2\nctx.Pool(2).map(tw, range(4))", "[0, 2, 4, 6]\n"},
		{"process", "def put(q, x): q.put(x)\nq = ctx.Queue()\np = ctx.Process(target=put, args=(q, 7)); p.start(); print(q.get()); p.join(); p.exitcode", "7\n0\n"},
		{"process of its own class", "class W(ctx.Process):\n    def run(self): sys.exit(4)\nw = W(); w.start(); w.join(); w.exitcode", "4\n"},
		{"executor", "with ProcessPoolExecutor(1, mp_context=ctx) as e: print(list(e.map(tw, [1, 2])))", "[2, 4]\n"},
		{"the usual executor", "with ProcessPoolExecutor(1) as e: print(list(e.map(tw, [1, 2])))", "[2, 4]\n"},
		{"executor of asyncio", "import asyncio\nwith ProcessPoolExecutor(1, mp_context=ctx) as e: print(await asyncio.get_running_loop().run_in_executor(e, tw, 4))", "8\n"},
		{"manager", "with ctx.Manager() as m:\n    d = m.dict(); p = ctx.Process(target=d.__setitem__, args=(1, 2)); p.start(); p.join(); print(dict(d))", "{1: 2}\n"},
		{"a global queue", "gq = ctx.Queue()\ndef putg(x): gq.put(x)\np = ctx.Process(target=putg, args=(5,)); p.start(); print(gq.get()); p.join()", "5\n"},
		{"a queue that is an argument too", "def both(q): gq.put(1); q.put(2)\np = ctx.Process(target=both, args=(gq,)); p.start(); print(sorted([gq.get(), gq.get()])); p.join(); p.exitcode", "[1, 2]\n0\n"},
		{"a process of the process", "def deeper(x): return run(tw, x)\nwith ProcessPoolExecutor(1, mp_context=ctx) as e: print(e.submit(deeper, 3).result())", "[6]\n"},
		{"values", "K = 3; A, *B = 1, 2, 3; C: int = 4\nfor D in range(6): pass\nD += 1\nDATA = {'k': [K]}\ndef v(x): return K, A, B, C, D, DATA\nrun(v, 1)", "[(3, 1, [2, 3], 4, 6, {'k': [3]})]\n"},
		{"a value that has changed", "K = 30; DATA['n'] = 1\nrun(v, 1)", "[(30, 1, [2, 3], 4, 6, {'k': [3], 'n': 1})]\n"},
		{"imports", "import xml.dom.minidom, os.path as osp\nfrom math import *\ndef i(x): return xml.dom.minidom.parseString('<a/>').documentElement.tagName, osp.basename('/b'), floor(x)\nrun(i, 1.5)", "[('a', 'b', 1)]\n"},
		{"other functions", "sq = lambda x: x * x\ndef make(n):\n    def inner(x): return x + n\n    return inner\nadd = make(5)\ndef even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)\ndef gen(n): yield from range(n)\nasync def co(x): return x\n" +
			"def others(x): return sq(x), add(x), even(x), list(gen(x)), asyncio.run(co(x))\nrun(others, 2)", "[(4, 7, True, [0, 1], 2)]\n"},
		{"decorators", "import functools\ndef deco(f):\n    @functools.wraps(f)\n    def w(*a): return 'w', f(*a)\n    return w\n@deco\ndef d1(x): return x + K\n@functools.lru_cache\ndef d2(x): return x\ndef d3(x): return x\nd3 = deco(d3)\nrun(d1, 1), run(d2, 1), run(d3, 1)", "([('w', 31)], [1], [('w', 1)])\n"},
		{"a registry", "REG = {}\ndef register(f): REG[f.__name__] = f; return f\n@register\ndef r1(x): return sorted(REG)\n@register\ndef r2(x): return REG['r1'](x)\nrun(r2, 1)", "[['r1', 'r2']]\n"},
		{"primitives", "import threading, contextvars\nlock = threading.RLock(); cv = contextvars.ContextVar('cv', default=3)\ndef prims(x):\n    with lock: return cv.get()\nrun(prims, 1)", "[3]\n"},
		{"classes", "import abc, enum, collections, typing\nfrom dataclasses import dataclass\nclass Base(abc.ABC):\n    size = K\n    def __init__(self, v): self.v = v\n    def twice(self): return type(self)(self.v * 2)\n    @staticmethod\n    def st(x): return x\n    @classmethod\n    def cm(cls, x): return cls.__name__\n    class In: pass\n" +
			"class Sub(Base):\n    def twice(self): return super().twice()\n@dataclass\nclass P:\n    x: int = K\nclass Color(enum.Enum): RED = 1\nE = enum.Enum('E', 'A')\nPt = collections.namedtuple('Pt', 'x')\nclass NT(typing.NamedTuple):\n    a: int\nclass Err(Exception): pass\n" +
			"def same(x): return x\nsent = [Sub(1), P(), Color.RED, E.A, Pt(1), NT(1), Err('e'), Base.In(), Sub]\nback = run(same, *sent)\n[type(b) is type(s) for s, b in zip(sent, back)], back[2] is Color.RED, run(Base.st, 1), run(Sub.cm, 1), run(Sub(3).twice)", "([True, True, True, True, True, True, True, True, True], True, [1], ['Sub'], [])\n"},
		{"methods", "def twice(c): return c.twice()\nrun(twice, Sub(4))[0].v", "8\n"},
		{"an exception", "def boom(x): raise Err('boom')\ntry: run(boom, 1)\nexcept Err as e: print(e)", "boom\n"},
		{"an instance", "inst = Sub(9)\ndef uses(x, y=inst): return inst.v, y.v\nrun(uses, 1)", "[(9, 9)]\n"},
		{"within if and try", "if True:\n    try: \n        def within(x): return x\n    except Exception: pass\nrun(within, 1)", "[1]\n"},
		{"exec", "exec('def ex(x, k=1): return x + k + K')\nrun(ex, 1)", "[32]\n"},
		{"a builtin's name", "def uses_list(x): return list(x)\ndef list(x): return 'mine'\nprint(run(uses_list, 1))\ndel list", "['mine']\n"},
		{"__main__", "def imports(x):\n    import __main__\n    from __main__ import tw\n    return __main__.K, tw(x), __name__\nrun(imports, 1)", "[(30, 2, '__main__')]\n"},
		{"guarded", "if __name__ == '__main__':\n    def guarded(x): return x\n    print('once', run(guarded, 1))", "once [1]\n"},
		{"defined again", "def tw(x): return x * 3\nrun(tw, 1)", "[3]\n"},
		{"a definition that was not reached", "try:\n    1/0\n    def tw(x): return 'never'\nexcept ZeroDivisionError: pass\nif False:\n    def tw(x): return 'never'\nrun(tw, 1)", "[3]\n"},
		{"long chains", "exec('\\n'.join('def f%d(x): return f%d(x)' % (i, i + 1) for i in range(500)) + '\\ndef f500(x): return x')\nrun(f0, 1)", "[1]\n"},
		{"descriptors", "def kept(x): return [fd for fd in os.listdir('/proc/self/fd') if fd in ('700', '701', '702', '703', '704', '705')]\nrun(kept, 1) if os.path.exists('/proc/self/fd') else [[]]", "[[]]\n"},
		{"source", "import inspect\ndef src(x): return inspect.getsource(tw)\nrun(src, 1)", "['def tw(x): return x * 3\\n']\n"},
		{"__file__", "def file(x): return __file__\nos.path.dirname(__file__) == os.getcwd() and run(file, 1) == [__file__], open(__file__).read()[:8], sorted(os.listdir('.'))", "(True, 'def file', ['.cell.py'])\n"},
		{"source of a class", "print(inspect.getsource(Color))", "class Color(enum.Enum): RED = 1\n\n"},
		{"interpreters", "if sys.version_info >= (3, 14):\n    from concurrent.futures import InterpreterPoolExecutor\n    with InterpreterPoolExecutor(1) as e: print(list(e.map(within, [3])))\nelse: print([3])", "[3]\n"},
		{"nothing is left", "os.listdir('.')", "[]\n"},
	}
	for _, method := range []string{"spawn", "forkserver"} {
		t.Run(method, func(t *testing.T) {
			p := launch(t)
			if r := p.exec(t, fmt.Sprintf(started, method)); r.err != nil || r.stderr != "" {
				t.Fatal(r.err, r.stderr)
			}
			for _, c := range cells {
				r := p.exec(t, c.code)
				if r.err != nil || r.stdout != c.stdout || r.stderr != "" {
					t.Errorf("%s: %v: %q, want %q (%s)", c.name, r.err, r.stdout, c.stdout, r.stderr)
				}
				if len(r.Artifacts) != 0 || r.Background.Children != 0 {
					t.Errorf("%s: artifacts %v, background %+v, want none", c.name, r.Artifacts, r.Background)
				}
			}
		})
	}
}

// TestProcessesThatFail: what a new process cannot have ends in an exception,
// and not at the time limit.
func TestProcessesThatFail(t *testing.T) {
	tests := []struct {
		name, code     string
		stderr, failed string // stderr: what it must contain
	}{
		{"a class of no cell", "exec('class Y: pass')\ndef f(x): return 1\nrun(f, Y())", "ImportError: this process does not have Y: ", "RuntimeError"},
		{"executor, a class of no cell", "exec('class Y: pass')\ndef f(x): return 1\nwith ProcessPoolExecutor(1, mp_context=ctx) as e: e.submit(f, Y()).result()", "ImportError: this process does not have Y: ", "concurrent.futures.process.BrokenProcessPool"},
		{"a value that stays here", "h = open(os.devnull)\ndef f(x): return h.name\nrun(f, 1)", "Hint: h exists here, but not in a new process: ", "NameError"},
		{"a value that is too large", "big = b'x' * (65 << 20)\ndef f(x): return len(big)\nrun(f, 1)", "values of more than 64 MiB", "NameError"},
		{"a definition that fails there", "def d(f):\n    open(os.path.join(os.getcwd(), 'once'), 'x').close(); return f\n@d\ndef f(x): return x\nrun(f, 1)", "ImportError: f cannot be made in this process: FileExistsError: ", "RuntimeError"},
		{"initializer", "def bad(): raise ValueError('bad')\nwith ctx.Pool(1, initializer=bad) as p: p.map(len, ['a'])", "ValueError: bad\n", "RuntimeError"},
		{"imap", "def bad(): raise ValueError('bad')\nwith ctx.Pool(1, initializer=bad) as p: list(p.imap(len, ['a', 'b']))", "ValueError: bad\n", "RuntimeError"},
		{"fork, defined later", "p = mp.get_context('fork').Pool(1)\ndef f(x): return x\np.map(f, [1])", "Can't get attribute 'f'|has no attribute 'f'", "RuntimeError"},
		{"defined later", "p = ctx.Pool(1)\np.map(len, ['a'])\ndef f(x): return x\np.map(f, [1])", "Can't get attribute 'f'|has no attribute 'f'", "RuntimeError"},
		{"lambda", "run(lambda x: x, 1)", "lambda", "_pickle.PicklingError"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := launch(t)
			r := p.exec(t, fmt.Sprintf(started, "spawn")+tt.code)
			if r.err != nil || r.Error == nil || r.Error.Type != tt.failed {
				t.Errorf("%v: ended with %+v, want %s", r.err, r.Error, tt.failed)
			}
			said := false
			for _, s := range strings.Split(tt.stderr, "|") {
				said = said || strings.Contains(r.stderr, s)
			}
			if !said {
				t.Errorf("stderr %q, want %q", r.stderr, tt.stderr)
			}
			if r := p.exec(t, "1"); r.err != nil || r.stdout != "1\n" {
				t.Errorf("afterwards: %v, %q", r.err, r.stdout)
			}
		})
	}
}

// TestScriptsInNewProcesses: processes that a script starts run its file, as
// everywhere.
func TestScriptsInNewProcesses(t *testing.T) {
	const both = "if __name__ == '__main__':\n    for m in ('spawn', 'forkserver'):\n        with mp.get_context(m).Pool(1) as p: print(p.map(f, [1]))\n"
	p := launch(t)
	for _, s := range []struct {
		name, file, code, stdout, stderr string
		status                           wire.Status
	}{
		{name: "plain", file: "dir/x.py", code: "import multiprocessing as mp\nK = 5\ndef f(x): return x * K, __name__\n" + both, stdout: "[(5, '__mp_main__')]\n[(5, '__mp_main__')]\n"},
		{name: "another of that name", file: "x.py", code: "import multiprocessing as mp, os\ndef f(x): return os.path.relpath(__file__)\n" + both, stdout: "['x.py']\n['x.py']\n"},
		{name: "source of a class", file: "x.py", code: "import inspect\nclass C: pass\nprint(inspect.getsource(C))", stdout: "class C: pass\n\n"},
		{name: "no guard", file: "y.py", code: "import multiprocessing as mp\ndef f(x): return x\nmp.get_context('spawn').Pool(2).map(f, [1])", stderr: "An attempt has been made to start a new process before", status: wire.StatusError},
		{name: "no guard, process", file: "y.py", code: "import multiprocessing as mp\np = mp.get_context('spawn').Process(target=print)\np.start(); p.join(); print(p.exitcode)", stdout: "1\n", stderr: "An attempt has been made to start a new process before"},
		{name: "from standard input", file: "<stdin>", code: "import multiprocessing as mp\ndef f(x): return x * 7\nwith mp.get_context('spawn').Pool(1) as p: print(p.map(f, [1]), open(__file__).read()[:6])", stdout: "[7] import\n"},
		{name: "nothing is left", file: "z.py", code: "import os\nprint(os.listdir('.'))\nopen('x.py', 'w').write('mine = 1')", stdout: "[]\n"},
		{name: "a file of that name", file: "x.py", code: "import multiprocessing as mp, os\ndef f(x): return os.path.relpath(__file__)\n" + both, stdout: "['.sallyport-x.py']\n['.sallyport-x.py']\n"},
		{name: "it has stayed", file: "z.py", code: "import os\nprint(os.listdir('.'), open('x.py').read())", stdout: "['x.py'] mine = 1\n"},
	} {
		r := p.run(t, wire.Exec{Code: s.code, Filename: s.file, Script: true}, nil)
		if s.status == "" {
			s.status = wire.StatusOK
		}
		if r.err != nil || r.Status != s.status || r.stdout != s.stdout || !strings.Contains(r.stderr, s.stderr) || s.stderr == "" && r.stderr != "" {
			t.Errorf("%s: %v, status %s: %q, want %q (%s)", s.name, r.err, r.Status, r.stdout, s.stdout, r.stderr)
		}
		if len(r.Artifacts) != 0 && s.name != "nothing is left" {
			t.Errorf("%s: artifacts %v", s.name, r.Artifacts)
		}
	}
	r := p.exec(t, "print(f(1))\nwith mp.get_context('spawn').Pool(1) as p: print(p.map(f, [1]))")
	if want := ".cell.py\n['.cell.py']\n"; r.err != nil || r.stdout != want {
		t.Errorf("a cell afterwards: %v: %q, want %q (%s)", r.err, r.stdout, want, r.stderr)
	}
}
