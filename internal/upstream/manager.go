package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream/child"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// Definition is one of the user's servers.
type Definition = definitions.Definition

// Options of a Manager. Zero values mean the defaults.
type Options struct {
	Log *slog.Logger
	// ClientName and ClientVersion are how we introduce ourselves to servers.
	ClientName, ClientVersion string
	// Environ is our environment ("NAME=value"), of which servers get a small part.
	// Inherit names more of it, also as PREFIX*.
	Environ, Inherit []string
	// StartTimeout bounds a start, unless the definition has a limit of its own;
	// npx and uvx may have to download (60 s). Negative: there is no limit, nor
	// does the definition's apply, because the caller's context has one.
	StartTimeout time.Duration
	// CallTimeout bounds a call (10 min); negative: no bound.
	CallTimeout time.Duration
	// Ping is how long a server that let a call time out may take to answer a ping
	// (10 s).
	Ping time.Duration
	// Probe is how long a remote server may take to answer the request that only
	// the second era knows (5 s).
	Probe time.Duration
	// IdleStop ends a server that has not been used for this long; 0: never.
	IdleStop time.Duration
	// StopGrace is how long each step of ending a server waits (2 s).
	StopGrace time.Duration
	// MaxLine bounds a message of a server in bytes (256 MiB).
	MaxLine int
	// SpoolDir is where messages that do not fit in memory are kept, in unnamed
	// files. Empty means the system's directory for temporary files.
	SpoolDir string
	// Connections returns how many processes or connections a server may have at
	// once; nil, and results below 1, mean one.
	Connections func(name string) int
	// Secrets reads what definitions name but do not contain; nil: nothing.
	Secrets definitions.Secrets
	// PlainHTTP are patterns of hosts to which plain HTTP is allowed besides
	// this machine.
	PlainHTTP []string
	// Eras is where the era of each server is remembered.
	Eras store.Dir
	// Used receives what the processes of a server use, once a second and at their
	// end. It must not block, and may be nil.
	Used func(Used)
}

// Bounds of the pause between starts of a server that does not stay up.
const (
	firstBackoff = time.Second
	maxBackoff   = 30 * time.Second
	// stable means that a server that lived this long had started well.
	stable = 30 * time.Second
	// shortPause is a pause that a caller waits for instead of failing.
	shortPause = 2 * time.Second
)

// Manager owns the servers. Its methods are safe for concurrent use.
type Manager struct {
	opts Options

	toolsChanged func(server string) // see OnToolsChanged

	client    Implementation
	keeper    *child.Keeper
	network   *remote.Network
	set       atomic.Pointer[configured]
	replacing sync.Mutex

	base   context.Context // ends when the Manager is closed
	cancel context.CancelCauseFunc
	// patience ends when closing must not take any longer.
	patience context.Context
	hurry    context.CancelFunc
	running  sync.WaitGroup // goroutines

	mu     sync.Mutex
	closed bool
	// retiring are entries that were replaced but have not ended yet.
	retiring map[*entry]struct{}
}

// entry is a definition and its running server.
type entry struct {
	def Definition
	// retired means that another definition has replaced it.
	retired atomic.Bool
	// more are entries of the same definition, for further connections.
	more   []*entry
	claims claims

	mu       sync.Mutex
	current  *Server // nil, running or ended
	starting *attempt
	era      era
	failures int // starts in a row that failed or did not last
	lastErr  error
	retryAt  time.Time
}

// attempt is a start in progress, which callers wait for.
type attempt struct {
	done   chan struct{}
	server *Server
	err    error
	// program is the server while it starts, if it is a program.
	program atomic.Pointer[Server]
}

// NewManager starts nothing. Of several definitions with the same name, the
// first one counts.
func NewManager(defs []Definition, opts Options) *Manager {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	setDefault(&opts.StartTimeout, 60*time.Second)
	setDefault(&opts.CallTimeout, 10*time.Minute)
	setDefault(&opts.StopGrace, 2*time.Second)
	setDefault(&opts.Ping, 10*time.Second)
	setDefault(&opts.Probe, probeTimeout)
	if opts.ClientName == "" {
		opts.ClientName = "sallyport"
	}
	if opts.ClientVersion == "" {
		opts.ClientVersion = "0"
	}
	m := &Manager{
		opts:     opts,
		client:   Implementation{Name: opts.ClientName, Version: opts.ClientVersion},
		keeper:   child.NewKeeper(opts.Log),
		network:  remote.NewNetwork(opts.Environ, opts.PlainHTTP),
		retiring: make(map[*entry]struct{}),

		toolsChanged: func(string) {},
	}
	m.base, m.cancel = context.WithCancelCause(context.Background())
	m.patience, m.hurry = context.WithCancel(context.Background())

	m.set.Store(m.configure(defs, nil))
	if opts.IdleStop > 0 {
		m.running.Go(m.stopIdle)
	}
	return m
}

// OnToolsChanged calls changed whenever a running server reports that its tools
// have changed. changed must not block. OnToolsChanged must be called before
// the first server starts.
func (m *Manager) OnToolsChanged(changed func(server string)) { m.toolsChanged = changed }

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// Definitions returns all definitions, disabled ones too, sorted by name, with
// their aliases. Aliases cover all definitions, so that they do not depend on
// what is used, and Replace keeps them.
func (m *Manager) Definitions() []Definition { return slices.Clone(m.set.Load().defs) }

// Definition returns the definition of a server.
func (m *Manager) Definition(name string) (Definition, bool) {
	for _, d := range m.set.Load().defs {
		if d.Name == name {
			return d, true
		}
	}
	return Definition{}, false
}

// Server returns the running server of this name and starts it if need be. All
// callers share one start, which continues when a caller's ctx ends. A server
// that has ended is started again. One that does not stay up is started only
// after a pause, during which Server returns the last error at once; it waits
// for the rest of a short pause.
//
// Errors are *Error; the kinds are ErrUnknownServer, ErrDisabled, ErrOffered,
// ErrClosed and ErrStart.
func (m *Manager) Server(ctx context.Context, name string) (*Server, error) {
	for {
		e, ok := m.set.Load().entries[name]
		if !ok {
			return nil, &Error{Server: name, Kind: ErrUnknownServer}
		}
		s, err := m.leastBusy(ctx, e)
		if err == nil && !e.claims.claim(s) && m.base.Err() == nil && ctx.Err() == nil {
			continue
		}
		// Another definition may have replaced it meanwhile.
		if !e.retired.Load() || ctx.Err() != nil || m.base.Err() != nil {
			return s, err
		}
	}
}

// serverOf is Server for one entry.
func (m *Manager) serverOf(ctx context.Context, e *entry) (*Server, error) {
	name := e.def.Name
	if e.def.Disabled {
		return nil, &Error{Server: name, Kind: ErrDisabled}
	}
	if e.def.Offer != "" {
		return nil, &Error{Server: name, Kind: ErrOffered}
	}
	var a *attempt
	for waited := false; ; waited = true {
		e.mu.Lock()
		if e.current != nil && e.current.Alive() {
			s := e.current
			s.touch()
			e.mu.Unlock()
			return s, nil
		}
		var wait time.Duration
		var err error
		a, wait, err = m.starting(e)
		e.mu.Unlock()
		if err == nil {
			break
		}
		// Once is enough: the start may have failed again for another caller.
		deadline, limited := ctx.Deadline()
		if waited || wait == 0 || wait > shortPause || limited && time.Until(deadline) <= wait {
			return nil, err
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-m.base.Done(): // starting reports it
		case <-ctx.Done():
			pause.Stop()
			return nil, &Error{Server: name, Op: "start", Err: context.Cause(ctx)}
		}
		pause.Stop()
	}
	select {
	case <-a.done:
		return a.server, a.err
	case <-ctx.Done():
		e := &Error{Server: name, Op: "start", Err: context.Cause(ctx)}
		if s := a.program.Load(); s != nil {
			diagnose(e, s.def, s.conn)
		}
		return nil, e
	}
}

// starting returns the start in progress, or begins one. If it is too early for
// that, it returns an error and the remaining pause. The caller holds e.mu.
func (m *Manager) starting(e *entry) (*attempt, time.Duration, error) {
	if e.starting != nil {
		return e.starting, 0, nil
	}
	if e.current != nil { // it has ended
		if time.Since(e.current.started) >= stable || e.current.stopping.Load() {
			e.failures = 0
		} else {
			e.failed(e.current.failure("", e.current.conn.Err()))
		}
		e.current = nil
	}
	if wait := time.Until(e.retryAt); wait > 0 && e.failures > 1 {
		return nil, wait, fmt.Errorf("%w (it is tried again after %s)", e.lastErr, wait.Round(100*time.Millisecond))
	}
	a := &attempt{done: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, 0, &Error{Server: e.def.Name, Kind: ErrClosed}
	}
	if e.retired.Load() {
		return nil, 0, &Error{Server: e.def.Name, Kind: ErrUnknownServer}
	}
	e.starting = a
	known := e.era
	m.running.Go(func() {
		if known == eraUnknown {
			known = m.recall(e.def)
		}
		a.server, a.err = m.start(m.base, e.def, known, &a.program)
		if a.err == nil && a.server.session.era != known {
			m.remember(e.def, a.server.session.era)
		}
		e.mu.Lock()
		e.starting = nil
		if a.err != nil {
			a.server = nil
			e.failed(a.err)
		} else {
			e.current = a.server
			e.era = a.server.session.era
		}
		e.mu.Unlock()
		close(a.done)
	})
	return a, 0, nil
}

// failed counts a start that failed or did not last. The first one may be
// repeated at once.
func (e *entry) failed(err error) {
	e.failures++
	e.lastErr = err
	pause := min(firstBackoff<<min(max(e.failures-2, 0), 10), maxBackoff)
	e.retryAt = time.Now().Add(pause)
}

// Running returns the running servers, sorted by name.
func (m *Manager) Running() []*Server {
	var out []*Server
	set := m.set.Load()
	for _, d := range set.defs {
		for _, e := range set.entries[d.Name].all() {
			if s := e.alive(); s != nil {
				out = append(out, s)
			}
		}
	}
	return out
}

// stopIdle ends unused servers until the Manager is closed.
func (m *Manager) stopIdle() {
	tick := time.NewTicker(max(m.opts.IdleStop/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-m.base.Done():
			return
		}
		for _, first := range m.set.Load().entries {
			for _, e := range first.all() {
				if s := e.takeIdle(m.opts.IdleStop); s != nil {
					s.log.Info("MCP server stopped: it was not used", "for", m.opts.IdleStop)
					m.running.Go(func() {
						if err := s.stop(m.patience); err != nil {
							s.log.Error("MCP server cannot be ended", "err", err)
						}
					})
				}
			}
		}
	}
}

// takeIdle removes a server from its entry if it is idle. Handing one out under
// the same lock marks it as used, so that no caller gets one that is being
// stopped.
func (e *entry) takeIdle(after time.Duration) *Server {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.current
	if s == nil || !s.Alive() || s.inFlight.Load() > 0 || time.Since(time.Unix(0, s.lastUse.Load())) < after {
		return nil
	}
	e.current = nil
	s.stopping.Store(true)
	return s
}

// Close ends all servers, gracefully until ctx ends. It returns when they are
// gone, or with an error that names those that would not end. Calls in flight
// fail. Close is idempotent.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel(ErrClosed)
	defer context.AfterFunc(ctx, m.hurry)()
	// No further Replace takes place.
	m.replacing.Lock()
	defer m.replacing.Unlock()
	var all []*entry
	set := m.set.Load()
	for _, d := range set.defs {
		all = append(all, set.entries[d.Name].all()...)
	}
	m.mu.Lock()
	all = slices.AppendSeq(all, maps.Keys(m.retiring))
	m.mu.Unlock()
	errs := make([]error, len(all))
	var wait sync.WaitGroup
	for i, e := range all {
		e.mu.Lock()
		s, a := e.current, e.starting
		e.mu.Unlock()
		wait.Go(func() {
			if a != nil {
				<-a.done
				s = a.server
			}
			if s != nil {
				errs[i] = s.stop(ctx)
			}
		})
	}
	wait.Wait()
	m.running.Wait()
	m.keeper.Close()
	m.hurry()
	return errors.Join(errs...)
}

// IsGone reports whether a call failed because its server had ended, so that
// asking the Manager for the server again may help. Whether the call had an
// effect before is not known.
func IsGone(err error) bool { return errors.Is(err, ErrGone) }
