//go:build linux

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A client speaks MCP to one `sallyport serve`, as little of it as is needed.
type client struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	logs  *tail
	ended chan struct{} // the process has ended

	mu      sync.Mutex
	nextID  int
	waiting map[int]chan answer
	strange []string // answers to what was not asked, or is answered
	err     error    // no more answers come
}

// answer is the answer to tools/call.
type answer struct {
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
	IsError    bool `json:"isError"`
	Structured struct {
		Status    string `json:"status"`
		Error     string `json:"error"`
		StateLost string `json:"stateLost"`
		Artifacts []struct {
			URI string `json:"uri"`
		} `json:"artifacts"`
	} `json:"structuredContent"`
	err error
}

func (a answer) text() string {
	var b strings.Builder
	for _, c := range a.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}

func (a answer) String() string {
	return fmt.Sprintf("status %q, stateLost %q, error %v: %.300q", a.Structured.Status, a.Structured.StateLost, a.err, a.text())
}

// dial starts a server of its own, without a hub, and shakes hands.
func dial(t *testing.T, exe string, env []string, who *syscall.Credential, dir string) *client {
	t.Helper()
	c, err := connect(exe, append(env[:len(env):len(env)], "SALLYPORT_HUB_ENABLED=false"), who, dir, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// connect starts `sallyport serve` and shakes hands.
func connect(exe string, env []string, who *syscall.Credential, dir string, limit time.Duration) (*client, error) {
	c := &client{waiting: map[int]chan answer{}, ended: make(chan struct{}), logs: &tail{}}
	c.cmd = exec.Command(exe, "serve")
	c.cmd.Env, c.cmd.Dir = append(env[:len(env):len(env)], "SALLYPORT_OUTPUT_STRUCTURED=always"), dir
	c.cmd.Stderr = c.logs
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: who}
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go c.read(out)
	if a := wait(c.request("initialize", hello), limit); a.err != nil {
		return c, fmt.Errorf("initialize: %w\n%s", a.err, c.logs)
	}
	c.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	return c, nil
}

// hello is what a client says first.
var hello = map[string]any{
	"protocolVersion": "2025-06-18", "capabilities": map[string]any{},
	"clientInfo": map[string]any{"name": "faults", "version": "1"},
}

func (c *client) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var m struct {
			ID     *int            `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  *struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil {
			continue // a notification
		}
		var a answer
		if m.Error != nil {
			a.err = errors.New(m.Error.Message)
		} else if err := json.Unmarshal(m.Result, &a); err != nil {
			a.err = err
		}
		c.mu.Lock()
		ch := c.waiting[*m.ID]
		delete(c.waiting, *m.ID)
		if ch == nil {
			c.strange = append(c.strange, fmt.Sprintf("%.300s", lines.Bytes()))
		}
		c.mu.Unlock()
		if ch != nil {
			ch <- a
		}
	}
	_ = c.cmd.Wait()
	c.mu.Lock()
	c.err = errors.New("the server has ended")
	for _, ch := range c.waiting {
		ch <- answer{err: c.err}
	}
	c.waiting = nil
	c.mu.Unlock()
	close(c.ended)
}

func (c *client) send(v any) {
	b, _ := json.Marshal(v)
	_, _ = c.stdin.Write(append(b, '\n'))
}

// request sends a request; its answer comes on the channel.
func (c *client) request(method string, params any) <-chan answer {
	ch := make(chan answer, 1)
	c.mu.Lock()
	if c.err != nil {
		ch <- answer{err: c.err}
		c.mu.Unlock()
		return ch
	}
	c.nextID++
	id := c.nextID
	c.waiting[id] = ch
	c.mu.Unlock()
	c.send(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	return ch
}

// runPython calls the tool.
func (c *client) runPython(code string) <-chan answer { return c.runIn("", code) }

// runIn calls the tool in a named session, or for an empty name in the process's
// own.
func (c *client) runIn(session, code string) <-chan answer {
	arguments := map[string]any{"code": code, "timeout": 60}
	if session != "" {
		arguments["session"] = session
	}
	return c.request("tools/call", map[string]any{"name": "run_python", "arguments": arguments})
}

// cancelLast gives up the last request.
func (c *client) cancelLast() {
	c.mu.Lock()
	id := c.nextID
	delete(c.waiting, id)
	c.mu.Unlock()
	c.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": id}})
}

var errLate = errors.New("no answer in time")

func wait(ch <-chan answer, limit time.Duration) answer {
	select {
	case a := <-ch:
		return a
	case <-time.After(limit):
		return answer{err: errLate}
	}
}

// hangUp closes the server's input, as a client does that ends, and waits for
// the server's end.
func (c *client) hangUp(ctx context.Context) error {
	_ = c.stdin.Close()
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		_ = c.cmd.Process.Kill()
		<-c.ended
		return errors.New("the server does not end when its client hangs up")
	}
}

// tail keeps the last of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - 16<<10; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
