//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

// startTimeout bounds a start, execTimeout one execution. Both are far longer
// than needed, so that only a hang reaches them.
const (
	startTimeout = 60 * time.Second
	execTimeout  = 90 * time.Second
	settleTime   = 10 * time.Second
)

// suite is the state shared by all parts of one run of the suite.
type suite struct {
	cfg    *Config
	report *sandbox.Report
	mark   string // begins the ID of every run
	// restores makes start return sandboxes that were restored from a snapshot
	// of the one that it started.
	restores bool
	// proofs are those of the positive controls. One run of the catalogue
	// passes them to the next.
	proofs map[string]proof
}

// backend makes a backend that is closed when t ends.
func (s *suite) backend(t *testing.T) sandbox.Engine {
	t.Helper()
	b := s.cfg.New(t)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

// spec returns a spec with an ID of its own.
func (s *suite) spec() *sandbox.Spec {
	return &sandbox.Spec{
		ID:      s.mark + "-" + strings.ToLower(rand.Text()[:8]),
		Owner:   "sandboxtest",
		Program: python.Program(),
		Root:    s.cfg.Root,
	}
}

// enforced reports whether the engine claims any limit on r here.
func (s *suite) enforced(r sandbox.Resource) bool {
	return s.report.Limits[r].Enforcement != sandbox.Absent
}

// needLimit skips t if the engine claims no limit on r.
func (s *suite) needLimit(t *testing.T, r sandbox.Resource) {
	t.Helper()
	if !s.enforced(r) {
		Skip(t, s.cfg.Engine+".limits."+string(r), "the engine reports no limit on "+string(r)+": "+s.report.Limits[r].By)
	}
}

// A session is a run together with the conversation with its guest.
type session struct {
	run  sandbox.Run
	conn *guest.Conn
}

// start starts a sandbox and waits until its guest is ready. The sandbox is
// destroyed when t ends.
func (s *suite) start(t *testing.T, b sandbox.Engine, spec *sandbox.Spec) *session {
	t.Helper()
	return s.startWith(t, b, spec, guest.Options{})
}

func (s *suite) startWith(t *testing.T, b sandbox.Engine, spec *sandbox.Spec, opts guest.Options) *session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	run, err := b.Start(ctx, spec)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	sess := &session{run: run}
	t.Cleanup(func() { sess.destroy(t) })
	d, ok := sandbox.As[sandbox.Duplexer](run)
	if !ok {
		t.Fatal("the report says duplex, but the run has no channel")
	}
	ch := d.Channel()
	sess.conn = guest.Open(ch.Stdin, ch.Stdout, ch.Stderr, opts)
	if _, err := sess.conn.Ready(ctx); err != nil {
		logs := ""
		if l, ok := sandbox.As[sandbox.Logger](run); ok {
			logs, _ = l.Logs(ctx)
		}
		t.Fatalf("Ready: %v\n%s", err, logs)
	}
	if s.restores {
		return s.restore(t, b, s.take(t, sess, spec, false))
	}
	return sess
}

// destroy ends the session. It is idempotent.
func (sess *session) destroy(t testing.TB) {
	t.Helper()
	if sess.conn != nil {
		_ = sess.conn.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	if err := sess.run.Destroy(ctx); err != nil {
		t.Errorf("Destroy: %v", err)
	}
}

// exit waits for the run's end.
func (sess *session) exit(t *testing.T) sandbox.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	e, err := sess.run.Wait(ctx)
	if err != nil {
		t.Fatalf("the run has not ended: %v", err)
	}
	return e
}

// A result is how an execution ended.
type result struct {
	Status    wire.Status
	ExitCode  int
	Stdout    string
	Stderr    string
	Truncated bool  // more was written than is kept
	Err       error // the conversation ended first
}

// alive reports whether the interpreter survived the execution.
func (r result) alive() bool { return r.Err == nil }

// An execution is code under way in a session.
type execution struct {
	x *guest.Execution
	h *collector
}

// begin starts code and returns at once.
func (sess *session) begin(t testing.TB, code string) *execution {
	t.Helper()
	h := &collector{limit: 64 << 20, wrote: make(chan struct{}, 1)}
	x, err := sess.conn.Start(wire.Exec{Code: code}, h)
	if err != nil {
		h.failed = err
		return &execution{h: h}
	}
	return &execution{x: x, h: h}
}

// wait waits up to limit for an execution to end.
func (e *execution) wait(t testing.TB, limit time.Duration) result {
	t.Helper()
	if e.x == nil {
		return result{Err: e.h.failed}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-e.x.Done():
	case <-timer.C:
		r := e.h.result()
		t.Fatalf("no end within %v\nstdout: %.2000s\nstderr: %.2000s", limit, r.Stdout, r.Stderr)
	}
	o, err := e.x.Result()
	r := e.h.result()
	r.Status, r.ExitCode, r.Err = o.Status, o.ExitCode, err
	return r
}

// exec executes code and waits until it ends in whatever way.
func (sess *session) exec(t testing.TB, code string) result {
	t.Helper()
	return sess.begin(t, code).wait(t, execTimeout)
}

// must executes code that has to succeed, and returns its standard output.
func (sess *session) must(t testing.TB, code string) string {
	t.Helper()
	r := sess.exec(t, code)
	if r.Err != nil || r.Status != wire.StatusOK {
		t.Fatalf("%s: %v\nstdout: %.2000s\nstderr: %.4000s", r.Status, r.Err, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// usable fails t if the session does not answer correctly.
func (sess *session) usable(t testing.TB, who string) {
	t.Helper()
	r := sess.exec(t, "print(6 * 7)")
	if r.Err != nil || strings.TrimSpace(r.Stdout) != "42" {
		t.Errorf("%s does not answer any more: %q, %v %s", who, r.Stdout, r.Err, r.Stderr)
	}
}

// collector keeps what an execution writes, up to a limit, and answers calls.
type collector struct {
	limit  int
	failed error
	wrote  chan struct{}
	answer func(context.Context, wire.Call) (json.RawMessage, error)

	mu             sync.Mutex
	stdout, stderr bytes.Buffer
	truncated      bool
}

// Output implements guest.Handler.
func (c *collector) Output(s wire.Stream, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	buf := &c.stdout
	if s == wire.Stderr {
		buf = &c.stderr
	}
	if room := max(0, c.limit-buf.Len()); len(b) > room {
		b, c.truncated = b[:room], true
	}
	buf.Write(b)
	select {
	case c.wrote <- struct{}{}:
	default:
	}
}

// Call implements guest.Handler.
func (c *collector) Call(ctx context.Context, call wire.Call) (json.RawMessage, error) {
	if c.answer == nil {
		return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "the suite has no servers"}
	}
	return c.answer(ctx, call)
}

func (c *collector) result() result {
	c.mu.Lock()
	defer c.mu.Unlock()
	return result{Stdout: c.stdout.String(), Stderr: c.stderr.String(), Truncated: c.truncated}
}

// saw waits until the execution has written text to standard output.
func (e *execution) saw(t testing.TB, text string, limit time.Duration) {
	t.Helper()
	if e.x == nil {
		t.Fatalf("not started: %v", e.h.failed)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		r := e.h.result()
		if strings.Contains(r.Stdout, text) {
			return
		}
		select {
		case <-e.h.wrote:
		case <-e.x.Done():
			if r := e.h.result(); !strings.Contains(r.Stdout, text) {
				_, err := e.x.Result()
				t.Fatalf("it ended without writing %q: %v\n%.2000s\n%.2000s", text, err, r.Stdout, r.Stderr)
			}
			return
		case <-timer.C:
			t.Fatalf("%q did not come within %v:\n%.2000s", text, limit, r.Stdout)
		}
	}
}

// isKind reports whether err is one of the contract's errors.
func isKind(err error, kinds ...error) bool {
	for _, k := range kinds {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}
