//go:build unix

package guest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/guest/guesttest"
	"github.com/sallyport/sallyport/internal/wire"
)

// scripted is the guest's end of a connection, played by a test.
type scripted struct {
	*Conn
	t      *testing.T
	stdin  *os.File // what the host sends
	stdout *os.File
	stderr *os.File
	frames *wire.Reader
	stray  *guesttest.Recorder
}

func script(t *testing.T, opts Options) *scripted {
	t.Helper()
	s := &scripted{t: t, stray: guesttest.NewRecorder()}
	var hostIn, hostOut, hostErr *os.File
	s.stdin, hostIn = newPipe(t)
	hostOut, s.stdout = newPipe(t)
	hostErr, s.stderr = newPipe(t)
	s.frames = wire.NewReader(s.stdin)
	if opts.IdleOutput == nil {
		opts.IdleOutput = s.stray.Add
	}
	s.Conn = Open(hostIn, hostOut, hostErr, opts)
	t.Cleanup(func() {
		s.Close()
		s.stdin.Close()
		s.stdout.Close()
		s.stderr.Close()
	})
	return s
}

func (s *scripted) control(format string, args ...any) {
	s.t.Helper()
	if _, err := s.stdout.Write(wire.AppendControl(nil, fmt.Appendf(nil, format, args...))); err != nil {
		s.t.Error(err)
	}
}

func (s *scripted) output(kind wire.Kind, payload string) {
	s.t.Helper()
	if _, err := s.stderr.Write(wire.AppendOutput(nil, kind, []byte(payload))); err != nil {
		s.t.Error(err)
	}
}

// next reads a frame of the host's.
func (s *scripted) next() map[string]any {
	s.t.Helper()
	b, err := s.frames.Control(wire.MaxToGuest)
	if err != nil {
		s.t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		s.t.Fatal(err)
	}
	return m
}

// start begins an execution and returns its nonce.
func (s *scripted) start(h Handler) (*Execution, string) {
	s.t.Helper()
	x, err := s.Start(wire.Exec{Code: "pass"}, h)
	if err != nil {
		s.t.Fatal(err)
	}
	return x, s.next()["nonce"].(string)
}

func ended(x *Execution) bool {
	select {
	case <-x.Done():
		return true
	case <-time.After(30 * time.Millisecond):
		return false
	}
}

func TestEndNeedsBoth(t *testing.T) {
	for _, nonceFirst := range []bool{false, true} {
		s := script(t, Options{})
		x, nonce := s.start(guesttest.NewHandler(nil))
		done := func() { s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0}`, x.ID()) }
		drained := func() { s.output(wire.KindNonce, nonce) }
		first, second := done, drained
		if nonceFirst {
			first, second = drained, done
		}
		first()
		if ended(x) {
			t.Fatal("ended by half")
		}
		second()
		if o, err := x.Result(); err != nil || o.Status != wire.StatusOK {
			t.Error(o, err)
		}
	}
}

// TestEndWithoutNonce: an execution that says that it is drained ends with the frame
// done, which has its last output.
func TestEndWithoutNonce(t *testing.T) {
	s := script(t, Options{})
	h := guesttest.NewHandler(nil)
	x, _ := s.start(h)
	s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0,"drained":true,"stdout":"forged"}`, x.ID()+1)
	s.output(wire.KindStdout, "a")
	<-h.Arrived
	s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0,"drained":true,"stdout":"b\n"}`, x.ID())
	if o, err := x.Result(); err != nil || !o.Drained || o.Stdout != "" || h.Stdout() != "ab\n" {
		t.Errorf("Result = %+v, %v; output %q, want %q", o, err, h.Stdout(), "ab\n")
	}
	s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0,"drained":true,"stdout":"again"}`, x.ID())
	next := guesttest.NewHandler(nil)
	y, nonce := s.start(next)
	s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0}`, y.ID())
	s.output(wire.KindNonce, nonce)
	if _, err := y.Result(); err != nil || next.Stdout() != "" || h.Stdout() != "ab\n" {
		t.Errorf("the next: %v; output %q, want none; the first's %q", err, next.Stdout(), h.Stdout())
	}
}

func TestForgedEnds(t *testing.T) {
	s := script(t, Options{})
	x, nonce := s.start(guesttest.NewHandler(nil))
	s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0}`, x.ID()+1)
	s.output(wire.KindNonce, "guess")
	s.control(`{"type":"cancel","id":99}`)
	s.control(`{"type":"ready","protocol":1,"runtime":"9"}`)
	s.control(`{"type":"ready","protocol":1,"runtime":"8"}`)
	if ended(x) {
		t.Fatal("a forged frame ended it")
	}
	if r, err := s.Ready(t.Context()); err != nil || r.Runtime != "9" {
		t.Error(r, err)
	}
	s.output(wire.KindNonce, nonce)
	s.control(`{"type":"done","id":%d,"status":"error","exitCode":1}`, x.ID())
	s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0}`, x.ID())
	s.output(wire.KindNonce, nonce)
	if o, err := x.Result(); err != nil || o.Status != wire.StatusError {
		t.Error(o, err)
	}
	// The next one is not touched by what was said twice.
	y, nonce := s.start(guesttest.NewHandler(nil))
	if ended(y) {
		t.Fatal("ended by frames of the last one")
	}
	s.output(wire.KindNonce, nonce)
	s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0}`, y.ID())
	if _, err := y.Result(); err != nil {
		t.Error(err)
	}
}

func TestOneAtATime(t *testing.T) {
	s := script(t, Options{})
	s.start(guesttest.NewHandler(nil))
	if _, err := s.Start(wire.Exec{}, guesttest.NewHandler(nil)); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
}

func TestStrayOutput(t *testing.T) {
	s := script(t, Options{})
	s.output(wire.KindStdout, "before")
	<-s.stray.Arrived
	h := guesttest.NewHandler(nil)
	x, nonce := s.start(h)
	s.output(wire.KindStderr, "in")
	s.output(wire.KindNonce, nonce)
	s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0}`, x.ID())
	<-x.Done()
	s.output(wire.KindStderr, "after")
	<-s.stray.Arrived
	if h.Stdout() != "" || h.Stderr() != "in" || s.stray.Stdout() != "before" || s.stray.Stderr() != "after" {
		t.Errorf("%q %q %q %q", h.Stdout(), h.Stderr(), s.stray.Stdout(), s.stray.Stderr())
	}
}

func TestMalformedFramesEndTheConversation(t *testing.T) {
	tests := []struct {
		name string
		do   func(s *scripted)
	}{
		{"no JSON", func(s *scripted) { s.control("hello") }},
		{"unknown type", func(s *scripted) { s.control(`{"type":"exec"}`) }},
		{"other protocol", func(s *scripted) { s.control(`{"type":"ready","protocol":2,"runtime":"3"}`) }},
		{"oversized", func(s *scripted) {
			_, _ = s.stdout.Write(binary.BigEndian.AppendUint32(nil, wire.MaxFromGuest+1))
		}},
		{"oversized output", func(s *scripted) {
			s.output(wire.KindStdout, "x")
			_, _ = s.stderr.Write(binary.BigEndian.AppendUint32(nil, wire.MaxOutput+1))
		}},
		{"empty output frame", func(s *scripted) {
			s.output(wire.KindStdout, "x")
			_, _ = s.stderr.Write(make([]byte, 4))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := script(t, Options{})
			x, _ := s.start(guesttest.NewHandler(nil))
			tt.do(s)
			if _, err := x.Result(); !errors.Is(err, ErrProtocol) {
				t.Error(err)
			}
			<-s.Dead()
			if _, err := s.Start(wire.Exec{}, guesttest.NewHandler(nil)); !errors.Is(err, ErrProtocol) {
				t.Error(err)
			}
		})
	}
}

func TestDeath(t *testing.T) {
	t.Run("said how", func(t *testing.T) {
		s := script(t, Options{})
		h := guesttest.NewHandler(nil)
		x, _ := s.start(h)
		s.output(wire.KindStdout, "last words")
		s.output(wire.KindExit, `{"signal":9}`)
		s.stdout.Close()
		_, err := x.Result()
		var d *Died
		if !errors.As(err, &d) || d.Signal != 9 || !d.Known || h.Stdout() != "last words" {
			t.Error(err, h.Stdout())
		}
		if !strings.Contains(err.Error(), "signal 9 (killed)") {
			t.Error(err)
		}
	})
	t.Run("after the done frame", func(t *testing.T) {
		s := script(t, Options{})
		x, nonce := s.start(guesttest.NewHandler(nil))
		s.output(wire.KindNonce, nonce)
		s.output(wire.KindExit, `{"code":0}`)
		s.stderr.Close()
		time.Sleep(20 * time.Millisecond) // the other stream is late
		s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0}`, x.ID())
		if o, err := x.Result(); err != nil || o.Status != wire.StatusOK {
			t.Error(o, err)
		}
		s.stdout.Close()
		<-s.Dead()
	})
	t.Run("silently", func(t *testing.T) {
		s := script(t, Options{})
		x, _ := s.start(guesttest.NewHandler(nil))
		s.stdout.Close()
		s.stderr.Close()
		var d *Died
		if _, err := x.Result(); !errors.As(err, &d) || d.Known {
			t.Error(err)
		}
	})
	t.Run("before it started", func(t *testing.T) {
		s := script(t, Options{})
		fmt.Fprint(s.stderr, "python3: can't open file\x07")
		s.stderr.Close()
		s.stdout.Close()
		var d *Died
		if _, err := s.Ready(t.Context()); !errors.As(err, &d) || d.Diagnostics != "python3: can't open file" {
			t.Error(err)
		}
	})
	t.Run("one stream hangs", func(t *testing.T) {
		s := script(t, Options{})
		x, _ := s.start(guesttest.NewHandler(nil))
		s.stderr.Close()
		if _, err := x.Result(); err == nil {
			t.Error("no error")
		}
	})
}

func TestReadyGivesUp(t *testing.T) {
	s := script(t, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	s.Close()
	if _, err := s.Ready(t.Context()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestCallsAreRefused(t *testing.T) {
	s := script(t, Options{MaxCalls: 2})
	x, nonce := s.start(guesttest.NewHandler(never))
	expect := func(kind string) {
		t.Helper()
		m := s.next()
		e, _ := m["error"].(map[string]any)
		if m["ok"] != false || e["kind"] != kind {
			t.Errorf("%v, want an error of kind %s", m, kind)
		}
	}
	call := func(id, run uint64) {
		s.control(`{"type":"call","id":%d,"run":%d,"method":"call_tool","params":{}}`, id, run)
	}
	call(1, x.ID()+1)
	expect(wire.KindCancelled)
	call(2, x.ID())
	call(2, x.ID())
	expect(wire.KindInvalid)
	call(3, x.ID())
	call(4, x.ID())
	expect(wire.KindLimit)
	s.control(`{"type":"cancel","id":3}`)
	deadline := time.Now().Add(time.Minute)
	for id := uint64(5); ; id += 2 { // until the cancelled one has gone
		call(id, x.ID())
		call(id+1, x.ID()+1) // is refused in any case, after an answer to the first
		m := s.next()
		if m["id"] == float64(id+1) {
			break
		}
		if e, _ := m["error"].(map[string]any); e["kind"] != wire.KindLimit {
			t.Fatalf("call %d: %v, want an error of kind %s", id, m, wire.KindLimit)
		}
		expect(wire.KindCancelled)
		if time.Now().After(deadline) {
			t.Fatal("a cancelled call stays")
		}
		time.Sleep(time.Millisecond)
	}
	s.output(wire.KindNonce, nonce)
	s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0}`, x.ID())
	<-x.Done()
	call(100, x.ID())
	expect(wire.KindCancelled)
}

// Results that may be large are not made while as many wait for the guest to
// read them; other calls do not wait for those.
func TestLargeResultsWait(t *testing.T) {
	s := script(t, Options{})
	var mu sync.Mutex
	const atOnce = 1
	under, most, all := 0, 0, 5
	begun, release := make(chan struct{}, all), make(chan struct{})
	x, nonce := s.start(guesttest.NewHandler(func(_ context.Context, c wire.Call) (json.RawMessage, error) {
		if c.Method != wire.MethodMemoryList {
			return json.RawMessage(`"other"`), nil
		}
		mu.Lock()
		under++
		most = max(most, under)
		mu.Unlock()
		begun <- struct{}{}
		<-release
		mu.Lock()
		under--
		mu.Unlock()
		return json.RawMessage(`[]`), nil
	}))
	for id := range all {
		s.control(`{"type":"call","id":%d,"run":%d,"method":"memory_list","params":{}}`, id+1, x.ID())
	}
	for range atOnce {
		<-begun
	}
	s.control(`{"type":"call","id":%d,"run":%d,"method":"call_tool","params":{}}`, all+1, x.ID())
	if m := s.next(); m["result"] != "other" {
		t.Errorf("%v", m)
	}
	close(release)
	for range all {
		if m := s.next(); m["ok"] != true {
			t.Errorf("%v", m)
		}
	}
	if most != atOnce {
		t.Errorf("%d at a time", most)
	}
	s.output(wire.KindNonce, nonce)
	s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0}`, x.ID())
	<-x.Done()
}

func TestErrorsOfCalls(t *testing.T) {
	errs := []error{
		&wire.CallError{Kind: wire.KindDenied, Message: "no"},
		fmt.Errorf("wrapped: %w", &wire.CallError{Kind: wire.KindTimeout, Message: "late"}),
		errors.New("open /home/me/.secret: permission denied"),
		context.DeadlineExceeded,
	}
	want := []string{`map[kind:denied message:no]`, `map[kind:timeout message:late]`,
		`map[kind:internal message:internal error of the host]`, `map[kind:timeout message:the call took too long]`}
	s := script(t, Options{})
	i := -1
	x, _ := s.start(guesttest.NewHandler(func(context.Context, wire.Call) (json.RawMessage, error) { return nil, errs[i] }))
	for i = range errs {
		s.control(`{"type":"call","id":%d,"run":%d,"method":"m"}`, i, x.ID())
		if got := fmt.Sprint(s.next()["error"]); got != want[i] {
			t.Errorf("%s, want %s", got, want[i])
		}
	}
}

// TestGuestThatReadsNothing: it blocks neither Start nor Close, and what waits
// for it stays bounded.
func TestGuestThatReadsNothing(t *testing.T) {
	s := script(t, Options{})
	answered := atomic.Int64{}
	big := json.RawMessage(append(append([]byte{'"'}, bytes.Repeat([]byte("x"), 8<<20)...), '"'))
	x, err := s.Start(wire.Exec{Code: strings.Repeat("#", 4<<20)}, guesttest.NewHandler(func(context.Context, wire.Call) (json.RawMessage, error) {
		answered.Add(1)
		return big, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		s.control(`{"type":"call","id":%d,"run":%d,"method":"m"}`, i, x.ID())
	}
	for deadline := time.Now().Add(time.Minute); answered.Load() < 30 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond)
	s.send.mu.Lock()
	queued := s.send.queued
	s.send.mu.Unlock()
	if queued > sendHighWater+len(big)+100 {
		t.Errorf("%d MiB wait for the guest", queued>>20)
	}
	// It says that it is done, and still reads nothing: the next code is not
	// waited with, because only what was begun has a limit.
	s.output(wire.KindNonce, x.nonce)
	s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0}`, x.ID())
	if _, err := x.Result(); err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		var err error
		x, err = s.Start(wire.Exec{Code: "1"}, guesttest.NewHandler(nil))
		next <- err
	}()
	select {
	case err := <-next:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Start waits for a guest that reads nothing")
	}
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("Close hangs")
	}
	if _, err := x.Result(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestLargeFramesInOrder: what the pipe does not take at once is queued, and
// nothing overtakes it.
func TestLargeFramesInOrder(t *testing.T) {
	s := script(t, Options{})
	sizes := []int{10, 3 << 20, 20, 100_000, 2 << 20, 5}
	x, _ := s.start(guesttest.NewHandler(func(_ context.Context, c wire.Call) (json.RawMessage, error) {
		return fmt.Appendf(nil, `"%s"`, strings.Repeat("x", sizes[c.ID])), nil
	}))
	for i := range sizes {
		s.control(`{"type":"call","id":%d,"run":%d,"method":"m"}`, i, x.ID())
	}
	got := map[float64]int{}
	for range sizes {
		time.Sleep(time.Millisecond)
		m := s.next()
		got[m["id"].(float64)] = len(m["result"].(string))
	}
	for i, n := range sizes {
		if got[float64(i)] != n {
			t.Errorf("reply %d has %d bytes, want %d", i, got[float64(i)], n)
		}
	}
}

// blocking hides what makes a file's descriptor usable directly, as an engine's
// own connection would.
type blocking struct{ io.WriteCloser }

func TestOtherWriters(t *testing.T) {
	r, w := newPipe(t)
	outR, outW := newPipe(t)
	errR, errW := newPipe(t)
	defer func() { r.Close(); outW.Close(); errW.Close() }()
	c := Open(blocking{w}, outR, errR, Options{})
	defer c.Close()
	for range 3 {
		if err := c.Shutdown(); err != nil {
			t.Fatal(err)
		}
	}
	frames := wire.NewReader(r)
	for range 3 {
		if b, err := frames.Control(100); err != nil || string(b) != `{"type":"shutdown"}` {
			t.Error(string(b), err)
		}
	}
}

func FuzzConn(f *testing.F) {
	frame := func(s string) []byte { return wire.AppendControl(nil, []byte(s)) }
	f.Add(frame(`{"type":"ready","protocol":1,"runtime":"3"}`), wire.AppendOutput(nil, wire.KindStdout, []byte("x")))
	f.Add(frame(`{"type":"call","id":1,"run":1,"method":"m"}`), wire.AppendOutput(nil, wire.KindExit, []byte(`{"code":1}`)))
	f.Add(append(frame(`{"type":"done","id":1,"status":"ok"}`), frame(`{"type":"cancel","id":1}`)...), wire.AppendOutput(nil, wire.KindNonce, []byte("n")))
	f.Fuzz(func(t *testing.T, control, output []byte) {
		c := Open(discard{}, io.NopCloser(bytes.NewReader(control)), io.NopCloser(bytes.NewReader(output)), Options{})
		defer c.Close()
		x, err := c.Start(wire.Exec{}, guesttest.NewHandler(answer))
		if err == nil {
			<-x.Done()
		}
		<-c.Dead()
	})
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }
