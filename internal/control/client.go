package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/socket"
)

// maxAnswer bounds what a process may answer.
const maxAnswer = 4 << 20

// A Client speaks with one process.
type Client struct {
	dir, name string
	http      *http.Client
}

// Find returns a client for each socket in dir, and removes those that dead
// processes left. A process that does not answer is found when it is asked.
func Find(dir string) ([]*Client, error) {
	if !socket.Supported {
		return nil, nil
	}
	root, err := private.Existing(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	var list []*Client
	for _, e := range entries {
		if e.Type() != fs.ModeSocket || !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		if strings.HasPrefix(e.Name(), ".") {
			// One that is about to get its name, unless its process has died.
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > bindTimeout {
				_ = root.Remove(e.Name())
			}
			continue
		}
		c := &Client{dir: dir, name: e.Name()}
		// A connection for each request: nothing is left open.
		c.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: c.dial}}
		conn, err := c.dial(context.Background(), "", "")
		if err == nil {
			_ = conn.Close()
			list = append(list, c)
			continue
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			_ = root.Remove(e.Name())
		}
	}
	return list, nil
}

func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return socket.Dial(ctx, c.dir, c.name)
}

// ErrGone: the process ended while it was asked.
var ErrGone = errors.New("the process has ended")

// ErrRefused: the process answered, and did not do what it was asked.
var ErrRefused = errors.New("refused by the process")

// gone reports whether no process listens at the socket any more.
func (c *Client) gone() bool {
	conn, err := c.dial(context.Background(), "", "")
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// PID is the process's number, as its socket's name has it.
func (c *Client) PID() int {
	var pid int
	_, _ = fmt.Sscanf(c.name, "%d-", &pid) // 0 where it has none
	return pid
}

// Process asks what the process is and has.
func (c *Client) Process(ctx context.Context) (Process, error) {
	var p Process
	err := c.ask(ctx, http.MethodGet, "/process", nil, &p)
	return p, err
}

// Stats asks what the process has counted.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	err := c.ask(ctx, http.MethodGet, "/stats", nil, &s)
	return s, err
}

// Stop ends the process, which is a hub, once nothing runs, or after wait.
func (c *Client) Stop(ctx context.Context, wait time.Duration) error {
	return c.ask(ctx, http.MethodPost, "/stop", request{Wait: wait}, nil)
}

// Suspend suspends a session. The error of this and the following methods
// is session.ErrUnknown or hibernate.ErrElsewhere where that is the reason.
func (c *Client) Suspend(ctx context.Context, key session.Key) error {
	return c.ask(ctx, http.MethodPost, "/suspend", request{Key: key}, nil)
}

// Resume resumes a session in that process.
func (c *Client) Resume(ctx context.Context, key session.Key) error {
	return c.ask(ctx, http.MethodPost, "/resume", request{Key: key}, nil)
}

// Reset forgets a session's state.
func (c *Client) Reset(ctx context.Context, key session.Key) error {
	return c.ask(ctx, http.MethodPost, "/reset", request{Key: key}, nil)
}

// Remove forgets a session's state and its log.
func (c *Client) Remove(ctx context.Context, key session.Key) error {
	return c.ask(ctx, http.MethodPost, "/remove", request{Key: key}, nil)
}

// Export has the process write a session's archive to a new file.
func (c *Client) Export(ctx context.Context, key session.Key, file string) error {
	return c.ask(ctx, http.MethodPost, "/export", request{Key: key, File: file}, nil)
}

// Import has the process make a session of an archive.
func (c *Client) Import(ctx context.Context, key session.Key, file string) error {
	return c.ask(ctx, http.MethodPost, "/import", request{Key: key, File: file}, nil)
}

// Questions asks for the questions that are open.
func (c *Client) Questions(ctx context.Context) (Questions, error) {
	var q Questions
	err := c.ask(ctx, http.MethodGet, "/approvals", nil, &q)
	return q, err
}

// Question asks for an open question with its calls.
func (c *Client) Question(ctx context.Context, id string) (approval.Question, error) {
	var q approval.Question
	err := c.ask(ctx, http.MethodPost, "/approval", request{Answer: &approval.Answer{ID: id}}, &q)
	return q, err
}

// Answer answers a question. The error is approval.ErrUnknown where that is the
// reason.
func (c *Client) Answer(ctx context.Context, a approval.Answer) (approval.Outcome, error) {
	var out approval.Outcome
	err := c.ask(ctx, http.MethodPost, "/answer", request{Answer: &a}, &out)
	return out, err
}

func (c *Client) ask(ctx context.Context, method, path string, asked, answer any) error {
	var body io.Reader
	if asked != nil {
		data, err := json.Marshal(asked)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(data) > maxAnswer {
		err = fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", c.PID(), err)
	}
	if resp.StatusCode != http.StatusOK {
		var f failure
		if json.Unmarshal(data, &f) != nil || f.Error == "" {
			return fmt.Errorf("process %d answered %s", c.PID(), resp.Status)
		}
		return &refused{f}
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("process %d: %w", c.PID(), err)
	}
	return nil
}

// send sends a request; the caller closes the answer's body.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://sallyport"+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(r)
	switch {
	case err == nil:
		return resp, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case c.gone():
		return nil, fmt.Errorf("%w: process %d", ErrGone, c.PID())
	}
	return nil, fmt.Errorf("process %d does not answer: %w", c.PID(), err)
}

// refused is a failure that the process told.
type refused struct{ failure }

func (r *refused) Error() string { return r.failure.Error }

func (r *refused) Is(target error) bool {
	return target == ErrRefused || target == session.ErrUnknown && r.Kind == kindUnknown || target == approval.ErrUnknown && r.Kind == kindQuestion || target == hibernate.ErrElsewhere && r.Kind == kindElsewhere
}
