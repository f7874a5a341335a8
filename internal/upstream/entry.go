package upstream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/journal"
)

// entry is a server of the pool, running or not.
type entry struct {
	id   identity
	def  Definition // of the slot that came first
	from *surroundings
	// users are the slots that use it, and leaving retires it when there has been
	// none for a while; Pool.mu guards both.
	users   map[*slot]struct{}
	leaving *time.Timer // nil until it is needed
	// retired means that no Manager uses it any more, and that none will.
	retired atomic.Bool
	// more are entries of the same definition, for further connections; first is
	// the entry that has them.
	more   []*entry
	first  *entry
	claims claims

	mu       sync.Mutex
	loan     loan
	current  *Server // nil, running or ended
	starting *attempt
	era      era
	failures int // starts in a row that failed or did not last
	lastErr  error
	failedAt time.Time
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

// serverOf is Server for one entry.
func (p *Pool) serverOf(ctx context.Context, e *entry) (*Server, error) {
	name := e.def.Name
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
		a, wait, err = p.starting(e)
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
		case <-p.base.Done(): // starting reports it
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
			diagnose(e, s)
		}
		return nil, e
	}
}

// starting returns the start in progress, or begins one. If it is too early for
// that, it returns an error and the remaining pause. The caller holds e.mu.
func (p *Pool) starting(e *entry) (*attempt, time.Duration, error) {
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
	if wait := time.Until(e.retryAt); wait > 0 && e.failures > 1 && !p.signedIn(e) {
		return nil, wait, &tooEarly{e.lastErr, wait.Round(100 * time.Millisecond)}
	}
	a := &attempt{done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, 0, &Error{Server: e.def.Name, Kind: ErrClosed}
	}
	if e.retired.Load() {
		return nil, 0, &Error{Server: e.def.Name, Kind: ErrUnknownServer}
	}
	e.starting = a
	known := e.era
	p.running.Go(func() {
		began := time.Now()
		if known == eraUnknown {
			known = p.recall(e.def)
		}
		a.server, a.err = p.start(p.base, e, known, &a.program)
		if a.err == nil && a.server.session.era != known {
			p.remember(e.def, a.server.session.era)
		}
		e.mu.Lock()
		e.starting = nil
		if a.err != nil {
			p.changed(e.def.Name, journal.ServerFailed, Class(a.err), began)
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
	e.lastErr, e.failedAt = err, time.Now()
	pause := min(firstBackoff<<min(max(e.failures-2, 0), 10), maxBackoff)
	e.retryAt = time.Now().Add(pause)
}

// tooEarly is the last failure of a server that is not started again yet.
type tooEarly struct {
	last error
	wait time.Duration
}

func (e *tooEarly) Error() string {
	return fmt.Sprintf("%v (it is tried again after %s)", e.last, e.wait)
}
func (e *tooEarly) Unwrap() error { return e.last }

// stopIdle ends unused servers until the Pool is closed.
func (p *Pool) stopIdle() {
	tick := time.NewTicker(max(p.opts.IdleStop/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.base.Done():
			return
		}
		p.mu.Lock()
		entries := slices.Collect(maps.Values(p.entries))
		p.mu.Unlock()
		for _, first := range entries {
			for _, e := range first.all() {
				if s := e.takeIdle(p.opts.IdleStop); s != nil {
					s.log.Info("MCP server stopped: it was not used", "for", p.opts.IdleStop)
					p.changed(s.def.Name, journal.ServerStopped, "it was not used", s.started)
					p.running.Go(func() {
						if err := s.stop(p.patience); err != nil {
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

// end ends the server of an entry that was retired.
func (p *Pool) end(e *entry, drain time.Duration) {
	defer func() {
		p.mu.Lock()
		delete(p.retiring, e)
		p.mu.Unlock()
	}()
	e.mu.Lock()
	a := e.starting
	e.mu.Unlock()
	if a != nil {
		<-a.done // a start ends with the Manager, too
	}
	e.mu.Lock()
	s := e.current
	e.mu.Unlock()
	if s == nil {
		return
	}
	over := time.NewTimer(drain)
	defer over.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.inFlight.Load() > 0 && s.Alive() {
		select {
		case <-tick.C:
			continue
		case <-over.C:
		case <-p.base.Done():
		}
		break
	}
	s.log.Info("MCP server stopped: nothing uses its definition any more")
	p.changed(s.def.Name, journal.ServerStopped, "nothing uses its definition any more", s.started)
	if err := s.stop(p.patience); err != nil {
		s.log.Error("MCP server cannot be ended", "err", err)
	}
}
