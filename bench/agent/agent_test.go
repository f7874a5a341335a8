package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCorpus: the corpus is complete, and every task can be judged.
func TestCorpus(t *testing.T) {
	tasks, err := readCorpus()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	kinds := map[string]int{}
	for _, task := range tasks {
		if seen[task.name] || task.question == "" {
			t.Errorf("%s: twice, or without a question", task.name)
		}
		seen[task.name] = true
		if len(task.variants) != variantsOfTask {
			t.Errorf("%s: %d variants, want %d", task.name, len(task.variants), variantsOfTask)
		}
		names := map[string]bool{}
		for _, v := range task.variants {
			if names[v.name] || strings.TrimSpace(v.calls[0]) == "" {
				t.Errorf("%s/%s: twice, or without code", task.name, v.name)
			}
			names[v.name] = true
		}
		if task.answer == nil && task.pictures == 0 && task.file == "" {
			t.Errorf("%s: nothing tells whether it is solved", task.name)
		}
		for _, s := range task.servers {
			if commands[s] == nil {
				t.Errorf("%s: there is no server %s", task.name, s)
			}
		}
		kind := "data"
		if task.group < "5" {
			kind = "servers"
		}
		kinds[kind]++
	}
	if kinds["servers"] != 30 || kinds["data"] != 30 {
		t.Errorf("%v, want 30 tasks of each kind", kinds)
	}
}

func TestCorpusErrors(t *testing.T) {
	for content, want := range map[string]string{
		"x\n":                          "before the first task",
		"=== a: b\nansewr: x\n":        `no key "ansewr"`,
		"=== a: b\nanswer: (\n":        "missing closing )",
		"=== a: b\ndirect: f {}\n":     "is not SERVER.TOOL",
		"=== a: b\ndirect: f.g {\n":    "is not SERVER.TOOL",
		"=== a: b\n--- v {x\n":         "line 2: invalid character",
		"=== a: b\npictures: some\n\n": "line 2",
	} {
		if _, err := parseTasks("g", content); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", content, err, want)
		}
	}
}

// TestRules has an answer for each rule, and what it makes of a request.
func TestRules(t *testing.T) {
	arguments := func(s string) map[string]json.RawMessage {
		m := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(s), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	tests := []struct{ name, code, arguments, answer, want, wantArguments string }{
		{"await", "x = 1\nr = mcp_a.b(c(1))['k']", `{}`, "Hint: line 2: mcp_a.b(...) was called without await, so it has not run", "x = 1\nr = (await mcp_a.b(c(1)))['k']", `{}`},
		{"second await", "await f(1); f(2)", `{}`, "Hint: line 1: f(...) was called without await", "await f(1); (await f(2))", `{}`},
		{"needless await", "await f()", `{}`, "Hint: line 1: this call has returned its value already: remove await", "f()", `{}`},
		{"magic", "%m\n1", `{}`, "Hint: line 1: remove it: IPython's commands do not exist here", "\n1", `{}`},
		{"shell", "!ls\n1", `{}`, "Hint: line 1: write subprocess.run('ls', shell=True) for a command", "import subprocess; subprocess.run('ls', shell=True)\n1", `{}`},
		{"pip", "!pip install -q a\n1", `{}`, "Hint: nothing can be installed from here: ...", "1", `{}`},
		{"import without prefix", "from git import x\nimport git\n", `{}`, "Hint: git is a server: import mcp_git", "from mcp_git import x\nimport mcp_git as git\n", `{}`},
		{"server", "mcp_gti.a(mcp_gti_b)", `{}`, "Hint: there is no server mcp_gti; did you mean 'mcp_git'?", "mcp_git.a(mcp_gti_b)", `{}`},
		{"argument", "f(txt=1, t=txt)", `{}`, "mcp.runtime.ArgumentError: mcp_a.f: there is no argument 'txt'; did you mean 'text'?", "f(text=1, t=txt)", `{}`},
		{"argument that is ignored", "f(limt=1)", `{}`, "Hint: mcp_a.f has no argument 'limt'; did you mean 'limit'?; the server may ignore it", "f(limit=1)", `{}`},
		{"tool that is imported", "from mcp_a import reed", `{}`, "Hint: server 'a' has no tool 'reed'; did you mean 'read'? (it has: read)", "from mcp_a import read", `{}`},
		{"tool", "mcp_a.read_fil()", `{}`, "AttributeError: server 'a' has no tool 'read_fil'; did you mean 'read_file'?", "mcp_a.read_file()", `{}`},
		{"server to load", "1", `{"servers":["gti"]}`, "Unknown MCP server: gti (nearest: git, x)", "1", `{"servers":["git"]}`},
		{"argument of the tool", "1", `{"server":["a"]}`, `Hint: run_python has no argument "server": the name is "servers"`, "1", `{"servers":["a"]}`},
		{"type", "1", `{"timeout":"60"}`, `Hint: write "timeout": 60`, "1", `{"timeout":60}`},
		{"time", "1", `{}`, "Hint: pass timeout=120 for the most time that is allowed", "1", `{"timeout":120}`},
		{"usual import", "pd", `{}`, "Hint: write import pandas as pd first", "import pandas as pd\npd", `{}`},
		{"forgotten import", "re", `{}`, "NameError: name 're' is not defined. Did you forget to import 're'?", "import re\nre", `{}`},
		{"host path", "open('/home/a.txt', 'r').read()", `{}`, "Hint: '/home/a.txt' would be a path of the host, which the sandbox does not see: server 'fs' may have it: await mcp_fs.read(path='/home/a.txt')",
			`__import__("io").StringIO(await mcp_fs.read(path="/home/a.txt")).read()`, `{}`},
		{"words around", "so:\n```python\nx\n```\n", `{}`, "Hint: send only the code, without the words and the Markdown around it", "x", `{}`},
		{"saved", "f()", `{}`, "Hint: it is a saved tool: from user_tools import f", "from user_tools import f\nf()", `{}`},
		{"no hint", "f()", `{}`, "ZeroDivisionError: division by zero", "f()", `{}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := request{code: tt.code, name: "code", arguments: arguments(tt.arguments)}
			got, changed := follow(r, "stderr:\n"+tt.answer+"\n")
			want := request{code: tt.want, name: "code", arguments: arguments(tt.wantArguments)}
			if !same(got, want) || changed == same(r, want) {
				t.Errorf("got %q %s, changed %v; want %q %s", got.code, got.arguments, changed, tt.want, tt.wantArguments)
			}
		})
	}
	if r, _ := follow(request{name: "source"}, `Hint: run_python has no argument "source": the name is "code"`); r.name != "code" {
		t.Errorf("the code is still sent as %q", r.name)
	}
}

// TestAFewTasks runs the tasks that need no server against the real executable.
func TestAFewTasks(t *testing.T) {
	if testing.Short() {
		t.Skip("starts sandboxes")
	}
	bin := os.Getenv("SALLYPORT_BIN")
	if bin == "" {
		bin = filepath.Join(t.TempDir(), "sallyport")
		build := exec.Command("go", "build", "-o", bin, "../../cmd/sallyport")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	var out, progress bytes.Buffer
	if err := run(t.Context(), options{bin: bin, servers: t.TempDir(), only: "primes|dates|fs-todo", verbose: true, json: true}, &out, &progress); err != nil {
		t.Fatalf("%v: %s", err, progress.String())
	}
	var rep report
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Tasks) != 2 || len(rep.NotRun) != 1 || rep.Definition == 0 {
		t.Fatalf("%s", out.String())
	}
	for _, o := range rep.Tasks {
		for _, v := range o.Variants {
			if !v.Solved || v.Calls < v.Steps || len(v.Answers) != v.Calls {
				t.Errorf("%s: %+v\n%s", o.Task, v, progress.String())
			}
		}
	}
	out.Reset()
	if err := rep.writeTable(&out); err != nil || !strings.Contains(out.String(), "6 of 6") || !strings.Contains(out.String(), "not run: fs-todo (needs server filesystem)") {
		t.Errorf("%v: %s", err, out.String())
	}
}
