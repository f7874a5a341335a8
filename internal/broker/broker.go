// Package broker takes one execution from request to result: it validates,
// holds the host against the policy, finds the session, grants servers, runs
// the code and accounts for it. Whatever goes wrong is in the result, because
// that is where an agent looks.
package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"sallyport/internal/bridge"
	"sallyport/internal/catalog"
	"sallyport/internal/pins"
	"sallyport/internal/policy"
	"sallyport/internal/runs"
	"sallyport/internal/sandbox"
	"sallyport/internal/session"
	"sallyport/internal/snapshot"
	"sallyport/internal/state"
	"sallyport/internal/wire"
)

// DefaultSession is the session of requests that name none.
const DefaultSession = "default"

// Config is what a Broker needs. Zero durations take their defaults.
type Config struct {
	Backend sandbox.Backend // nil: every request answers that there is none
	Policy  *policy.Policy  // required
	Servers bridge.Source   // nil: there are none
	Logger  *slog.Logger    // required
	// Spec is the sandbox that sessions start, as session.Config has it.
	Spec sandbox.Spec
	// Batch are the engines without a channel that code may be sent to, by
	// name, and Runs keeps their runs.
	Batch map[string]sandbox.Backend
	Runs  *runs.Store
	// BatchLimits are asked of the place of such a run; zero is what it has.
	BatchLimits sandbox.Limits
	// BatchTimeout and BatchMaxTimeout bound a run there: 10 min, 12 h. Queue
	// bounds how long it may wait to begin: 1 h.
	BatchTimeout, BatchMaxTimeout, Queue time.Duration
	// DefaultTimeout and MaxTimeout bound the agent's own time: 30 s, 120 s.
	DefaultTimeout, MaxTimeout time.Duration
	// WholeRun, Grace and StartTimeout are session.Config's.
	WholeRun, Grace, StartTimeout time.Duration
	// Background is session.Config's.
	Background float64
	// Snapshots, Restore and Preload are session.Config's.
	Snapshots *snapshot.Store
	Restore   bool
	Preload   []string
	// Pool is session.Config's.
	Pool int
	// Records, Idle, Keep, MaxAwake, MaxDisk, MaxNamed and Unpacked are
	// session.Config's.
	Records    state.Dir
	Idle, Keep time.Duration
	MaxAwake   int
	MaxDisk    int64
	MaxNamed   int
	Unpacked   bool
	// Unsaved is session.Config's.
	Unsaved func(session string, err error)
	// Logs and LogBytes are session.Config's.
	Logs     string
	LogBytes int64
	// MaxCalls is bridge.Config's.
	MaxCalls int
	// Memory and Tools are bridge.Config's.
	Memory bridge.Memory
	Tools  bridge.SavedTools
	// Accountant keeps account of what code uses; nil: nobody does.
	Accountant Accountant
	// ShowUsage has every result tell its usage.
	ShowUsage bool
	// Catalog, Pins and RefuseChanged are bridge.Config's.
	Catalog       *catalog.Catalog
	Pins          *pins.Book
	RefuseChanged bool
}

// A Broker executes requests. It is safe for concurrent use.
type Broker struct {
	config   Config
	log      *slog.Logger
	bridge   *bridge.Bridge
	sessions *session.Set // nil without a backend
	far      *inFlight    // requests to batch engines

	probing sync.Mutex // held while the engine is probed
	mu      sync.Mutex
	cleared bool            // the engine was probed and the policy accepts it
	usable  map[string]bool // batch engines that were probed, and can be used
	unkept  map[string]bool // sessions of which it was said that they are not kept
}

// New returns a broker. It starts and probes nothing.
func New(config Config) (*Broker, error) {
	if config.Policy == nil {
		return nil, policy.ErrNil
	}
	if config.Logger == nil {
		return nil, errors.New("broker: a logger is required")
	}
	if config.DefaultTimeout == 0 {
		config.DefaultTimeout = 30 * time.Second
	}
	if config.MaxTimeout == 0 {
		config.MaxTimeout = 120 * time.Second
	}
	if config.BatchTimeout == 0 {
		config.BatchTimeout = 10 * time.Minute
	}
	if config.BatchMaxTimeout == 0 {
		config.BatchMaxTimeout = 12 * time.Hour
	}
	if config.Queue == 0 {
		config.Queue = time.Hour
	}
	if config.Servers == nil {
		config.Servers = bridge.Upstream(nil)
	}
	b := &Broker{config: config, log: config.Logger, far: newInFlight(), unkept: map[string]bool{}}
	var err error
	b.bridge, err = bridge.New(bridge.Config{
		Source: config.Servers, Policy: config.Policy, MaxCalls: config.MaxCalls,
		Memory: config.Memory, Tools: config.Tools, Facts: facts(config),
		Catalog: config.Catalog, Pins: config.Pins, RefuseChanged: config.RefuseChanged, Log: config.Logger,
	})
	if err != nil {
		return nil, err
	}
	if config.Backend != nil {
		var rested func(string, session.Spent)
		if config.Accountant != nil {
			rested = config.Accountant.Rested
		}
		b.sessions = session.NewSet(session.Config{
			Rested:  rested,
			Backend: config.Backend, Spec: config.Spec, Logger: config.Logger,
			Grace: config.Grace, WholeRun: config.WholeRun, StartTimeout: config.StartTimeout,
			Background: config.Background,
			Snapshots:  config.Snapshots, Restore: config.Restore, Preload: config.Preload, Pool: config.Pool,
			Records: config.Records, Idle: config.Idle, Keep: config.Keep, MaxAwake: config.MaxAwake, MaxDisk: config.MaxDisk, MaxNamed: config.MaxNamed, Unpacked: config.Unpacked, Unsaved: config.Unsaved, Logs: config.Logs, LogBytes: config.LogBytes,
		}, DefaultSession)
	}
	return b, nil
}

// Close ends every run and every session. The backend and the servers remain
// their owners'. It is idempotent.
func (b *Broker) Close() {
	b.far.close()
	if b.sessions != nil {
		b.sessions.Close()
	}
	b.bridge.Close()
}

// Execute runs a request and returns its result, which is never nil. When ctx
// is done, the code is interrupted.
func (b *Broker) Execute(ctx context.Context, req Request) *Result {
	return b.Submit(req)(ctx)
}

// Submit takes the request's place in its session's queue, without blocking,
// and returns the function that runs it and blocks until it has ended. That
// function must be called exactly once: the session waits for it.
func (b *Broker) Submit(req Request) func(context.Context) *Result {
	began := time.Now()
	answer := func(r *Result) func(context.Context) *Result {
		b.account(req, r, began)
		return func(context.Context) *Result { return r }
	}
	if req.RequestID == "" {
		req.RequestID = strings.ToLower(rand.Text()[:12])
	}
	if invalid := req.validate(); invalid != nil {
		return answer(invalid)
	}
	if engine, batch := b.config.Batch[req.Backend]; batch {
		if refused := b.refuseBatch(req); refused != nil {
			return answer(b.finish(req, refused))
		}
		req.bound(b.batchTimeout(req.Timeout))
		return func(ctx context.Context) *Result {
			ctx, done := b.far.enter(ctx)
			defer done()
			r := b.finish(req, b.batch(ctx, req, engine))
			b.account(req, r, began)
			return r
		}
	}
	if req.Backend != "" && (b.config.Backend == nil || req.Backend != b.config.Backend.Name()) {
		return answer(b.finish(req, invalid(b.noBackend(req.Backend))))
	}
	if !reflect.ValueOf(req.Batch).IsZero() {
		return answer(b.finish(req, invalid("accelerators, datasets, internet, keeping and detaching are for engines such as runpod and kaggle")))
	}
	req.bound(b.timeout(req.Timeout))
	for _, name := range req.Servers {
		if err := b.bridge.Check(name); err != nil {
			return answer(b.finish(req, failure(err)))
		}
	}
	if b.sessions == nil {
		return answer(b.finish(req, failure(errNoEngine)))
	}
	name := req.Session
	if name == "" {
		name = DefaultSession
	}
	sess, err := b.sessions.Get(name)
	if err != nil {
		if errors.Is(err, session.ErrClosed) {
			return answer(b.finish(req, failure(err)))
		}
		return answer(invalid(err.Error()))
	}
	x := &execution{broker: b, req: req, session: sess, ticket: sess.Enter(), servers: b.bridge.Begin(req.Servers)}
	return func(ctx context.Context) *Result {
		r := x.run(ctx)
		b.account(req, r, began)
		return r
	}
}

// timeout is how much of its own time a request gets.
func (b *Broker) timeout(asked time.Duration) time.Duration {
	if asked == 0 {
		asked = b.config.DefaultTimeout
	}
	return max(time.Second, min(asked, b.config.MaxTimeout))
}

// account completes a result and logs it.
func (b *Broker) account(req Request, r *Result, began time.Time) {
	took := time.Since(began)
	if r.Status != ValidationError {
		r.DurationMs = took.Milliseconds()
	}
	// What code does wrong is the agent's to know, and in its result.
	level := slog.LevelInfo
	if r.Status == Failed && r.ExitCode == nil && !req.Shown {
		level = slog.LevelWarn
	}
	ctx := context.Background()
	if !b.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request", req.RequestID), slog.String("status", string(r.Status)),
		slog.Duration("duration", took), slog.Int("code_bytes", len(req.Code)),
	}
	if req.Backend != "" {
		attrs = append(attrs, slog.String("backend", req.Backend))
	}
	if req.Session != "" {
		attrs = append(attrs, slog.String("session", req.Session))
	}
	if len(req.Servers) > 0 {
		attrs = append(attrs, slog.Any("servers", req.Servers))
	}
	if r.Error != "" {
		attrs = append(attrs, slog.String("error", r.Error))
	}
	if r.StateLost != "" {
		attrs = append(attrs, slog.String("state_lost", r.StateLost))
	}
	b.log.LogAttrs(ctx, level, "execution", attrs...)
}

// clear answers whether code may run on this host. A yes is remembered; a no
// is looked at again, because its reason may have been fixed.
func (b *Broker) clear(ctx context.Context) error {
	b.mu.Lock()
	cleared := b.cleared
	b.mu.Unlock()
	if cleared {
		return nil
	}
	b.probing.Lock()
	defer b.probing.Unlock()
	b.mu.Lock()
	cleared = b.cleared
	b.mu.Unlock()
	if cleared {
		return nil
	}
	const probeTimeout = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	report, err := b.config.Backend.Probe(ctx)
	if err != nil {
		return err
	}
	if !report.Usable {
		return unusable(report)
	}
	if !report.Duplex {
		return &sandbox.Error{Op: "start", Backend: report.Backend, Kind: sandbox.ErrUnsupported,
			Err: errors.New("this engine has no channel to running code, which sessions and tools need")}
	}
	if err := b.config.Policy.Check(report); err != nil {
		return err
	}
	b.mu.Lock()
	b.cleared = !report.Provisional // else what was measured is judged, too
	b.mu.Unlock()
	return nil
}

// doubt has the engine probed again before more code runs: it is not as it was.
func (b *Broker) doubt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleared = false
}

// unusable says why an engine cannot run and what to do about it.
func unusable(report *sandbox.Report) error {
	var s strings.Builder
	s.WriteString("the sandbox engine " + report.Backend + " cannot run here")
	for _, f := range report.Findings {
		if !f.Fatal {
			continue
		}
		s.WriteString("; " + f.Title)
		if f.Detail != "" {
			s.WriteString(": " + f.Detail)
		}
		if f.Remedy != "" {
			s.WriteString(" (to fix it: " + f.Remedy + ")")
		}
	}
	s.WriteString(". `sallyport doctor` says more")
	return &sandbox.Error{Op: "probe", Backend: report.Backend, Kind: sandbox.ErrUnavailable, Err: errors.New(s.String())}
}

// facts are what code is told of its limits.
func facts(config Config) wire.SessionFacts {
	limits := config.Spec.Limits.WithDefaults()
	return wire.SessionFacts{
		Timeout: config.DefaultTimeout.Seconds(), MaxTimeout: config.MaxTimeout.Seconds(),
		Memory: limits.MemoryBytes, Workspace: limits.WorkspaceBytes, Output: limits.OutputBytes, Processes: limits.Processes,
	}
}
