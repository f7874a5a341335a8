//go:build unix

package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/wire"
)

// serverVariable makes the test binary an MCP server.
const serverVariable = "APP_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) == "" {
		os.Exit(m.Run())
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	add := func(name string, answer func(context.Context) string) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer(ctx)}}}, nil
		})
	}
	add("pid", func(context.Context) string { return fmt.Sprint(os.Getpid()) })
	add("key", func(context.Context) string { return os.Getenv("KEY") })
	add("hang", func(ctx context.Context) string { <-ctx.Done(); return "" })
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}

// shared is a Core in directories of its own, whose servers are in HOME/MCPs.
type shared struct {
	t       *testing.T
	core    *Core
	app     *App
	started atomic.Int64
}

func newShared(t *testing.T, servers map[string]any, flags ...settings.Flag) *shared {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"MCPs", "run", "work", "elsewhere"} {
		if err := os.Mkdir(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(home, "MCPs", "all.json"), file, 0o600); err != nil {
		t.Fatal(err)
	}
	env := Environment{"HOME": home, "PATH": os.Getenv("PATH"), "XDG_RUNTIME_DIR": filepath.Join(home, "run")}
	s := &shared{t: t}
	s.app = s.clientApp(env, "work", flags...)
	if s.core, err = s.app.NewCore(Options{Starting: func(upstream.Definition) func() {
		s.started.Add(1)
		return func() {}
	}}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shared) clientApp(env Environment, dir string, flags ...settings.Flag) *App {
	s.t.Helper()
	dir = filepath.Join(env.Home(), dir)
	set, err := env.LoadSettings(dir, "", append(flags,
		settings.Flag{Name: "--set", Key: "servers.allowSelf", Value: "true"}, // the servers are this executable
		settings.Flag{Name: "--set", Key: "engine", Value: "gvisor"},          // it is not tried
		settings.Flag{Name: "--set", Key: "catalog.refresh", Value: "off"}, settings.Flag{Name: "--set", Key: "carbon.enabled", Value: "false"}))
	if err != nil {
		s.t.Fatal(err)
	}
	return &App{Env: env, Dir: dir, Settings: set, Log: slog.New(slog.DiscardHandler), Version: "1", Life: s.t.Context()}
}

// client adds a client whose environment has these variables, too.
func (s *shared) client(dir string, vars ...string) *Client {
	s.t.Helper()
	env := Environment{}
	for k, v := range s.app.Env {
		env[k] = v
	}
	for _, kv := range vars {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	c, err := s.core.NewClient(s.clientApp(env, dir), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// call calls a tool as code of the client does.
func call(ctx context.Context, c *Client, session, server, tool string) (string, error) {
	me := authz.Local("test")
	if err := c.Bridge.Check(ctx, me, server); err != nil {
		return "", err
	}
	x := c.Bridge.Begin(me, []string{server}).InSession(session)
	if _, err := x.Prepare(ctx); err != nil {
		return "", err
	}
	params, err := json.Marshal(map[string]string{"server": server, "tool": tool})
	if err != nil {
		return "", err
	}
	raw, err := x.Call(ctx, wire.Call{Method: wire.MethodCallTool, Params: params})
	if err != nil {
		return "", err
	}
	var r struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(raw, &r); err != nil || len(r.Content) == 0 {
		return "", fmt.Errorf("%s: %v", raw, err)
	}
	return r.Content[0].Text, nil
}

func (s *shared) call(c *Client, session, server, tool string) string {
	s.t.Helper()
	text, err := call(s.t.Context(), c, session, server, tool)
	if err != nil {
		s.t.Fatalf("%s of %s: %v", tool, server, err)
	}
	return text
}

// testServer defines this test binary as a server.
func testServer(t *testing.T, more map[string]any) map[string]any {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	entry := map[string]any{"command": exe, "env": map[string]string{serverVariable: "1"}}
	for k, v := range more {
		entry[k] = v
	}
	return entry
}

// TestTenClientsFiveServers: the servers of ten clients run once, a call that hangs
// and a client that leaves disturb no other, and nothing is left.
func TestTenClientsFiveServers(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const clients, servers = 10, 5
	defs := map[string]any{}
	for i := range servers {
		defs[fmt.Sprintf("s%d", i)] = testServer(t, nil)
	}
	s := newShared(t, defs)
	defer s.core.Close()
	var all []*Client
	for range clients {
		all = append(all, s.client("work", "SOME_TOKEN=x", "TERM=xterm"))
	}
	stuck, unstick := context.WithCancel(t.Context())
	hung := make(chan error, servers)
	for i := range servers {
		go func() {
			_, err := call(stuck, all[0], "", fmt.Sprintf("s%d", i), "hang")
			hung <- err
		}()
	}
	var mu sync.Mutex
	pids := map[string]map[string]bool{}
	var calls sync.WaitGroup
	for _, c := range all[1:] {
		for i := range servers {
			calls.Go(func() {
				name := fmt.Sprintf("s%d", i)
				pid, err := call(t.Context(), c, "", name, "pid")
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if pids[name] == nil {
					pids[name] = map[string]bool{}
				}
				pids[name][pid] = true
			})
		}
	}
	calls.Wait()
	if got := s.started.Load(); got != servers {
		t.Errorf("got %d starts, want %d", got, servers)
	}
	var processes []string
	for name, of := range pids {
		if len(of) != 1 {
			t.Errorf("%s: got %d processes, want 1", name, len(of))
		}
		for pid := range of {
			processes = append(processes, pid)
		}
	}
	slices.Sort(processes)
	if got := len(slices.Compact(processes)); got != servers {
		t.Errorf("got %d processes, want %d", got, servers)
	}
	all[1].Close()
	if got := s.call(all[2], "", "s0", "pid"); !pids["s0"][got] {
		t.Errorf("after a client has left, the server is process %s, want %v", got, pids["s0"])
	}
	if _, err := call(t.Context(), all[1], "", "s0", "pid"); err == nil {
		t.Error("a client that is closed calls a server")
	}
	unstick()
	for range servers {
		if err := <-hung; err == nil {
			t.Error("a call that hung has a result")
		}
	}
	for _, c := range all {
		c.Close()
	}
	s.core.Close()
	for _, pid := range processes {
		var n int
		if _, err := fmt.Sscan(pid, &n); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(n, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %s is left: %v", pid, err)
		}
	}
}

// TestClientsWithOwnKeys: a variable in a definition has the value of the client
// that defines it.
func TestClientsWithOwnKeys(t *testing.T) {
	s := newShared(t, map[string]any{"a": testServer(t, map[string]any{"env": map[string]string{serverVariable: "1", "KEY": "${MY_KEY}"}})})
	defer s.core.Close()
	one, two, three := s.client("work", "MY_KEY=key-one"), s.client("work", "MY_KEY=key-two"), s.client("work", "MY_KEY=key-one")
	for c, want := range map[*Client]string{one: "key-one", two: "key-two", three: "key-one"} {
		if got := s.call(c, "", "a", "key"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		defer c.Close()
	}
	if a, b := s.call(one, "", "a", "pid"), s.call(two, "", "a", "pid"); a == b {
		t.Errorf("clients with different keys share process %s", a)
	}
	if a, b := s.call(one, "", "a", "pid"), s.call(three, "", "a", "pid"); a != b {
		t.Errorf("clients with one key have processes %s and %s", a, b)
	}
}

// TestWhoShares: for whom a server runs, by its definition and the settings.
func TestWhoShares(t *testing.T) {
	s := newShared(t, map[string]any{
		"all": testServer(t, map[string]any{"cwd": "~"}), "folder": testServer(t, nil),
		"client": testServer(t, map[string]any{"sharing": "client"}), "mine": testServer(t, nil),
		"session": testServer(t, map[string]any{"sharing": "session"}),
	}, settings.Flag{Name: "--set", Key: "servers.sharing", Value: "mine=client"})
	defer s.core.Close()
	one, near, far := s.client("work"), s.client("work"), s.client("elsewhere")
	for _, c := range []*Client{one, near, far} {
		defer c.Close()
	}
	for _, tt := range []struct {
		server    string
		near, far bool // share the process
		sessions  bool // two sessions of the client do
	}{
		{"all", true, true, true},
		{"folder", true, false, true},
		{"client", false, false, true},
		{"mine", false, false, true},
		{"session", true, false, false},
	} {
		pid := s.call(one, "x", tt.server, "pid")
		for _, got := range []struct {
			who    string
			pid    string
			shares bool
		}{
			{"a client in the same directory", s.call(near, "x", tt.server, "pid"), tt.near},
			{"a client in another directory", s.call(far, "x", tt.server, "pid"), tt.far},
			{"another session", s.call(one, "y", tt.server, "pid"), tt.sessions},
			{"the same session again", s.call(one, "x", tt.server, "pid"), true},
		} {
			if shares := got.pid == pid; shares != got.shares {
				t.Errorf("%s, %s: got shared %t, want %t", tt.server, got.who, shares, got.shares)
			}
		}
	}
}
