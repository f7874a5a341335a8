//go:build unix

package python_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/wire"
)

func TestFindingAndAskingForServers(t *testing.T) {
	answer := func(_ context.Context, c wire.Call) (json.RawMessage, error) {
		switch string(c.Params) {
		case `{"query":""}`:
			return json.RawMessage(`[{"name":"off","state":"disabled","how":"enable it"},{"name":"my-echo","state":"ready","how":"load it"}]`), nil
		case `{"query":"ech\u00f6"}`:
			return json.RawMessage(`[]`), nil
		case `{"name":"new","definition":{"command":"npx","args":["-y","x"]}}`:
			return nil, &wire.CallError{Kind: wire.KindDenied, Message: "noted: sallyport servers approve new"}
		case `{"name":"my-echo","definition":{"url":"https://x"}}`:
			return json.Marshal(echoServer)
		}
		return nil, &wire.CallError{Kind: wire.KindInternal, Message: c.Method + string(c.Params)}
	}
	p := launch(t)
	for _, prog := range []struct{ name, code, stdout, stderr string }{
		{"all", `[(s["name"], s["state"]) for s in find_servers()]`, "[('off', 'disabled'), ('my-echo', 'ready')]\n", ""},
		{"awaited", `(await runtime.find_servers())[0]["how"], type(await runtime.find_servers())`, "('enable it', <class 'list'>)\n", ""},
		{"none", `runtime.find_servers("echö")`, "[]\n", ""},
		{"refused", `await request_server("new", {"command": "npx", "args": ["-y", "x"]})`, "", "MCPError: noted: sallyport servers approve new"},
		{"refused, without await", `request_server_sync("new", {"command": "npx", "args": ["-y", "x"]})`, "", "MCPError: noted"},
		{"granted", `e = await request_server("my-echo", {"url": "https://x"}); e is mcp_my_echo, runtime.list_servers_sync()`, "(True, ('my-echo',))\n", ""},
		{"granted, without await", `request_server_sync("my-echo", {"url": "https://x"}) is mcp_servers["my-echo"]`, "True\n", ""},
		{"no name", `await request_server(5, {})`, "", "name must be a string"},
		{"a command line", `await request_server("x", "npx x")`, "", `must be a dict like {"command"`},
	} {
		t.Run(prog.name, func(t *testing.T) {
			r := p.run(t, wire.Exec{Code: prog.code}, answer)
			if r.err != nil || r.stdout != prog.stdout || !strings.Contains(r.stderr, prog.stderr) || prog.stderr == "" && r.stderr != "" {
				t.Errorf("%v, stdout %q, want %q; stderr %q, want %q in it", r.err, r.stdout, prog.stdout, r.stderr, prog.stderr)
			}
		})
	}
}
