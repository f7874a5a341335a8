//go:build unix

package python_test

import (
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/wire"
)

// saves is a function to save: cells that define it and what it needs, the name
// to save, code for a later session, and what that prints.
type saves struct {
	name   string
	cells  []string
	save   string
	use    string
	want   string
	source string // part of what is kept
}

func TestSavedTools(t *testing.T) {
	tests := []saves{
		{"plain", []string{"def f(x, y=2):\n    '''Adds.'''\n    return x + y"}, "f", "f(1)", "3\n", ""},
		{"typed long ago", []string{"def f(): return 5", "a = 1", "b = 2", "c = 3"}, "f", "f()", "5\n", ""},
		{"with an import", []string{"import json, os.path as p\nfrom math import sqrt as root, pi", "def f(): return json.dumps([root(16), p.join('a', 'b')]), round(pi, 2)"}, "f", "f()", "('[4.0, \"a/b\"]', 3.14)\n", "from math import sqrt as root"},
		{"with a dotted import", []string{"import xml.dom\nimport xml.etree.ElementTree", "def f(): return xml.etree.ElementTree.fromstring('<a>b</a>').text"}, "f", "f()", "'b'\n", "import xml.etree.ElementTree"},
		{"star import", []string{"from math import *", "def f(): return floor(2.5)"}, "f", "f()", "2\n", "from math import floor"},
		{"an import of its own", []string{"def f():\n    import math\n    return math.floor(1.5)"}, "f", "f()", "1\n", ""},
		{"plain values", []string{"LIMITS = {'a': [1, (2,), {3}, None, True, 1.5, b'x', 2**70, frozenset(), set()]}\nNAN = float('nan')\nNAME = 'q\"\\n\\u20ac'", "def f(): return LIMITS, NAN, NAME"}, "f", "f()",
			"({'a': [1, (2,), {3}, None, True, 1.5, b'x', 1180591620717411303424, frozenset(), set()]}, nan, 'q\"\\n€')\n", ""},
		{"the value of now", []string{"K = 1\ndef f(x=K, *, y=K + 1): return x, y, K", "K = 5"}, "f", "f()", "(1, 2, 5)\n", "def f(x=1, *, y=2)"},
		{"special values", []string{"import re, collections, pathlib\nfrom decimal import Decimal\nWORD = re.compile(r'\\w+', re.I)\nPoint = collections.namedtuple('Point', 'x y', defaults=[0])\nWHERE = pathlib.Path('/tmp')\nD = Decimal('1.50')",
			"def f(): return WORD.findall('a b'), Point(1), str(WHERE), D, WORD.flags & re.I == re.I"}, "f", "f()", "(['a', 'b'], Point(x=1, y=0), '/tmp', Decimal('1.50'), True)\n", ""},
		{"names of types", []string{"from typing import Callable, Dict, Optional, TypeVar\nT = TypeVar('T')\nRows = Dict[str, Optional[int]]\nEither = Optional[Rows]", "def f(x: Rows, g: Callable[[T], T] = None) -> Either: return x"}, "f", "f({'a': 1})", "{'a': 1}\n", "Rows = Dict[str, Optional[int]]"},
		{"dates", []string{"import datetime as dt\nfrom datetime import timedelta\nDAY = timedelta(days=1)\nSTART = dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc)", "def f(n): return (START + n * DAY).isoformat()"}, "f", "f(2)", "'2020-01-03T00:00:00+00:00'\n", ""},
		{"attributes", []string{"def f():\n    f.calls += 1\n    return f.calls, f.names\nf.calls = 0", "f.names = ['a']"}, "f", "f(), f()", "((1, ['a']), (2, ['a']))\n", ""},
		{"helpers", []string{"def twice(x): return 2 * x", "def four(x): return twice(twice(x))\nother = twice", "def f(x): return four(x) + other(1)"}, "f", "f(1)", "6\n", ""},
		{"mutual recursion", []string{"def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)"}, "odd", "odd(7)", "True\n", ""},
		{"recursion", []string{"def f(n): return 1 if n < 2 else n * f(n - 1)"}, "f", "f(5)", "120\n", ""},
		{"classes", []string{"import dataclasses, enum\nclass Colour(enum.Enum):\n    RED = 1\n\n@dataclasses.dataclass\nclass Base:\n    x: int = 3\n", "class Sub(Base):\n    def get(self): return self.x, Colour.RED.name", "def f(): return Sub().get()"}, "f", "f()", "(3, 'RED')\n", ""},
		{"typed tuple", []string{"from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n    y: int = 2", "def f(): return P(1)"}, "f", "f()", "P(x=1, y=2)\n", ""},
		{"decorators of the library", []string{"import functools\n@functools.lru_cache(maxsize=None)\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)"}, "f", "f(50), f.cache_info().hits > 0", "(12586269025, True)\n", "@functools.lru_cache(maxsize=None)"},
		{"decorators of one's own", []string{"import functools\ndef shout(times):\n    def deco(g):\n        @functools.wraps(g)\n        def inner(*a): return g(*a).upper() * times\n        return inner\n    return deco", "N = 2\n@shout(N)\ndef f(s): return s + '!'"}, "f", "f('a')", "'A!A!'\n", ""},
		{"a decorator without wraps", []string{"def deco(g):\n    def inner(*a): return [g(*a)]\n    return inner", "@deco\ndef f(x): return x"}, "f", "f(1)", "[1]\n", ""},
		{"closure", []string{"def make(n, names):\n    def f(x):\n        nonlocal n\n        n += 1\n        return x + n, names\n    return f", "f = make(10, ('a',))"}, "f", "f(1), f(1)", "((12, ('a',)), (13, ('a',)))\n", "f = _make_f("},
		{"closure over a function and a module", []string{"import math\ndef make():\n    import json\n    def inner(x): return json.dumps(x)\n    def f(x): return inner([x, math.pi > 3])\n    return f", "f = make()"}, "f", "f(1)", "'[1, true]'\n", ""},
		{"closure with itself", []string{"def make():\n    def f(n): return 0 if n == 0 else 1 + f(n - 1)\n    return f", "f = make()"}, "f", "f(3)", "3\n", ""},
		{"in a block", []string{"if True:\n    def f(text='''a\nb'''):\n        return text + '''c\nd'''"}, "f", "f()", "'a\\nbc\\nd'\n", ""},
		{"a default of the function around", []string{"def make(n):\n    def f(x=n * 2): return x\n    return f\nf = make(4)"}, "f", "f()", "8\n", "def f(x=8)"},
		{"async", []string{"import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x"}, "f", "await f(3)", "3\n", ""},
		{"generator", []string{"def f(n):\n    yield from range(n)"}, "f", "list(f(3))", "[0, 1, 2]\n", ""},
		{"annotations", []string{"from __future__ import annotations\ndef f(x: Nowhere) -> list[int]: return [x]"}, "f", "f(1)", "[1]\n", "from __future__ import annotations"},
		{"annotations of the session", []string{"from typing import Optional\nclass Thing: pass\ndef f(x: Optional[Thing] = None) -> 'Thing': return x"}, "f", "f()", "", ""},
		{"counts in a global", []string{"count = 0\ndef f():\n    global count, fresh\n    fresh = count = count + 1\n    return count + fresh"}, "f", "f(), f()", "(2, 4)\n", ""},
		{"lines of every kind", []string{"x = 'a\\x0cb'  # \x0c a form feed\r\ndef f():\r\n    return 'g\u2028h'\r\n"}, "f", "f()", "'g\\u2028h'\n", ""},
		{"redefined", []string{"def f(): return 1", "def f(): return 2"}, "f", "f()", "2\n", ""},
		{"named top", []string{"n = 0\ndef top(limit):\n    global n\n    n += 1\n    x = [limit]\n    return x, n"}, "top", "top(2)", "([2], 1)\n", ""},
		{"decorated and async", []string{"import functools, contextlib\ndef timed(fn):\n    @functools.wraps(fn)\n    async def inner(*a, **k): return {'r': await fn(*a, **k)}\n    return inner", "@contextlib.contextmanager\ndef cd(p): yield p\n\n@timed\nasync def f(repo: str, limit: int = 5) -> list:\n    with cd(3) as x: return [repo] * limit, x"}, "f", "await f('a', 2)", "{'r': (['a', 'a'], 3)}\n", ""},
		{"names in letters", []string{"def größe(maß=1): return maß"}, "größe", "größe()", "1\n", ""},
		{"helpers of the sandbox", []string{"def f():\n    save_memory('k', runtime.load_memory('k', default=0) + 1)\n    return load_memory('k'), len(mcp_servers), list_servers_sync()"}, "f", "f()", "(1, 0, ())\n", "from mcp.runtime import"},
		{"top-level await beside it", []string{"import asyncio\nawait asyncio.sleep(0)\ndef f(): return 1"}, "f", "f()", "1\n", ""},
		{"a comprehension and a lambda", []string{"K = 3\ndef f(): return [(lambda v: v * K)(i) for i in range(3)]"}, "f", "f()", "[0, 3, 6]\n", ""},
		{"builtins", []string{"def f():\n    try: return len(undefined_builtin())\n    except ZeroDivisionError: return 0\nundefined_builtin = list"}, "f", "f()", "0\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := newKeeper()
			first := launch(t)
			for _, c := range tt.cells {
				if r := first.run(t, wire.Exec{Code: c}, k.call); r.Status != wire.StatusOK {
					t.Fatalf("%s: %s", c, r.stderr)
				}
			}
			r := first.run(t, wire.Exec{Code: "print(runtime.save_tool(" + tt.save + "))"}, k.call)
			if want := "Tool '" + tt.save + "' saved. It will be available in future sessions.\n"; r.stdout != want || r.stderr != "" {
				t.Fatalf("%q, %s", r.stdout, r.stderr)
			}
			kept := k.tools[tt.save][0].Source
			if !strings.Contains(kept, tt.source) {
				t.Errorf("%q is not in\n%s", tt.source, kept)
			}
			r = launch(t).run(t, wire.Exec{Code: "from user_tools import " + tt.save + "\n" + tt.use}, k.call)
			if r.stdout != tt.want || r.stderr != "" {
				t.Errorf("%q, want %q\n%s\n%s", r.stdout, tt.want, r.stderr, kept)
			}
		})
	}
}

// TestWhatCannotBeSaved: each has a reason that says what to do.
func TestWhatCannotBeSaved(t *testing.T) {
	k := newKeeper()
	k.play(t, launch(t), []cell{
		{"a text", `save_tool("f")`, "", "ValueError: save_tool needs a function, not a str\n"},
		{"a lambda", `f = lambda x: x` + "\nsave_tool(f)", "", "ValueError: save_tool needs a function with a name: a lambda has none; write it with def"},
		{"a class", "class C:\n    def m(self): return super().x\nsave_tool(C)", "", "ValueError: save_tool needs a function, not the class C"},
		{"a method", "save_tool(C().m)", "", "ValueError: save_tool needs a function, not a method m"},
		{"with super", "save_tool(C.m)", "", "ValueError: save_tool(m): m uses super() or __class__"},
		{"a builtin", "save_tool(len)", "", "ValueError: save_tool needs a function, not a builtin_function_or_method len"},
		{"a library's", "import json\nsave_tool(json.dumps)", "", "ValueError: save_tool(dumps): dumps belongs to the module json: later sessions can import it from there"},
		{"out of exec", "exec('def g(): pass')\nsave_tool(g)", "", "ValueError: save_tool(g): the source of g is not known"},
		{"an object", "thing = object()\ndef f(): return thing\nsave_tool(f)", "", "ValueError: save_tool(f): f uses thing, an object, which cannot be kept: it can use functions, classes, modules and plain values. Make it inside the function"},
		{"an object of a helper", "def helper(): return thing\ndef f(): return helper()\nsave_tool(f)", "", "ValueError: save_tool(f): helper uses thing, an object"},
		{"a time that passes", "import datetime\nnow = datetime.datetime.now()\ndef f(): return now\nsave_tool(f)", "", "ValueError: save_tool(f): f uses now, a datetime, which cannot be kept"},
		{"an attribute", "def f(): return f.o\nf.o = thing\nsave_tool(f)", "", "ValueError: save_tool(f): f uses its attribute o, an object"},
		{"in a closure", "def make(o):\n    def f(): return o\n    return f\nsave_tool(make(thing))", "", "ValueError: save_tool(f): f uses o, an object"},
		{"not defined", "def f(): return nothing + 1\nsave_tool(f)", "", "ValueError: save_tool(f): f uses nothing, which is not defined"},
		{"a module of the workspace", "open('own.py', 'w').write('x = 1\\ndef h(): return 1')\nimport own\ndef f(): return own.x\nsave_tool(f)", "", "ValueError: save_tool(f): it uses the module own, which later sessions do not have"},
		{"a function of it", "from own import h\ndef f(): return h()\nsave_tool(f)", "", "ValueError: save_tool(f): f uses h, a function, which cannot be kept"},
		{"a value of it", "from own import x\ndef f(): return x\nsave_tool(f)", "\"Tool 'f' saved. It will be available in future sessions.\"\n", ""},
		{"wrapped by hand", "import functools\ndef f(): return 1\ng = functools.lru_cache(f)\nsave_tool(g)", "", "ValueError: save_tool(f): f was wrapped by a call; write the decorator above its def"},
		{"a decorator of the function around", "def outer(n):\n    def deco(g): return g\n    @deco\n    def f(): return 1\n    return f\nsave_tool(outer(1))", "", "ValueError: save_tool(f): f uses deco of its enclosing function when it is defined"},
		{"large", "DATA = 'x'.zfill(300000)\ndef f(): return DATA\nsave_tool(f)", "", "ValueError: save_tool(f): f uses DATA, a str, which cannot be kept"},
		{"two of a name", "def a(): return 1\nold = a\ndef a(): return 2\ndef f(): return a(), old()\nsave_tool(f)", "", "ValueError: save_tool(f): it uses two different things that are called a"},
		{"raises when it is imported", "calls = [1]\ndef once(g):\n    calls.append(1)\n    if len(calls) > 2: raise KeyError('again')\n    return g\n@once\ndef f(): return 1\nsave_tool(f)", "", "ValueError: save_tool(f): it could not be imported later: KeyError: 'again'"},
		{"makes no function", "def five(g): return 5 if saving else g\nsaving = False\n@five\ndef f(): return 1\nsaving = True\nsave_tool(f)", "", "ValueError: save_tool(f): its decorators do not return a function"},
	})
	if len(k.tools) != 1 || len(k.tools["f"]) != 1 {
		t.Errorf("kept %v", k.tools)
	}
}

// TestUserTools is the module from a session's side.
func TestUserTools(t *testing.T) {
	k := newKeeper()
	first := launch(t)
	saved := func(name string) string {
		return "\"Tool '" + name + "' saved. It will be available in future sessions.\"\n"
	}
	k.play(t, first, []cell{
		{"none", "dir(user_tools), user_tools.__name__", "([], 'user_tools')\n", ""},
		{"none to import", "from user_tools import f", "", "ImportError: there is no saved tool 'f': none is saved"},
		{"save", "def f(x):\n    '''Divides.'''\n\n    return 1 / x\nsave_tool(f)", saved("f"), ""},
		{"at once", "import user_tools\nuser_tools.f(2), f is user_tools.f", "(0.5, False)\n", ""},
		{"changed", "def f(x): return x\nsave_tool(f)", saved("f"), ""},
		{"the change is there", "user_tools.f(2)", "2\n", ""},
		{"one that uses it", "from user_tools import f\ndef g(x): return f(x) + 1\nsave_tool(g)", saved("g"), ""},
		{"saved again as it is", "save_tool(user_tools.f)", saved("f"), ""},
		{"in the manual", "print([line for line in capability_summary().splitlines() if 'Saved' in line])", "['Saved tools: f, g (from user_tools import <name>).']\n", ""},
		{"an older one", "import math\ndef h(x):\n    y = x\n    return math.sqrt(y)\nsave_tool(h)", saved("h"), ""},
	})
	if got := k.tools["g"][0].Source; !strings.Contains(got, "from user_tools import f") {
		t.Errorf("a saved tool was copied:\n%s", got)
	}
	if v := k.tools["f"]; len(v) != 3 || v[2].Source != v[1].Source || v[0].Doc != "Divides." || v[0].Signature != "(x)" || v[0].Async {
		t.Errorf("%+v", v)
	}
	k.play(t, launch(t), []cell{
		{"unused, it costs nothing", "'user_tools' in globals()", "True\n", ""},
		{"names", "dir(user_tools), user_tools.__all__", "(['f', 'g', 'h'], ['f', 'g', 'h'])\n", ""},
		{"all", "from user_tools import *\nf(1), g(1)", "(1, 2)\n", ""},
		{"the same again", "import user_tools as u\nfrom user_tools import f as f2\nf2 is f is u.f", "True\n", ""},
		{"wrong", "from user_tools import ff", "", "ImportError: there is no saved tool 'ff'; did you mean 'f'? (there are: f, g, h)"},
		{"no module", "import user_tools.f", "", "ModuleNotFoundError: user_tools.f is not a module: write from user_tools import f"},
		{"no attribute", "user_tools.nope", "", "AttributeError: module 'user_tools' has no attribute 'nope'"},
		{"a traceback shows its lines", "h(-1)", "", "    return math.sqrt(y)\n"},
		{"and its name", "h(-1)", "", "File \"<user_tools.h version 1>\", line 6, in h\n"},
		{"source", "import inspect\nprint(inspect.getsource(h))", "def h(x):\n    y = x\n    return math.sqrt(y)\n\n", ""},
		{"pickled", "import pickle\npickle.loads(pickle.dumps(f)) is f", "True\n", ""},
		{"reload", "import importlib\nimportlib.reload(user_tools) is user_tools, user_tools.f is f, user_tools.f(3)", "(True, False, 3)\n", ""},
		{"as a decorator", "import functools\n@save_tool\n@functools.lru_cache\ndef d(x=1): return x\nprint(d)\nfrom user_tools import d\nd(), d.cache_info().misses", "Tool 'd' saved. It will be available in future sessions.\n(1, 1)\n", ""},
		{"as a decorator, under another name", "keep = save_tool\n@keep\ndef d2(): return x", "", "ValueError: save_tool(d2): d2 uses x, which is not defined"},
		{"by itself", "@keep\ndef d2(): return 2", "", "ValueError: save_tool was called by what is being saved"},
		{"in a thread", "import threading\nimportlib.reload(user_tools)\nout = []\nt = threading.Thread(target=lambda: out.append(user_tools.g(1)))\nt.start(); t.join(); out", "[2]\n", ""},
		{"hint", "del f\nf(1)", "", "\nHint: it is a saved tool: from user_tools import f\n"},
		{"no hint", "fgh(1)", "", "NameError: name 'fgh' is not defined\n"},
	})
}

// TestSavedToolsOfServers: a saved tool calls whatever server is granted when it
// is used.
func TestSavedToolsOfServers(t *testing.T) {
	k := newKeeper()
	saved := "\"Tool 'f' saved. It will be available in future sessions.\"\n"
	k.play(t, launch(t), []cell{
		{"by name", "async def f(x):\n    tools = await mcp_my_echo.list_tools()\n    return (await mcp_my_echo.getuserprofile(a=x)).a, (await mcp_servers['my-echo'].order(z=1, m=2)).m, len(tools) > 3\nsave_tool(f)", saved, ""},
		{"a function of it", "from mcp.servers.my_echo import getuserprofile as profile\nfrom mcp import mcp_my_echo as e\nasync def g(x): return (await profile(a=x)).a, (await e['getUserProfile'](a=2)).a\nsave_tool(g)", strings.Replace(saved, "'f'", "'g'", 1), ""},
	}, "my-echo")
	if got := k.tools["f"][0].Servers; len(got) != 1 || got[0] != "my_echo" {
		t.Errorf("servers %v", got)
	}
	p := launch(t)
	k.play(t, p, []cell{
		{"loaded by its first use", "from user_tools import f, g\nawait f(1)", "(1, 2, True)\n", ""},
		{"loaded by its first use, by function", "await g(1)", "(1, 2)\n", ""},
		{"loaded", "await runtime.load_server('my-echo')\nawait f(1), await g(1)", "((1, 2, True), (1, 2))\n", ""},
	})
	k.play(t, p, []cell{{"granted", "await f(1), await g(1)", "((1, 2, True), (1, 2))\n", ""}}, "my-echo")
	k.play(t, p, []cell{{"not granted any more", "await g(1)", "(1, 2)\n", ""}})
	k.play(t, launch(t), []cell{{"saved where it was not granted", "async def h(): return (await mcp_my_echo.getuserprofile(a=1)).a\nsave_tool(h)", strings.Replace(saved, "'f'", "'h'", 1), ""}})
	k.play(t, p, []cell{{"used where it is", "await user_tools.h()", "1\n", ""}}, "my-echo")
}

// TestSavedDescription is what discovery is told.
func TestSavedDescription(t *testing.T) {
	k := newKeeper()
	k.play(t, launch(t), []cell{{"save", "from typing import List\nasync def f(a: int, b: List[str] = None, *more, c='x\\n', d=object, **rest) -> 'dict':\n    '''\n    Does.\n\n        More.\n    '''\nsave_tool(f)",
		"\"Tool 'f' saved. It will be available in future sessions.\"\n", ""}})
	got := k.tools["f"][0]
	if got.Doc != "Does.\n\n    More." || !got.Async || !strings.HasPrefix(got.Signature, "(a: int, b: List[str] = None, *more, c=") || strings.ContainsAny(got.Signature, "\n") {
		t.Errorf("%+v", got)
	}
	want := `{"type":"object","properties":{"a":{"type":"integer"},"b":{},"c":{"default":"x\n"},"d":{}},"required":["a"],"additionalProperties":true}`
	if string(got.Schema) != want {
		t.Errorf("schema %s", got.Schema)
	}
}
