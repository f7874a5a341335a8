// Package broker takes one execution from request to result: it validates,
// holds the host against the policy, finds the session, grants servers, runs
// the code and accounts for it. Whatever goes wrong is in the result, because
// that is where an agent looks.
package broker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/artifact"
	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/places"
	"github.com/sallyport/sallyport/internal/wire"
)

// DefaultSession is the session of requests that name none: each client has
// one of its own.
const DefaultSession = session.DefaultName

// Config is what a Broker needs. Zero durations take their defaults.
type Config struct {
	Gate   *authz.Gate  // required
	Logger *slog.Logger // required
	// Template is the one of sessions that choose none; nil: every request
	// answers that there is no engine.
	Template *session.Template
	// Templates are others that a request can choose, by name.
	Templates map[string]*session.Template
	// Environments are sets of packages that a request can choose; nil: none.
	Environments Environments
	// Folders are those that the settings show to sessions; nil: none.
	Folders Folders
	// PackageFacts returns which environments have a module, or the package that
	// installs it; nil: none.
	PackageFacts func(module, pkg string) wire.PackageFacts
	// ScriptHeader returns what the header of code asks for; nil: headers mean nothing.
	ScriptHeader func(code string, major, minor int) ([]string, error)
	// Sessions are made from the templates; the Broker closes them.
	Sessions *session.Set
	// Artifacts keeps the files that code leaves; nil: nothing does.
	Artifacts *artifact.Store
	Batch     BatchConfig
	// DefaultTimeout and MaxTimeout bound the agent's own time: 30 s, 120 s.
	DefaultTimeout, MaxTimeout time.Duration
	// Executions bounds those that run in sandboxes and that wait, of all clients and
	// of each. Those on batch services wait, as far as this is concerned.
	Executions places.Limits
	// Accountant says what usage amounts to; nil: results do not have it.
	Accountant Accountant
	// Traces has each execution begin a span, which the journal's events name.
	Traces bool
	// Unrecorded returns 0 while what happens is recorded as the user wants it, and
	// else a number that is another one for each time that it was not: the next
	// result of each client says so. nil: no one wants a record.
	Unrecorded func() (period uint64)
	// Journal receives executions and what they use; nil: nothing is published.
	Journal *journal.Journal
}

// BatchConfig is what a Broker needs to send code to batch services, which
// have no channel to the running code.
type BatchConfig struct {
	Services map[string]batch.Service // by name
	Runs     *runs.Store              // records the runs
	// Limits are requested for each run; zero takes what the service has.
	Limits sandbox.Limits
	// Timeout and MaxTimeout bound a run: 10 min, 12 h. Queue bounds how long it
	// may wait to begin: 1 h.
	Timeout, MaxTimeout, Queue time.Duration
}

func (c Config) withDefaults() Config {
	c.DefaultTimeout = cmp.Or(c.DefaultTimeout, 30*time.Second)
	c.MaxTimeout = cmp.Or(c.MaxTimeout, 120*time.Second)
	c.Batch.Timeout = cmp.Or(c.Batch.Timeout, 10*time.Minute)
	c.Batch.MaxTimeout = cmp.Or(c.Batch.MaxTimeout, 12*time.Hour)
	c.Batch.Queue = cmp.Or(c.Batch.Queue, time.Hour)
	if c.Folders == nil {
		c.Folders = noFolders{}
	}
	return c
}

// limits returns those of a sandbox of Template.
func (c Config) limits() sandbox.Limits {
	if c.Template == nil {
		return sandbox.DefaultLimits
	}
	return c.Template.Limits.WithDefaults()
}

// A Broker executes requests. It is safe for concurrent use.
type Broker struct {
	config   Config
	log      *slog.Logger
	sessions *session.Set // nil without an engine
	batch    *batchRuns
	tasks    *tasks
	places   *places.Queue
	arrivals arrivals
	builds   builds

	probing  sync.Mutex // held while an engine is probed
	mu       sync.Mutex
	engines  map[string]*sandbox.Report // engines that were probed and that the gate accepted
	clients  map[string]*Client         // that have not ended, by ID
	departed []departure                // the latest last
}

// New returns a broker. It starts and probes nothing.
func New(config Config) (*Broker, error) {
	switch {
	case config.Gate == nil || config.Logger == nil:
		return nil, errors.New("broker: a gate and a logger are required")
	case (config.Template == nil) != (config.Sessions == nil):
		return nil, errors.New("broker: a template and sessions are given together")
	}
	config = config.withDefaults()
	b := &Broker{
		config: config, log: config.Logger, sessions: config.Sessions,
		places: places.New(config.Executions), batch: newBatchRuns(config), tasks: &tasks{log: config.Logger}, engines: map[string]*sandbox.Report{}, clients: map[string]*Client{},
	}
	b.builds.broker = b
	return b, nil
}

// Close ends every run and every session. The backend and the servers remain
// their owners'. It is idempotent.
func (b *Broker) Close() {
	b.tasks.stop()
	b.batch.close()
	b.builds.close()
	if b.sessions != nil {
		b.sessions.Close()
	}
	b.tasks.all.Wait()
}

// wait is Client.Submit.
func (b *Broker) wait(req *Request) func(context.Context) *Result {
	if req.Within == 0 || req.Principal.Owner == "" {
		return b.submit(req)
	}
	at := b.place(req)
	if strings.TrimSpace(req.Code) == "" {
		t := b.tasks.find(at)
		if t == nil {
			return b.submit(req) // which asks for code
		}
		req.Activity.Follow(t.activity.String)
		return func(ctx context.Context) *Result { return b.named(req, b.tasks.wait(ctx, t, req.Within, false)) }
	}
	if t := b.tasks.running(at); t != nil && !req.Whole { // else it waits for its turn
		r := b.named(req, t.busy())
		b.account(req, r, time.Now())
		return func(context.Context) *Result { return r }
	}
	if req.Activity == nil {
		req.Activity = &Activity{}
	}
	req.partial = &session.Partial{}
	t := &task{client: req.client, place: at, label: at.session.Name, first: firstLine(req.Code), began: time.Now(), activity: req.Activity, whole: req.Whole, partial: req.partial}
	unread := b.tasks.unread(at)
	run := b.submit(req)
	return func(ctx context.Context) *Result {
		return b.named(req, b.tasks.run(ctx, t, req.Within, func(ctx context.Context) *Result {
			r := run(ctx)
			if unread != "" && r.Status != ValidationError {
				r.Notes = append(r.Notes, unread)
			}
			return r
		}))
	}
}

// named returns the result with the names by which the request asked for its
// session and its backend. It leaves r as it is: other calls may read it too.
func (b *Broker) named(req *Request, r *Result) *Result {
	if r.Session == req.Session && r.Backend == req.Backend {
		return r
	}
	c := *r
	c.Session, c.Backend = req.Session, req.Backend
	return &c
}

// submit is wait for code that is waited for to its end.
func (b *Broker) submit(req *Request) func(context.Context) *Result {
	if req.RequestID == "" {
		req.RequestID = strings.ToLower(rand.Text()[:12])
	}
	c := req.client
	if err := c.enter(req); err != nil {
		return func(context.Context) *Result {
			return &Result{Status: Failed, Summary: err.Error(), Error: err.Error()}
		}
	}
	var enqueued func(context.Context) *Result
	refused := guarded(b.log, req, func() *Result {
		enqueued = b.enqueue(req)
		return nil
	})
	run := enqueued
	return func(ctx context.Context) *Result {
		defer c.leave(req)
		if refused != nil {
			return refused
		}
		return guarded(b.log, req, func() *Result { return run(ctx) })
	}
}

// enqueue takes the request's place in its session's queue, or before it where the
// session's environment has to be built, and returns the function that runs it.
func (b *Broker) enqueue(req *Request) func(context.Context) *Result {
	began := time.Now()
	req.submitted, req.engine = began, req.Backend
	answer := func(r *Result) func(context.Context) *Result {
		b.account(req, r, began)
		return func(context.Context) *Result { return r }
	}
	req.Principal.Request, req.Principal.Connection = req.RequestID, req.client.id
	if b.config.Traces {
		req.Principal.Trace = req.Principal.Trace.Begin()
	}
	if invalid := req.validate(); invalid != nil {
		return answer(invalid)
	}
	if service, ok := b.config.Batch.Services[req.Backend]; ok {
		if refused := b.batch.refuse(req); refused != nil {
			return answer(b.finish(req, refused))
		}
		req.bound(b.batch.timeout(req.Timeout))
		return func(ctx context.Context) *Result {
			r := b.finish(req, b.batch.run(ctx, req, service))
			b.account(req, r, began)
			return r
		}
	}
	if _, refused := b.template(req); refused != nil {
		return answer(b.finish(req, refused))
	}
	if req.Batch != nil {
		return answer(b.finish(req, invalid("an accelerator, datasets, internet access, keeping and detaching are options of batch services, such as kaggle")))
	}
	req.bound(b.timeout(req.Timeout))
	for _, name := range req.Servers {
		if err := req.client.bridge.Check(context.Background(), req.Principal, name); err != nil {
			return answer(b.finish(req, failure(err)))
		}
	}
	if b.sessions == nil {
		return answer(b.finish(req, failure(errNoEngine)))
	}
	key := req.key()
	turn := b.arrivals.join(key, false)
	if turn == nil {
		template, unbuilt, refused := b.choose(req)
		if refused != nil {
			return answer(b.finish(req, refused))
		}
		if unbuilt == "" {
			run, refused := b.enter(req, template)
			if refused != nil {
				return answer(refused)
			}
			return func(ctx context.Context) *Result {
				r := run(ctx)
				b.account(req, r, began)
				return r
			}
		}
		turn = b.arrivals.join(key, true)
	}
	return func(ctx context.Context) *Result {
		r := b.later(ctx, req, turn)
		b.account(req, r, began)
		return r
	}
}

// enter takes the request's place in its session's queue, and returns the function
// that runs it, or the answer to a request that cannot enter.
func (b *Broker) enter(req *Request, template *session.Template) (run func(context.Context) *Result, refused *Result) {
	key := req.key()
	req.Principal.Session, req.Principal.SessionKey, req.engine = key.Name, key.String(), template.Engine.Name()
	sess, ticket, err := b.sessions.Enter(key, template)
	switch {
	case errors.Is(err, session.ErrClosed):
		return nil, b.finish(req, failure(err))
	case err != nil:
		return nil, invalid(err.Error())
	}
	req.client.uses(key)
	if req.Activity != nil && req.partial == nil {
		req.partial = &session.Partial{} // which knows when the code has begun
	}
	x := &execution{broker: b, req: req, session: sess, ticket: ticket, servers: req.client.bridge.Begin(req.Principal, req.Servers).InSession(req.Principal.SessionKey)}
	if req.Activity != nil {
		req.Activity.Follow(x.activity)
	}
	return x.run, nil
}

// template returns the one that the request chooses, or the answer to a request
// that cannot have it.
func (b *Broker) template(req *Request) (*session.Template, *Result) {
	t := b.config.Template
	if req.Template != "" {
		if t = b.config.Templates[req.Template]; t == nil {
			return nil, invalid(fmt.Sprintf("there is no template %q here: there is %s", req.Template, strings.Join(slices.Sorted(maps.Keys(b.config.Templates)), ", ")))
		}
	}
	if req.Backend != "" && (t == nil || req.Backend != t.Engine.Name()) {
		return nil, invalid(b.noBackend(req.Backend))
	}
	return t, nil
}

// Backends returns the names of the engine and of the batch services that code
// can be run on, the engine first.
func (b *Broker) Backends() []string {
	var names []string
	if b.config.Template != nil {
		names = append(names, b.config.Template.Engine.Name())
	}
	return append(names, slices.Sorted(maps.Keys(b.config.Batch.Services))...)
}

func (b *Broker) noBackend(name string) string {
	return fmt.Sprintf("there is no backend %q here, only %s. The setting `batch.services` turns batch services on", name, strings.Join(b.Backends(), ", "))
}

// timeout is how much of its own time a request gets.
func (b *Broker) timeout(asked time.Duration) time.Duration {
	if asked == 0 {
		asked = b.config.DefaultTimeout
	}
	return max(time.Second, min(asked, b.config.MaxTimeout))
}

// account completes a result and logs it.
func (b *Broker) account(req *Request, r *Result, began time.Time) {
	took := time.Since(began)
	b.ended(req, r, took)
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
	if req.Principal.Trace.Valid() {
		attrs = append(attrs, slog.String("trace", req.Principal.Trace.ID()))
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

// admit returns the gate's permit to run code in that engine on this host.
func (b *Broker) admit(ctx context.Context, p authz.Principal, engine sandbox.Engine, folders []sandbox.Mount) (authz.Permit, error) {
	report, err := b.probe(ctx, engine)
	if err != nil {
		return authz.Permit{}, err
	}
	permit, err := b.config.Gate.Admit(ctx, p, authz.RunCode{Engine: report, Folders: folders})
	if err != nil {
		b.reprobe(engine) // the reason may be fixed by then
	}
	return permit, err
}

// probe returns what an engine offers. It is remembered, unless it is
// provisional: what is measured later is decided on, too.
func (b *Broker) probe(ctx context.Context, engine sandbox.Engine) (*sandbox.Report, error) {
	if known := b.probed(engine); known != nil {
		return known, nil
	}
	b.probing.Lock()
	defer b.probing.Unlock()
	if known := b.probed(engine); known != nil {
		return known, nil
	}
	const probeTimeout = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	report, err := engine.Probe(ctx)
	if err != nil {
		return nil, err
	}
	if !report.Usable {
		return nil, unusable("the sandbox engine "+report.Backend+" cannot run here", report)
	}
	if !report.Duplex {
		return nil, &sandbox.Error{Op: "start", Backend: report.Backend, Kind: sandbox.ErrUnsupported,
			Err: errors.New("this engine has no channel to running code, which sessions and tools need")}
	}
	if !report.Provisional {
		b.mu.Lock()
		b.engines[report.Backend] = report // the engine may stand for another one by now
		b.mu.Unlock()
	}
	return report, nil
}

func (b *Broker) probed(engine sandbox.Engine) *sandbox.Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.engines[engine.Name()]
}

// reprobe has an engine probed again before more code runs.
func (b *Broker) reprobe(engine sandbox.Engine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.engines, engine.Name())
}

// unusable returns an error that says what cannot be used, why, and what to do
// about it.
func unusable(what string, report *sandbox.Report) error {
	var s strings.Builder
	s.WriteString(what)
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
