//go:build unix

package python_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/wire"
)

// advise answers what hints ask the host for.
func advise(ctx context.Context, c wire.Call) (json.RawMessage, error) {
	answers := map[string]string{
		wire.MethodSessionFacts:   `{"memory":536870912,"workspace":134217728,"processes":128}`,
		wire.MethodFindServers:    `[{"name":"my-echo","alias":"my_echo","state":"ready","how":""},{"name":"off","alias":"off","state":"disabled","how":"the user can enable it: sallyport servers enable off"}]`,
		wire.MethodSearchToolDocs: `[{"server":"g","serverAlias":"g","tool":"find","toolAlias":"find"},{"server":"fs","serverAlias":"fs","tool":"read_text_file","toolAlias":"read_text_file"},{"server":"fs","serverAlias":"fs","tool":"write_file","toolAlias":"write_file"},{"server":"fs","serverAlias":"fs","tool":"list_directory","toolAlias":"list_directory"}]`,
		wire.MethodToolNames:      `["fetch_all"]`,
	}
	if c.Method == wire.MethodFolderFacts {
		var p struct{ Path string }
		if err := json.Unmarshal(c.Params, &p); err != nil {
			return nil, err
		}
		for path, facts := range map[string]string{
			"/home/u/project/":    `{"place":"/roots/project/a.csv","folder":"/roots/project","readOnly":true,"folders":["/roots/project (read-only)"]}`,
			`D:\out\`:             `{"place":"/mnt/out/a.csv","folder":"/mnt/out","folders":["/mnt/out (a private copy)"]}`,
			"/usr/share/":         `{"folder":"/usr/share","readOnly":true}`,
			"/home/u/elsewhere/a": `{"folders":["/roots/project (read-only)"]}`,
		} {
			if strings.HasPrefix(p.Path, path) {
				return json.RawMessage(facts), nil
			}
		}
		return json.RawMessage(`{}`), nil
	}
	if c.Method == wire.MethodPackageFacts {
		for _, f := range []struct{ pkg, facts string }{
			{`"pandas"`, `{"environments":["data"],"install":"none"}`},
			{`"scikit-learn"`, `{"this":"ml","install":"none"}`},
			{`"pillow"`, `{"install":"any"}`},
			{`"listed_one"`, `{"install":"listed","listed":["Listed.one>=2","other"]}`},
			{`"unlisted_one"`, `{"install":"listed","listed":["Listed.one>=2","other"]}`},
			{`"polars"`, `{"install":"none","listed":["Listed.one>=2","other"]}`},
			{`"lxml"`, `{"command":true,"install":"none"}`},
			{`"google-cloud-storage"`, `{"environments":["data","ml"],"install":"ask"}`},
		} {
			if strings.Contains(string(c.Params), f.pkg) {
				return json.RawMessage(f.facts), nil
			}
		}
		return json.RawMessage(`{"install":"none"}`), nil
	}
	if a, ok := answers[c.Method]; ok {
		return json.RawMessage(a), nil
	}
	return say(ctx, c)
}

// TestHints has, for each hint, code that gets it and code that is nearly the
// same and must not.
func TestHints(t *testing.T) {
	tests := []struct{ name, code, want, near string }{
		{"await, subscript", "x = 1\nr = mcp_my_echo.order(1, 2)\nr['z']", "line 2: mcp_my_echo.order(...) was called without await", "r = await mcp_my_echo.order(1, 2)\nr['y']"},
		{"await, attribute", "async def f(): return 5\nf().real", "line 2: f(...) was called without await", "async def f(): return 5\n(await f()).nothing"},
		{"await, given to a function", "import json\njson.loads(mcp_my_echo.order(1, 2))", "line 2: mcp_my_echo.order(...) was called without await", "import json\njson.loads(5)"},
		{"await, assigned", "r = mcp_my_echo.order(1, 2)\nprint(5)", "line 1: mcp_my_echo.order(...) was called without await", "r = await mcp_my_echo.order(1, 2)\nprint(5)"},
		{"await, assigned of one's own", "async def f(): return 5\nr = f()", "line 2: f(...) was called without await", "async def f(): return 5\nr = f"},
		{"await, comprehension", "r = [mcp_my_echo.order(i, 2) for i in range(3)]", "line 1: mcp_my_echo.order(...) was called without await", "import asyncio\nr = await asyncio.gather(*[mcp_my_echo.order(i, 2) for i in range(3)])"},
		{"await, printed", "print(mcp_my_echo.order(1, 2))", "line 1: mcp_my_echo.order(...) was called without await", "print(await mcp_my_echo.order(1, 2))"},
		{"await, a task in the background", "x = mcp_my_echo.order(1, 2)", "line 1: mcp_my_echo.order", "import asyncio\nt = asyncio.create_task(mcp_my_echo.say(result={'content': []}))"},
		{"await, after that", "async def f(): return 5\nf()", "line 2: f(...) was called without await", "await f()"},
		{"await too much", "await discovered_servers()", "line 1: this call has returned its value already: remove await", "await 5 if False else 6"},
		{"await of a tool", "await mcp_my_echo.echo", "line 1: call it: await mcp_my_echo.echo(...)", "await mcp_my_echo.order(1, 2)"},
		{"await of a value", "x = 5\nawait x", "line 2: only calls of tools and of async functions are awaited: remove await", "x = 5"},
		{"dash in a tool's name", "await mcp_sums.get-the-sum(a=5)", "line 1: Python reads the dash as minus: write await mcp_sums.get_the_sum(...)", "user = 1\nclass S: get = 2\nS.get-user"},
		{"dash in a tool's name, before the server is loaded", "await mcp_off_line.get-the-sum(a=5)", "line 1: Python reads the dash as minus: write await mcp_off_line.get_the_sum(...)", "user = 1\nmcp_sums.get_the_sum - user"},
		{"dash in a server's name", "import mcp-sums", "Python reads a dash as minus: write mcp_sums", "import a-b"},
		{"await twice", "c = mcp_my_echo.order(1, 2)\nawait c\nawait c", "line 3: a call is awaited once", "raise RuntimeError('cannot reuse')"},
		{"await in the wrong place", "await mcp_my_echo.order(1, 2)['x']", "write (await mcp_my_echo.order(...))", "(await mcp_my_echo.say(result={'content': [{'type': 'text', 'text': 'x'}]}))['x']"},
		{"dash in an import", "from mcp_sums import get-the-sum", "Python reads a dash as minus: write get_the_sum", "from a import b-"},
		{"package", "raise ModuleNotFoundError(name='torch')", "torch is not installed. Code may not install packages; the user can add it: sallyport env add data -p torch. Packages besides the standard library: ", "import json.nothing"},
		{"package, of a person's program", "raise ModuleNotFoundError(name='lxml')", "lxml is not installed. Run it with the package: sallyport run --with lxml -c CODE. ", "import json.nothing"},
		{"package by another name", "raise ModuleNotFoundError(name='sklearn')", "sallyport env add ml -p scikit-learn.", "try:\n    import pandaz\nexcept ImportError: pass"},
		{"package that code may install", "raise ModuleNotFoundError(name='PIL')", `PIL is not installed. Install it: await runtime.install_packages("pillow"). Packages`, "PIL = 5"},
		{"package that the user lists", "import listed_one.x", `Install it: await runtime.install_packages("Listed.one").`, "listed_one = 5"},
		{"module that may be of a package", "import unlisted_one", "on PyPI, unlisted_one may be something else. Code may install what is in policy.packages: Listed.one>=2, other\n", "import json.helper"},
		{"package that is not listed", "raise ModuleNotFoundError(name='polars')", "polars is not installed. Code may install what is in policy.packages: Listed.one>=2, other; the user can add it: sallyport env add data -p polars.", "polars = 5"},
		{"package of a namespace", "from google.cloud import storage", `have it: call run_python with env="data" and a new session. Install it: await runtime.install_packages("google-cloud-storage"), which asks the user.`, "google = 5"},
		{"module of Windows", "import win32api", "win32api is a module of Windows", "win32api = 5"},
		{"module of the user", "import helper_of_mine", "there is no module helper_of_mine here; if it is the user's, write its content to ", "import json.helper"},
		{"usual import of a package that is missing", "pd.DataFrame()", `pandas is not installed. The environment data has it: call run_python with env="data" and a new session.`, "px.line()"},
		{"package of the user", "from my_package.util import x", "/my_package first", "import json.helper"},
		{"misspelt module", "import requets", "there is no module requets here; did you mean 'requests'? Or if it is the user's", "import json.jsonn"},
		{"no module's name", "import my_own_thing", "there is no module my_own_thing here; if it is", "raise ModuleNotFoundError(name='a; pip install b')"},
		{"server as a name", "sums.get_the_sum()", "it is a server: write mcp_sums", "sumsx"},
		{"package that needs the network", "raise ModuleNotFoundError(\"No module named 'boto3'\", name='boto3') # which a host may have", "boto3 is not installed, and the sandbox has no network. Call a server's tool instead", "import botx.x if False else os"},
		{"server without mcp_", "from my_echo import echo", "my_echo is a server: import mcp_my_echo", "from mcp_my_echo import echo"},
		{"pip as a command", "!pip install pandas", "installers reach no index from here: the sandbox has no network. The environment data has it", "x = 'pip install pandas'"},
		{"pip without one", "pip install pandas", "installers reach no index from here: the sandbox has no network. The environment data has it", "pip = 5"},
		{"pip in a process", "import subprocess\nsubprocess.run(['pip', 'install'], env={'PATH': '/nowhere'})", "installers reach no index from here", "import subprocess\nsubprocess.run(['nothing'], env={'PATH': '/nowhere'})"},
		{"pip that is not looked at", "import os\nos.system('exit 1; python -m pip -q install x') and None", "installers reach no index from here", "import os\nos.system('exit 1; pip install ./x.whl --target y') and None"},
		{"magic", "%matplotlib inline\n5", "line 1: remove it: IPython's commands do not exist here", "5 %\\\n2"},
		{"shell", "import os\n!ls -l", "line 2: write subprocess.run('ls -l', shell=True) for a command, after import subprocess", "5 != 4"},
		{"text around the code", "Here it is:\n```python\nprint(1)\n```", "send only the code", "print(1"},
		{"host path", "open('/home/me/a.csv')", "'/home/me/a.csv' would be a path of the host, which the sandbox does not see: server 'fs' may have it: await mcp_fs.read_text_file(path='/home/me/a.csv')", "open('/proc/nothing')"},
		{"host path, written", "open('/home/me/a.csv', 'w')", "; `sallyport run --out DIR` copies what is new there", "import os\nopen('q', 'w').close()\nos.remove('q')"},
		{"host path, written by a server", "import pathlib\npathlib.Path('/home/me/a.csv').write_text('x')", "Server 'fs' may have it: await mcp_fs.write_file(path='/home/me/a.csv', content=...)", "import pathlib\npathlib.Path('/etc/no/a.csv').read_text()"},
		{"host path, listed", "import os\nos.listdir('/home/me')", "await mcp_fs.list_directory(path='/home/me')", "import os\nos.listdir('/etc/nothing')"},
		{"file of the user", "open('sales.csv')", "'sales.csv' is not in the sandbox, which has none of the user's files (", "open('/etc/sales.csv')"},
		{"file of the user, below", "open('data/sales.csv')", "For a file of the user: server 'fs' may have it: await mcp_fs.read_text_file(path='/path/on/the/host')", "import subprocess\nsubprocess.run(['sales.csv'])"},
		{"file of the user, by a library", "def to_dict(): pass\nraise FileNotFoundError('sales.csv not found')", "the file is not in the sandbox", "raise IsADirectoryError(21, 'Is a directory', 'x')"},
		{"misspelt file", "open('sales_2026.csv', 'w').close()\nopen('sales_2025.csv')", "did you mean 'sales_2026.csv'?", "import os\nos.remove('sales_2026.csv')"},
		{"link that leads nowhere", "import os\nos.symlink('/home/me/a.csv', 'link')\nopen('link')", "Hint: 'link' is a link to '/home/me/a.csv', which is not in the sandbox\n", "os.lstat('link').st_size"},
		{"folder that is not there", "open('out/a.csv', 'w')", "the folder 'out' does not exist: import os; os.makedirs('out', exist_ok=True) first", "import os\nos.makedirs('out2', exist_ok=True)\nopen('out2/a.csv', 'w').close()"},
		{"host path that only hosts have", "open('/content/a.csv')", "'/content/a.csv' would be a path of the host", "open('/tmp/a.csv')"},
		{"folder on the host", "import os\nos.mkdir('/data/out')", "write to ", "import os\nos.mkdir('out3')"},
		{"file in place of a folder", "open('f', 'w').close()\nopen('f/b', 'w')", "'f' is a file, so it holds no others", "open('f', 'w').close()"},
		{"renamed to nowhere", "open('f', 'w').close()\nimport os\nos.rename('f', 'no/b')", "the folder 'no' does not exist", "open('f', 'w').close()\nimport os\nos.rename('f', 'g')"},
		{"database", "import sqlite3\nsqlite3.connect('no/x.db')", "the folder 'no' does not exist", "import sqlite3\nsqlite3.connect(':memory:').execute('x')"},
		{"host path of Windows", `open(r'C:\Users\me\a.csv')`, "would be a path of the host", "open('/etc/nothing')"},
		{"host path, below", "import os\nos.listdir('/Users/me')", "would be a path of the host", "import os\nos.listdir('/tmp/Users/me')"},
		{"host path in a folder", "open('/home/u/project/a.csv')", "Hint: '/home/u/project/a.csv' is /roots/project/a.csv in the sandbox\n", "open('/etc/project/a.csv')"},
		{"host path in a folder, written", "open('/home/u/project/a.csv', 'w')", "in the sandbox. /roots/project is a folder of the user and read-only: write to ", "open('a.csv', 'w')"},
		{"host path of Windows in a folder", `open(r'D:\out\a.csv')`, `is /mnt/out/a.csv in the sandbox`, `open(r'D:\out\a.csv', 'w')`},
		{"host path in no folder", "open('/home/u/elsewhere/a')", ", which the sandbox does not see, except for these folders: /roots/project (read-only): server ", "open('/etc/elsewhere/a')"},
		{"misspelt file in a folder", "open('/usr/share/mann')", "there is no 'mann' in /usr/share; did you mean 'man'? It has ", "open('/usr/nothing/mann')"},
		{"no folder in a folder", "open('/usr/share/no/man')", "the folder '/usr/share/no' does not exist", "open('/usr/nothing/no/man')"},
		{"folder that is read-only", "raise OSError(30, 'Read-only file system', '/usr/share/a.csv')", "Hint: /usr/share is a folder of the user and read-only: write to ", "raise OSError(28, 'No space left on device', 'a.csv') if False else 5"},
		{"extension module in a folder", "raise ImportError('/mnt/v/a.so: failed to map segment from shared object')", "extension modules (.so) load only from the packages of the sandbox", "raise ImportError('/mnt/v/a.so: undefined symbol')"},
		{"memory", "raise MemoryError", "the sandbox has 512 MiB (setting limits.memory) of memory", "raise MemoryLeak if False else ValueError('MemoryError')"},
		{"disk", "raise OSError(28, 'No space left on device')", "/workspace holds 128 MiB (setting limits.workspace) of files", "raise OSError(27, 'File too large')"},
		{"files", "raise OSError(24, 'Too many open files')", "setting limits.openFiles", "raise OSError(23, 'Too many open files in system')"},
		{"threads", "raise RuntimeError(\"can't start new thread\")", "128 (setting limits.processes) processes and threads", "raise RuntimeError('cannot start it')"},
		{"disabled server", "mcp_off.x()", "server 'off' is disabled: the user can enable it", "mcp_my_echo.x()"},
		{"misspelt server", "mcp_my_eco.echo()", "there is no server mcp_my_eco; did you mean 'mcp_my_echo'?", "mycp_echo.echo()"},
		{"misspelt tool", "from mcp_my_echo import ecko", "server 'my-echo' has no tool 'ecko'; did you mean 'echo'? (it has: echo, getuserprofile, order, say, edit)", "from json import ecko"},
		{"usual import", "Path('x')", "write from pathlib import Path first", "px.line()"},
		{"usual name", "Counter('aab')", "write from collections import Counter first", "Encounter('aab')"},
		{"saved tool", "fetch_all()", "it is a saved tool: from user_tools import fetch_all", "fetch_none()"},
		{"argument that is not there", "await mcp_my_echo.edit(edits=[], clas='y')", "mcp_my_echo.edit has no argument 'clas'; did you mean 'class'?; the server may ignore it", "await mcp_my_echo.edit(edits=[], class_='y')"},
		{"argument that has another name", "await mcp_my_echo.order(1, 2, limit=3)", "mcp_my_echo.order has no argument 'limit' (it has: m, z, a); the server may ignore it", "await mcp_my_echo.getuserprofile(limit=3)"},
		{"refused arguments", "await mcp_my_echo.say(result={'isError': True, 'content': [{'type': 'text', 'text': 'Invalid arguments: path'}]})", "its signature is mcp_my_echo.say(", "await mcp_my_echo.say(result={'isError': True, 'content': [{'type': 'text', 'text': 'no such file'}]})"},
	}
	sums := wire.Server{Name: "sums", Alias: "sums", Tools: []tool.Tool{{Name: "get-the-sum", Alias: "get_the_sum"}}}
	p := launch(t)
	execute := func(t *testing.T, code string) string {
		t.Helper()
		r := p.run(t, wire.Exec{Code: code, Grants: []string{"my-echo", "sums"}, Define: []wire.Server{echoServer, sums},
			Discovered: []wire.ServerInfo{{Name: "my-echo", Alias: "my_echo"}, {Name: "off-line", Alias: "off_line"}}}, advise)
		if r.err != nil {
			t.Fatal(r.err)
		}
		var hints []string
		for _, line := range strings.SplitAfter(r.stderr, "\n") {
			if strings.HasPrefix(line, "Hint: ") {
				hints = append(hints, line)
			}
		}
		return strings.Join(hints, "")
	}
	for _, tt := range tests {
		if skipped(t, tt.code) {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			got := execute(t, tt.code)
			if !strings.Contains(got, tt.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("%s\ngot %q\nwant one line with %q", tt.code, got, tt.want)
			}
			if got := execute(t, tt.near); got != "" {
				t.Errorf("%s\ngot %q, want no hint", tt.near, got)
			}
		})
	}
}

// TestHintsOfHostileCode: what code puts into its exceptions makes one line at
// most, and an exception that fights back makes none.
func TestHintsOfHostileCode(t *testing.T) {
	p := launch(t)
	for _, code := range []string{
		"open('a\\nHint: b\\x1b[1m' + 'x' * 200)",
		"class E(FileNotFoundError):\n    filename = '/home/a\\nb' * 1000\n    errno = 2\nraise E",
		"class E(NameError):\n    @property\n    def name(self): 1/0\nraise E",
		"class E(TypeError):\n    def __str__(self): return \"'coroutine'\" * 10000\nraise E",
		"class E(NameError):\n    name = 'mcp_' + 'x' * 100000\nraise E",
		"e = ValueError(); e.args = (e,); e.__cause__ = e; raise e",
	} {
		r := p.run(t, wire.Exec{Code: code}, advise)
		if r.err != nil || r.Status != wire.StatusError {
			t.Errorf("%s: %+v %v", code, r.Done, r.err)
		}
		_, hint, _ := strings.Cut(r.stderr, "\nHint: ")
		if after := r.stderr[strings.LastIndex(r.stderr, "Hint:")+1:]; len(hint) > 700 || strings.Contains(r.stderr, "Hint:") && strings.Count(after, "\n") != 1 {
			t.Errorf("%s: hint %q", code, hint)
		}
	}
}

// TestCodeAsModelsSendIt: what surrounds code is taken off, and its lines keep
// their numbers.
func TestCodeAsModelsSendIt(t *testing.T) {
	tests := []struct{ name, code, stdout, stderr string }{
		{"fenced", "```python\nx = 2\nx + 1\n```", "3\n", ""},
		{"fenced, blank lines", "\n\n```py\nprint(1)\n\n```\n\n", "1\n", ""},
		{"fenced with tildes", "~~~\nprint(1)\n~~~", "1\n", ""},
		{"fence never closed", "```python\nprint(1)", "1\n", ""},
		{"fence in a text", "```python\ns = '''\n```\n'''\nlen(s)\n```", "5\n", ""},
		{"indented", "    x = 2\n    if x:\n        print(x)\n    x", "2\n2\n", ""},
		{"indented with a tab", "\tx = 2\n\tx", "2\n", ""},
		{"indented text with less", "    s = '''a\n  b\n    '''\n    len(s)", "6\n", ""},
		{"fenced and indented", "  ```python\n  x = 2\n  x\n  ```", "2\n", ""},
		{"with returns", "```python\r\nprint(1)\r\n```\r\n", "1\n", ""},
		{"an error's line", "```python\nx = 1\n1/0\n```", "", "line 3, in <module>\n    1/0\n"},
		{"an error's line, indented", "    x = 1\n    1/0", "", "line 2, in <module>\n    1/0\n"},
		{"still wrong", "```python\nx = = 1\n```", "", "line 2\n    x = = 1\n"},
		{"first line indented", "  x = 1\nx + 1", "2\n", ""},
		{"not uniform", "  x = 1\nif x:\n  y = 2", "", "IndentationError: expected an indented block"},
		{"not code", "```", "", ""},
		{"main program", "def main():\n    print('ran')\nif __name__ == '__main__':\n    main()", "ran\n", ""},
		{"asynchronous main program", "import asyncio\nasync def main():\n    print((await mcp_my_echo.order(5, 0)).m)\nif __name__ == '__main__':\n    asyncio.run(main())", "5\n", ""},
	}
	p := launch(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := p.run(t, wire.Exec{Code: tt.code, Grants: []string{"my-echo"}, Define: []wire.Server{echoServer}}, say)
			if r.err != nil || r.stdout != tt.stdout || !strings.Contains(r.stderr, tt.stderr) || tt.stderr == "" && r.stderr != "" {
				t.Errorf("%v, stdout %q, want %q; stderr %q, want %q in it", r.err, r.stdout, tt.stdout, r.stderr, tt.stderr)
			}
		})
	}
}
