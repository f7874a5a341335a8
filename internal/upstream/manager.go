package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// Definition is one of the user's servers.
type Definition = definitions.Definition

// Manager is a set of definitions and the servers that run for it, which it may
// share with other Managers of its Pool. Its methods are safe for concurrent
// use.
type Manager struct {
	pool  *Pool
	owns  bool // the Pool: closing the Manager closes it
	id    uint64
	from  *surroundings
	set   atomic.Pointer[configured]
	ended atomic.Bool

	toolsChanged atomic.Pointer[func(server string)] // see OnToolsChanged
	replacing    sync.Mutex
}

// NewManager returns a Manager with a Pool of its own. It starts nothing. Of
// several definitions with the same name, the first one counts.
func NewManager(defs []Definition, opts Options) *Manager {
	m := NewPool(opts).NewManager(defs, Surroundings{Environ: opts.Environ, Dir: opts.Dir})
	m.owns = true
	return m
}

// NewManager returns a Manager for a client with these surroundings. It starts
// nothing.
func (p *Pool) NewManager(defs []Definition, of Surroundings) *Manager {
	m := &Manager{pool: p, id: p.managers.Add(1), from: p.surroundings(of)}
	m.set.Store(m.configure(defs, nil))
	return m
}

// OnToolsChanged calls changed whenever a running server reports that its tools
// have changed. changed must not block.
func (m *Manager) OnToolsChanged(changed func(server string)) { m.toolsChanged.Store(&changed) }

// Definitions returns all definitions, disabled ones too, sorted by name, with
// their aliases.
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
	p := m.pool
	for {
		slot, err := m.usable(ctx, name)
		if err != nil {
			return nil, err
		}
		e := slot.entry
		s, err := slot.server(ctx, p.leastBusy)
		if err == nil && !e.claims.claim(s) && p.base.Err() == nil && ctx.Err() == nil {
			continue
		}
		// Another definition may have replaced it meanwhile.
		if !e.retired.Load() || m.ended.Load() || ctx.Err() != nil || p.base.Err() != nil {
			return slot.view(s), slot.own(err)
		}
	}
}

// Identity tells the server of this name, for the session of ctx, apart from all
// others: clients and sessions that share a server find the same. It starts
// nothing. lasting means that it is the same in other processes.
func (m *Manager) Identity(ctx context.Context, name string) (id string, lasting bool, err error) {
	s, err := m.usable(ctx, name)
	if err != nil {
		return "", false, err
	}
	id, lasting = s.identity()
	return id, lasting, nil
}

// usable returns the slot of a server that may be started, for the session of ctx.
func (m *Manager) usable(ctx context.Context, name string) (*slot, error) {
	s, ok := m.set.Load().slots[name]
	switch {
	case !ok:
		return nil, &Error{Server: name, Kind: ErrUnknownServer}
	case m.ended.Load():
		return nil, &Error{Server: name, Kind: ErrClosed}
	case s.def.Disabled:
		return nil, &Error{Server: name, Kind: ErrDisabled}
	case s.def.Offer != "":
		return nil, &Error{Server: name, Kind: ErrOffered}
	}
	if session := sessionOf(ctx); session != "" && m.pool.opts.Sharing(s.def) == definitions.ShareSession {
		return s.inSession(session), nil
	}
	return s, nil
}

// Running returns the running servers, sorted by name.
func (m *Manager) Running() []*Server {
	var out []*Server
	set := m.set.Load()
	for _, d := range set.defs {
		for _, slot := range set.slots[d.Name].all() {
			for _, e := range slot.entry.all() {
				if s := e.alive(); s != nil {
					out = append(out, slot.view(s))
				}
			}
		}
	}
	return out
}

// Close ends the servers that no other Manager uses, after a while. A Manager
// with a Pool of its own closes that. Close is idempotent.
func (m *Manager) Close(ctx context.Context) error {
	if m.owns {
		return m.pool.Close(ctx)
	}
	m.replacing.Lock()
	defer m.replacing.Unlock()
	if m.ended.Swap(true) {
		return nil
	}
	for _, s := range m.set.Load().slots {
		s.release(m.pool.linger, 0)
	}
	return nil
}

// IsGone reports whether a call failed because its server had ended, so that
// asking the Manager for the server again may help. Whether the call had an
// effect before is not known.
func IsGone(err error) bool { return errors.Is(err, ErrGone) }
