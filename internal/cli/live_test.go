//go:build linux

package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// echoServer is an MCP server with one tool, which says with what the server
// was started.
const echoServer = `import json, os, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    answer = {"jsonrpc": "2.0", "id": m["id"]}
    if m["method"] == "initialize":
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "echo", "version": "1"}}
    elif m["method"] == "tools/list":
        answer["result"] = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("who", "forbidden")]}
    elif m["method"] == "tools/call":
        answer["result"] = {"content": [{"type": "text", "text": sys.argv[1] + " " + str(os.getpid())}]}
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
`

// serving is a client of a running sallyport serve.
type serving struct {
	t    *testing.T
	home string
	in   io.Writer
	out  *bufio.Scanner
	id   int
}

func serve(t *testing.T, environ ...func(home string) string) *serving {
	t.Helper()
	dir := t.TempDir()
	s := &serving{t: t, home: filepath.Join(dir, "home")}
	for _, d := range []string{"home/MCPs", "runtime", "project"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.write("echo.py", echoServer)
	cmd := exec.Command(executable(t), "serve")
	cmd.Dir = filepath.Join(dir, "project")
	cmd.Env = append(os.Environ(), "SALLYPORT_HUB_ENABLED=false", "HOME="+s.home, "XDG_RUNTIME_DIR="+filepath.Join(dir, "runtime"), "XDG_CONFIG_HOME=", "XDG_STATE_HOME=")
	for _, e := range environ {
		cmd.Env = append(cmd.Env, e(s.home))
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(3*time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
		stuck.Stop()
		if t.Failed() {
			t.Logf("its log:\n%s", &log)
		}
	})
	s.in, s.out = in, bufio.NewScanner(out)
	s.out.Buffer(nil, 1<<20)
	s.call("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

func (s *serving) write(path, text string) {
	s.t.Helper()
	path = filepath.Join(s.home, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// define writes the definition of an echo server into ~/MCPs.
func (s *serving) define(name, says, more string) {
	s.t.Helper()
	s.write("MCPs/"+name+".json", fmt.Sprintf(`{"mcpServers": {%q: {"command": "python3", "args": [%q, %q]%s}}}`,
		name, filepath.Join(s.home, "echo.py"), says, more))
}

func (s *serving) call(method, params string) json.RawMessage {
	s.t.Helper()
	s.id++
	fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", s.id, method, params)
	for s.out.Scan() {
		var m struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(s.out.Bytes(), &m); err != nil {
			s.t.Fatal(err)
		}
		if m.ID == s.id {
			if m.Error != nil {
				s.t.Fatalf("%s: %s", method, m.Error)
			}
			return m.Result
		}
	}
	s.t.Fatalf("%s: it has ended", method)
	return nil
}

// run runs code and returns the whole result as text.
func (s *serving) run(code string, servers ...string) string {
	s.t.Helper()
	params, err := json.Marshal(map[string]any{"name": "run_python", "arguments": map[string]any{"code": code, "servers": append([]string{}, servers...)}})
	if err != nil {
		s.t.Fatal(err)
	}
	return string(s.call("tools/call", string(params)))
}

func (s *serving) want(result, text string) {
	s.t.Helper()
	if !strings.Contains(result, text) {
		s.t.Errorf("%s\nlacks %s", result, text)
	}
}

// settled waits for longer than the program leaves the files alone after a look
// (50 ms), so that the next execution looks at them.
func settled() { time.Sleep(100 * time.Millisecond) }

// TestDefinitionsChangeUnderARunningServer: what a person does to files takes
// effect on the next run_python of the same process and session.
func TestDefinitionsChangeUnderARunningServer(t *testing.T) {
	s := serve(t)
	s.want(s.run(`x = 1; runtime.discovered_servers()`), `()`)
	s.want(s.run(`1`, "one"), "Unknown MCP server: one")

	s.define("one", "first", "")
	first := s.run(`who = await mcp_one.who(); print(who)`, "one")
	s.want(first, "first ")
	s.want(s.run(`(x, await mcp_one.who() == who, runtime.discovered_servers())`, "one"), `(1, True, ('one',))`)

	// A change that is none leaves the server running; one that is one does not.
	s.define("one", "first", `, "description": "other words"`)
	settled()
	s.want(s.run(`(await mcp_one.who() == who, runtime.discovered_servers(detailed=True)[0]["description"])`, "one"), `(True, 'other words')`)
	s.define("one", "second", "")
	settled()
	s.want(s.run(`(x, await mcp_one.who())`, "one"), "(1, 'second ")

	// Tools that the definition does not let code have are not there.
	s.define("one", "third", `, "disabledTools": ["forbidden"]`)
	settled()
	s.want(s.run(`(await mcp_one.who(), [t["name"] for t in runtime.list_tools_sync("one")])`, "one"), "['who']")
	s.want(s.run(`await runtime.call_tool("one", "forbidden", {})`, "one"), "does not allow this tool")

	// Another client's file, a second server, one switched off, one gone.
	s.write(".cursor/mcp.json", `{"mcpServers": {"one": {"command": "x"}, "two": {"command": "python3", "args": ["${userHome}/echo.py", "two"]}}}`)
	s.want(s.run(`await mcp_two.who()`, "two"), "two ")
	settled()
	s.want(s.run(`runtime.find_servers("two")[0]["state"]`), "ready")
	s.write(".cursor/mcp.json", `{"mcpServers": {"two": {"command": "python3", "disabled": true}}}`)
	settled()
	s.want(s.run(`1`, "two"), "is disabled (the user can enable it: sallyport servers enable two)")
	if err := os.Remove(filepath.Join(s.home, "MCPs/one.json")); err != nil {
		t.Fatal(err)
	}
	settled()
	s.want(s.run(`(x, runtime.discovered_servers())`), "(1, ())")
	s.want(s.run(`1`, "one"), "Unknown MCP server: one")
}

// TestCodeAddsAServer: what the operator's pattern allows is there at once, for
// the life of the process; nothing else is.
func TestCodeAddsAServer(t *testing.T) {
	s := serve(t, func(home string) string {
		return "SALLYPORT_POLICY_REQUESTS=python3 " + filepath.Join(home, "echo.py") + " allowed-*"
	}, func(string) string {
		return "SALLYPORT_APPROVALS_TIMEOUT=never"
	})
	ask := func(name, says string) string {
		return s.run(fmt.Sprintf(`await runtime.request_server(%q, {"command": "python3", "args": [%q, %q]})`, name, filepath.Join(s.home, "echo.py"), says))
	}
	s.want(ask("other", "x"), "sallyport servers approve other")
	s.want(ask("other", "allowed-1 2"), "sallyport servers approve other")
	s.want(ask("new", "allowed-1"), "<MCP server new: who, forbidden>")
	s.want(s.run(`(await mcp_new.who(), [(f["name"], f["state"]) for f in runtime.find_servers()])`, "new"), "[('new', 'ready'), ('other', 'requested')]")
	s.want(ask("new", "allowed-2"), "configured already")
	// A definition of the user's takes its place.
	s.define("new", "mine", "")
	settled()
	s.want(s.run(`await mcp_new.who()`, "new"), "mine ")
}
