//go:build linux

package smoke

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"
)

// A client is the official one, with a "sallyport serve" of its own.
type client struct {
	session *mcp.ClientSession
	command *exec.Cmd
	said    *said
	told    chan string // progress messages
}

// said keeps what a process logs.
type said struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// connect starts a server and connects to it with a revision of the protocol,
// or "auto" for the client's own choice.
func connect(ctx context.Context, name, revision string, command *exec.Cmd) (*client, error) {
	c := &client{command: command, said: &said{}, told: make(chan string, 1000)}
	command.Stderr = c.said
	options := &mcp.ClientSessionOptions{}
	if revision != "auto" {
		options.ProtocolVersion = revision
	}
	var err error
	c.session, err = mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			select {
			case c.told <- r.Params.Message:
			default:
			}
		},
	}).Connect(ctx, &mcp.CommandTransport{Command: command, TerminateDuration: patience}, options)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w\n%s", err, c.said)
	}
	return c, nil
}

// passed are the variables of a script that its clients get.
var passed = []string{
	"HOME", "PATH", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "SALLYPORT_HUB_ENABLED", "SALLYPORT_OUTPUT_STRUCTURED", "SALLYPORT_HUB_IDLE", "SALLYPORT_POLICY_PROFILE",
	"SALLYPORT_APPROVALS_TIMEOUT", "SALLYPORT_TIMEOUTS_GRACE", "SALLYPORT_ENGINE",
}

// clients are those of all scripts, by name.
type clients struct {
	mu  sync.Mutex
	all map[*testscript.TestScript]map[string]*client
}

// commands are for scripts:
//
//	serve NAME [args]                  starts a server and connects to it; PID_NAME is its process
//	call NAME SESSION CODE [SECONDS]   runs code, in the client's own session for "-"; the text of
//	                                   the result is the output, its structured content the errors
//	eventually NAME SESSION CODE       runs code until it succeeds, for what takes effect soon
//	cancel NAME CODE                   runs code that prints "up", and then cancels the request
//	hangup NAME                        ends the connection, and with it the server
//	kill9 NAME                         kills the server, and waits until its sandboxes have ended
func (c *clients) commands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	c.all = map[*testscript.TestScript]map[string]*client{}
	return map[string]func(ts *testscript.TestScript, neg bool, args []string){
		"serve": c.serve, "call": c.call, "eventually": c.eventually, "cancel": c.cancel, "hangup": c.hangUp,
	}
}

func (c *clients) get(ts *testscript.TestScript, name string) *client {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.all[ts][name]
	if one == nil {
		ts.Fatalf("there is no client %s", name)
	}
	return one
}

func (c *clients) serve(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: serve NAME [args]")
	}
	command := exec.Command(ts.Getenv("SALLYPORT"), append([]string{"serve"}, args[1:]...)...)
	command.Dir = ts.MkAbs(".")
	command.Env = []string{}
	for _, name := range passed {
		if v := ts.Getenv(name); v != "" {
			command.Env = append(command.Env, name+"="+v)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	one, err := connect(ctx, "client "+args[0], "auto", command)
	ts.Check(err)
	ts.Defer(func() {
		_ = one.session.Close()
		ts.Logf("%s logged:\n%s", args[0], one.said)
	})
	c.mu.Lock()
	if c.all[ts] == nil {
		c.all[ts] = map[string]*client{}
	}
	c.all[ts][args[0]] = one
	c.mu.Unlock()
	ts.Setenv("PID_"+args[0], strconv.Itoa(command.Process.Pid))
}

func (c *clients) call(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 && len(args) != 4 {
		ts.Fatalf("usage: call NAME SESSION CODE [SECONDS]")
	}
	if failed := c.run(ts, args); failed != neg {
		ts.Fatalf("the result's isError is %v", failed)
	}
}

func (c *clients) eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: eventually NAME SESSION CODE")
	}
	for end := time.Now().Add(patience); c.run(ts, args); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("it does not succeed")
		}
	}
}

// run makes a call, prints its result, and reports whether that is an error.
func (c *clients) run(ts *testscript.TestScript, args []string) bool {
	arguments := map[string]any{"code": strings.ReplaceAll(args[2], `\n`, "\n")}
	if args[1] != "-" {
		arguments["session"] = args[1]
	}
	if len(args) == 4 {
		seconds, err := strconv.Atoi(args[3])
		ts.Check(err)
		arguments["timeout"] = seconds
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := c.get(ts, args[0]).session.CallTool(ctx, &mcp.CallToolParams{Name: "run_python", Arguments: arguments})
	ts.Check(err)
	for _, block := range r.Content {
		if b, ok := block.(*mcp.TextContent); ok {
			fmt.Fprintln(ts.Stdout(), b.Text)
			ts.Logf("%.2000s", b.Text)
		}
	}
	structured, err := json.Marshal(r.StructuredContent)
	ts.Check(err)
	fmt.Fprintf(ts.Stderr(), "%s\n", structured)
	return r.IsError
}

func (c *clients) cancel(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: cancel NAME CODE")
	}
	one := c.get(ts, args[0])
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request := &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": strings.ReplaceAll(args[1], `\n`, "\n")}}
	request.SetProgressToken("token")
	done := make(chan error, 1)
	go func() {
		r, err := one.session.CallTool(ctx, request)
		if err == nil {
			text, _ := json.Marshal(r)
			err = fmt.Errorf("it was answered: %s", text)
		}
		done <- err
	}()
	for up := false; !up; {
		select {
		case message := <-one.told:
			up = message == "up"
		case err := <-done:
			ts.Fatalf("before the code was up: %v", err)
		}
	}
	cancel()
	if err := <-done; !strings.Contains(err.Error(), context.Canceled.Error()) {
		ts.Fatalf("got %v, want that the request was cancelled", err)
	}
}

func (c *clients) hangUp(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hangup NAME")
	}
	ts.Check(c.get(ts, args[0]).session.Close())
}
