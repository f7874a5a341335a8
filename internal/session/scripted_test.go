package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session/archive"
	"github.com/sallyport/sallyport/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is an engine whose guests are Go functions that speak frames, so
// that a guest can say whatever a hostile one might, at the time it chooses.
type scripted struct {
	guest func(*guestEnd) // runs for each sandbox; its return ends the sandbox
	// What the engine can do and how it fails.
	metered, pausable bool
	deaf              bool // cannot interrupt
	mute              bool // has no channel
	startErr          error
	startDelay        time.Duration
	startHangs        bool // until its context is done

	mu   sync.Mutex
	runs []*scriptedRun
}

func (e *scripted) Name() string { return "scripted" }
func (e *scripted) Close() error { return nil }
func (e *scripted) Probe(context.Context) (*sandbox.Report, error) {
	return &sandbox.Report{Backend: "scripted", Usable: true, Duplex: true}, nil
}
func (e *scripted) Attach(context.Context, sandbox.Handle) (sandbox.Run, error) {
	return nil, sandbox.ErrGone
}

func (e *scripted) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	if e.startHangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(e.startDelay)
	if e.startErr != nil {
		return nil, e.startErr
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	r := &scriptedRun{
		killed: make(chan struct{}), spec: *spec, ended: make(chan struct{}), interrupts: make(chan struct{}, 100),
		channel: sandbox.Channel{Stdin: inW, Stdout: outR, Stderr: errR},
	}
	g := &guestEnd{run: r, in: wire.NewReader(inR), out: outW, err: errW}
	var once sync.Once
	r.kill = func() {
		once.Do(func() { close(r.killed) })
		inR.CloseWithError(io.EOF)
		outW.CloseWithError(io.EOF)
		errW.CloseWithError(io.EOF)
	}
	e.mu.Lock()
	e.runs = append(e.runs, r)
	e.mu.Unlock()
	go func() {
		defer close(r.ended)
		e.guest(g)
		r.kill()
	}()
	switch {
	case e.mute:
		return bareRun{r}, nil
	case e.deaf:
		return deafRun{bareRun{r}}, nil
	case e.pausable:
		return pausableRun{meteredRun{r}}, nil
	case e.metered:
		return meteredRun{r}, nil
	}
	return r, nil
}

func (e *scripted) run(i int) *scriptedRun {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[i]
}

func (e *scripted) started() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.runs)
}

type scriptedRun struct {
	spec       sandbox.Spec
	channel    sandbox.Channel
	ended      chan struct{}
	killed     chan struct{}
	interrupts chan struct{}
	kill       func()

	mu        sync.Mutex
	destroyed int
	exit      sandbox.Exit
	cpu       time.Duration
	rate      float64 // processors used from since on
	since     time.Time
	paused    bool
	pauses    int
}

func (r *scriptedRun) Handle() sandbox.Handle {
	return sandbox.Handle{Backend: "scripted", ID: r.spec.ID}
}
func (r *scriptedRun) Channel() sandbox.Channel { return r.channel }
func (r *scriptedRun) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-r.ended:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.exit, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}
func (r *scriptedRun) Destroy(context.Context) error {
	r.mu.Lock()
	r.destroyed++
	r.mu.Unlock()
	r.kill()
	<-r.ended
	return nil
}
func (r *scriptedRun) Interrupt(context.Context) error {
	r.interrupts <- struct{}{}
	return nil
}

func (r *scriptedRun) isDestroyed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.destroyed > 0
}

// spin makes the sandbox use so many processors from now on.
func (r *scriptedRun) spin(processors float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle()
	r.rate = processors
}

func (r *scriptedRun) settle() {
	now := time.Now()
	if !r.since.IsZero() && !r.paused {
		r.cpu += time.Duration(r.rate * float64(now.Sub(r.since)))
	}
	r.since = now
}

type meteredRun struct{ *scriptedRun }

func (r meteredRun) Usage(context.Context) (sandbox.Usage, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle()
	return sandbox.Usage{CPU: r.cpu, MemoryBytes: 1 << 20, PeakBytes: 2 << 20}, nil
}

type pausableRun struct{ meteredRun }

func (r pausableRun) Pause(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle()
	r.paused = true
	r.pauses++
	return nil
}

func (r pausableRun) Resume(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle()
	r.paused = false
	return nil
}

// bareRun has nothing optional.
type bareRun struct{ r *scriptedRun }

func (b bareRun) Handle() sandbox.Handle                         { return b.r.Handle() }
func (b bareRun) Wait(ctx context.Context) (sandbox.Exit, error) { return b.r.Wait(ctx) }
func (b bareRun) Destroy(ctx context.Context) error              { return b.r.Destroy(ctx) }

// deafRun has a channel alone.
type deafRun struct{ bareRun }

func (d deafRun) Channel() sandbox.Channel { return d.r.channel }

// guestEnd is the guest's side of a channel.
type guestEnd struct {
	run      *scriptedRun
	in       *wire.Reader
	out, err io.Writer
}

// frame is what the host sends.
type frame struct {
	Type       string
	ID         uint64
	Nonce      string
	Code       string
	Grants     []string
	Packages   []string
	Reseed     string
	Task       string
	Define     []wire.Server
	Discovered []wire.ServerInfo
	OK         bool
	Result     json.RawMessage
	Error      *wire.CallError
}

// next reads a frame of the host's; false is the end.
func (g *guestEnd) next() (frame, bool) {
	var f frame
	b, err := g.in.Control(wire.MaxToGuest)
	if err != nil {
		return f, false
	}
	if err := json.Unmarshal(b, &f); err != nil {
		panic(err)
	}
	return f, true
}

func (g *guestEnd) control(format string, args ...any) {
	_, _ = g.out.Write(wire.AppendControl(nil, fmt.Appendf(nil, format, args...)))
}

func (g *guestEnd) output(kind wire.Kind, payload string) {
	_, _ = g.err.Write(wire.AppendOutput(nil, kind, []byte(payload)))
}

func (g *guestEnd) ready() { g.control(`{"type":"ready","protocol":1,"runtime":"Python 3.11.2"}`) }

func (g *guestEnd) done(f frame, status string, code int) {
	g.output(wire.KindNonce, f.Nonce)
	g.control(`{"type":"done","id":%d,"status":%q,"exitCode":%d}`, f.ID, status, code)
}

// each answers every execution with what handle does; handle returns false to
// die.
func each(handle func(*guestEnd, frame) bool) func(*guestEnd) {
	return func(g *guestEnd) {
		g.ready()
		for {
			f, ok := g.next()
			if !ok {
				return
			}
			if f.Type == "exec" && !handle(g, f) {
				return
			}
		}
	}
}

// words is a guest that does what the code's first word says.
func words(g *guestEnd, f frame) bool {
	verb, arg, _ := strings.Cut(f.Code, " ")
	switch verb {
	case "say":
		g.output(wire.KindStdout, arg)
	case "sleep":
		d, err := time.ParseDuration(arg)
		if err != nil {
			panic(err)
		}
		select {
		case <-time.After(d):
		case <-g.run.killed:
			return false
		case <-g.run.interrupts:
			g.output(wire.KindStderr, "KeyboardInterrupt\n")
			g.done(f, "interrupted", 130)
			return true
		}
	case "hesitant": // hears the second interrupt only
		<-g.run.interrupts
		<-g.run.interrupts
	case "stubborn":
		for {
			b, err := g.in.Control(wire.MaxToGuest)
			if err != nil {
				return false
			}
			_ = b
		}
	case "die":
		g.output(wire.KindExit, arg)
		return false
	case "vanish":
		return false
	case "packages":
		g.output(wire.KindStdout, strings.Join(f.Packages, " "))
	case "call":
		g.control(`{"type":"call","id":1,"run":%d,"method":"call_tool","params":{}}`, f.ID)
		for {
			reply, ok := g.next()
			if !ok {
				return false
			}
			if reply.Type == "reply" {
				g.output(wire.KindStdout, string(reply.Result))
				break
			}
		}
	}
	g.done(f, "ok", 0)
	return true
}

// setup is what a test makes sessions from.
type setup struct {
	Options
	Template
}

// testSet is a Set whose sessions are the local user's, of one template and one
// client.
type testSet struct {
	*Set
	template *Template
}

func newTestSet(c setup) *testSet {
	c.Logger = discard
	return &testSet{NewSet(c.Options), &c.Template}
}

func (s *testSet) Get(name string) (*Session, error) { return s.Set.Get(Key{Name: name}, s.template) }
func (s *testSet) List() []Info                      { return s.Set.List("") }

func (s *testSet) Suspend(ctx context.Context, name string) error {
	return s.Set.Suspend(ctx, Key{Name: name})
}

func (s *testSet) Resume(ctx context.Context, name string) error {
	one, err := s.Open(Key{Name: name}, s.template)
	if err != nil {
		return err
	}
	return one.Resume(ctx)
}

func (s *testSet) Reset(ctx context.Context, name string) error {
	return s.Set.Reset(ctx, Key{Name: name})
}

func (s *testSet) Remove(ctx context.Context, name string) error {
	return s.Set.Remove(ctx, Key{Name: name})
}

func (s *testSet) Export(ctx context.Context, name string, w io.Writer) error {
	one, err := s.Open(Key{Name: name}, s.template)
	if err != nil {
		return err
	}
	return one.Export(ctx, w)
}

func (s *testSet) Import(ctx context.Context, name string, a *archive.Reader) error {
	return s.Set.Import(ctx, Key{Name: name}, a, s.template)
}

func newSingle(t *testing.T, e *scripted, change func(*setup)) *Session {
	t.Helper()
	config := setup{Options: Options{Logger: discard}, Template: Template{Engine: e}}
	if change != nil {
		change(&config)
	}
	s, err := New(Key{Name: "test"}, config.Options, &config.Template)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func exec(t *testing.T, s *Session, code string) *Outcome {
	t.Helper()
	out, err := s.Exec(t.Context(), s.Enter(), Request{Submission: Submission{Code: code, Timeout: 10 * time.Second}})
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return out
}

var (
	errTest = errors.New("the test's error")
	discard = slog.New(slog.DiscardHandler)
)
