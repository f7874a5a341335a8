package upstream

import (
	"context"
	"sync/atomic"
)

// claims counts how often a server was handed out.
type claims struct{ n atomic.Int64 }

// claim notes that a server is handed out, and reports whether it can be: one
// that is being ended because it was only borrowed cannot.
func (c *claims) claim(s *Server) bool {
	c.n.Add(1)
	return !s.stopping.Load()
}

// loan is who borrows a server at the moment. The entry's lock guards it.
type loan struct {
	borrowers int
	owed      bool  // the server did not run before: the last one ends it
	before    int64 // claims then
}

// Borrow is Server for a short look: a server that was started for it is ended
// when the last of those who borrow it has returned, unless another caller has got
// it meanwhile.
func (m *Manager) Borrow(ctx context.Context, name string, use func(*Server) error) error {
	slot, err := m.usable(ctx, name)
	if err != nil {
		return err
	}
	e, p := slot.entry, m.pool
	p.borrow(e)
	s, err := slot.server(ctx, p.serverOf)
	if err == nil {
		err = use(slot.view(s))
	} else {
		err = slot.own(err)
	}
	if before, owed := e.returned(); owed {
		if s != nil {
			p.giveBack(e, s, before)
		} else if ctx.Err() != nil {
			p.background(func(ctx context.Context) { p.giveUp(ctx, e, before) })
		}
	}
	return err
}

// borrow notes that a server is borrowed.
func (p *Pool) borrow(e *entry) {
	running := false
	for _, each := range e.all() {
		each.mu.Lock()
		running = running || each.starting != nil || each.current != nil && each.current.Alive()
		each.mu.Unlock()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loan.borrowers++; e.loan.borrowers == 1 {
		e.loan.owed, e.loan.before = !running, e.claims.n.Load()
	}
}

// returned notes that a borrower has returned, and reports whether it was the last
// one of a server that was started for them.
func (e *entry) returned() (before int64, owed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loan.borrowers--
	return e.loan.before, e.loan.borrowers == 0 && e.loan.owed
}

// giveUp ends the server of a start that no caller waits for any more.
func (p *Pool) giveUp(ctx context.Context, e *entry, before int64) {
	e.mu.Lock()
	a := e.starting
	s := e.current
	e.mu.Unlock()
	if a != nil {
		select {
		case <-a.done:
			s = a.server
		case <-ctx.Done():
			return // everything ends
		}
	}
	if s != nil {
		p.giveBack(e, s, before)
	}
}

// giveBack ends a server unless it was handed out since before.
func (p *Pool) giveBack(e *entry, s *Server, before int64) {
	e.mu.Lock()
	if e.current != s { // it has ended, or another caller ends it
		e.mu.Unlock()
		return
	}
	if e.loan.borrowers > 0 { // one of them ends it
		e.loan.owed, e.loan.before = true, before
		e.mu.Unlock()
		return
	}
	// Set the flag first, then check. A caller that gets the server does it the
	// other way round, so that one of the two sees the other.
	s.stopping.Store(true)
	if e.claims.n.Load() != before || s.inFlight.Load() > 0 {
		s.stopping.Store(false)
		e.mu.Unlock()
		return
	}
	e.current = nil
	e.mu.Unlock()
	if err := s.stop(p.patience); err != nil {
		s.log.Error("MCP server cannot be ended", "err", err)
	}
}
