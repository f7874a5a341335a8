package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A client speaks MCP to a child process over its standard streams with as
// little of its own between as can be: one write a request, one read a line.
// It belongs to one goroutine.
type client struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	pipe   interface{ SetReadDeadline(time.Time) error } // below out
	out    *bufio.Reader
	stderr *tail
	next   int
}

// A launch says how children are started: as whom, and with what environment.
type launch struct {
	cred *syscall.Credential // nil: as ourselves
	env  []string
	dir  string
}

func (l launch) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir = l.env, l.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: l.cred}
	return cmd
}

func start(l launch, name string, args ...string) (*client, error) {
	c := &client{cmd: l.command(name, args...), stderr: &tail{limit: 8 << 10}}
	c.cmd.Stderr = c.stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	pipe, ok := out.(*os.File)
	if !ok {
		return nil, errors.New("the child's output is no pipe")
	}
	c.in, c.pipe, c.out = in, pipe, bufio.NewReaderSize(out, 64<<10)
	return c, c.cmd.Start()
}

// close ends the child as a client does: it closes standard input and waits.
func (c *client) close() error {
	if err := c.in.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- c.cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		kill := c.cmd.Process.Kill()
		<-done
		return errors.Join(errors.New("the server did not end within a minute of its input's end"), kill)
	}
}

// reply is an answer whose result has the form R, so that it is decoded in one
// pass.
type reply[R any] struct {
	ID     *int   `json:"id"`
	Method string `json:"method"`
	Result R      `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (c *client) send(method string, params any) (int, error) {
	c.next++
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.next, "method": method, "params": params})
	if err != nil {
		return 0, err
	}
	_, err = c.in.Write(append(line, '\n'))
	return c.next, err
}

func (c *client) notify(method string) error {
	_, err := fmt.Fprintf(c.in, `{"jsonrpc":"2.0","method":%q}`+"\n", method)
	return err
}

// patience is how long an answer may take before the measurement has failed.
const patience = 90 * time.Second

// receive returns the next answer, whichever request it belongs to.
func receive[R any](c *client) (reply[R], error) {
	var r reply[R]
	if err := c.pipe.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return r, err
	}
	for {
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			return r, fmt.Errorf("%w; its standard error: %.2000s", err, c.stderr)
		}
		r = reply[R]{}
		if err := json.Unmarshal(line, &r); err != nil {
			return r, fmt.Errorf("%w in %.200q", err, line)
		}
		switch {
		case r.Method != "": // a notification, or a request that we take no part in
		case r.Error != nil:
			return r, fmt.Errorf("error %d: %s", r.Error.Code, r.Error.Message)
		default:
			return r, nil
		}
	}
}

func request[R any](c *client, method string, params any) (R, error) {
	id, err := c.send(method, params)
	if err != nil {
		return *new(R), err
	}
	r, err := receive[R](c)
	if err != nil {
		return r.Result, fmt.Errorf("%s: %w", method, err)
	}
	if r.ID == nil || *r.ID != id {
		return r.Result, fmt.Errorf("%s: an answer to another request", method)
	}
	return r.Result, nil
}

// initialize shakes hands and returns the server's instructions.
func (c *client) initialize(version string) (string, error) {
	r, err := request[struct {
		ProtocolVersion, Instructions string
	}](c, "initialize", map[string]any{
		"protocolVersion": version,
		"capabilities":    map[string]any{},
		"clientInfo":      map[string]string{"name": "sallyport-bench", "version": "1"},
	})
	if err != nil {
		return "", err
	}
	if r.ProtocolVersion != version {
		return "", fmt.Errorf("asked for revision %s, got %s", version, r.ProtocolVersion)
	}
	return r.Instructions, c.notify("notifications/initialized")
}

type toolResult struct {
	Content []struct {
		Type, Text string
	}
	IsError bool
}

func (r toolResult) text() string {
	if len(r.Content) == 1 {
		return r.Content[0].Text
	}
	var parts []string
	for _, c := range r.Content {
		parts = append(parts, c.Text)
	}
	return strings.Join(parts, "\n")
}

func (r toolResult) failure() error {
	if r.IsError {
		return fmt.Errorf("the tool failed: %.600s", r.text())
	}
	return nil
}

// tool calls a tool and returns its text.
func (c *client) tool(name string, arguments any) (string, error) {
	r, err := request[toolResult](c, "tools/call", map[string]any{"name": name, "arguments": arguments})
	if err == nil {
		err = r.failure()
	}
	return r.text(), err
}

// python runs code through run_python.
func (c *client) python(code string, servers ...string) (string, error) {
	arguments := map[string]any{"code": code}
	if len(servers) > 0 {
		arguments["servers"] = servers
	}
	return c.tool("run_python", arguments)
}

// tail keeps the last bytes written to it, for error messages. It is safe for
// concurrent use: a process's standard error is copied by a goroutine of its
// own.
type tail struct {
	limit int
	mu    sync.Mutex
	buf   []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - t.limit; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
