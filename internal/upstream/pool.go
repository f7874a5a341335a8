package upstream

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream/child"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/oauth"
)

// Options of a Pool. Zero values mean the defaults.
type Options struct {
	Log *slog.Logger
	// ClientName and ClientVersion are how we introduce ourselves to servers.
	ClientName, ClientVersion string
	// Environ and Dir are the Surroundings of a Manager with a Pool of its own.
	Environ []string
	Dir     string
	// Inherit names variables of a client's environment that servers get besides the
	// usual ones, also as PREFIX*.
	Inherit []string
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
	// Logins are the user's logins at remote servers; nil: servers get what their
	// definitions say, and nothing else.
	Logins *oauth.Logins
	// Eras is where the era of each server is remembered.
	Eras store.Dir
	// Sharing returns for whom a server of this definition runs; nil: as
	// Definition.Shares says.
	Sharing func(Definition) definitions.Sharing
	// Starting is called when the start of a server begins, and what it returns
	// when that has ended. They must not block. It may be nil.
	Starting func(d Definition) (ended func())
	// Forget is called with the identity of a server when what its tools returned
	// may no longer be so: they have changed, or it has ended and belonged to one
	// client or session alone. It must not block. It may be nil.
	Forget func(identity string)
	// May returns what the settings let a server ask of clients and their users while
	// it works on a call; nil: nothing. It is asked when a definition is read.
	May func(Definition) inquiry.Takes
	// Journal receives the starts and ends of servers, and what their processes use,
	// once a second and at their end. It may be nil.
	Journal *journal.Journal
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

// Pool owns running servers. Its Managers share them: servers that would be
// started in the same way (see identity) are started once.
type Pool struct {
	opts   Options
	client Implementation
	keeper *child.Keeper

	// linger is how long a server keeps running when the last Manager that used it
	// has been closed, for another one that may come soon.
	linger time.Duration

	base   context.Context // ends when the Pool is closed
	cancel context.CancelCauseFunc
	// patience ends when closing must not take any longer.
	patience context.Context
	hurry    context.CancelFunc
	running  sync.WaitGroup // goroutines

	managers atomic.Uint64 // counts them, for identities

	mu      sync.Mutex
	closed  bool
	entries map[identity]*entry
	// retiring are entries that no Manager uses any more but that have not ended.
	retiring map[*entry]struct{}
}

// NewPool starts nothing.
func NewPool(opts Options) *Pool {
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
	if opts.Sharing == nil {
		opts.Sharing = func(d Definition) definitions.Sharing { how, _ := d.Shares(); return how }
	}
	if opts.May == nil {
		opts.May = func(Definition) inquiry.Takes { return inquiry.Takes{} }
	}
	p := &Pool{
		opts:     opts,
		client:   Implementation{Name: opts.ClientName, Version: opts.ClientVersion},
		keeper:   child.NewKeeper(opts.Log),
		linger:   time.Minute,
		entries:  make(map[identity]*entry),
		retiring: make(map[*entry]struct{}),
	}
	p.base, p.cancel = context.WithCancelCause(context.Background())
	p.patience, p.hurry = context.WithCancel(context.Background())
	if opts.IdleStop > 0 {
		p.running.Go(p.stopIdle)
	}
	return p
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// acquire returns the entry for a slot, which uses it until release.
func (p *Pool) acquire(id identity, s *slot) *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[id]
	if e == nil {
		e = p.newEntry(id, s)
		p.entries[id] = e
	}
	e.users[s] = struct{}{}
	if e.leaving != nil {
		e.leaving.Stop()
	}
	return e
}

// release ends the use of an entry by a slot. After the last one, the server is
// stopped, unless another slot uses it within linger. Its calls may take until
// drain has passed.
func (p *Pool) release(e *entry, s *slot, linger, drain time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, uses := e.users[s]; !uses {
		return
	}
	delete(e.users, s)
	if len(e.users) > 0 || p.closed {
		return // Close ends everything anyway
	}
	if linger <= 0 {
		p.retire(e, drain)
		return
	}
	if e.leaving != nil {
		e.leaving.Reset(linger)
		return
	}
	e.leaving = time.AfterFunc(linger, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(e.users) == 0 && !p.closed && !e.retired.Load() {
			p.retire(e, drain)
		}
	})
}

// retire has the server of an entry stopped. The caller holds p.mu.
func (p *Pool) retire(e *entry, drain time.Duration) {
	if e.leaving != nil {
		e.leaving.Stop()
	}
	if p.entries[e.id] == e {
		delete(p.entries, e.id)
	}
	if p.opts.Sharing(e.def) != definitions.ShareAll {
		p.forget(e)
	}
	for _, each := range e.all() {
		each.retired.Store(true)
		p.retiring[each] = struct{}{}
		p.running.Go(func() { p.end(each, drain) })
	}
}

func (p *Pool) forget(e *entry) {
	if p.opts.Forget != nil {
		p.opts.Forget(string(e.id[:]))
	}
}

// toolsChanged tells the Managers that use the entry.
func (p *Pool) toolsChanged(e *entry) {
	p.forget(e)
	p.mu.Lock()
	users := slices.Collect(maps.Keys(e.first.users))
	p.mu.Unlock()
	for _, s := range users {
		if changed := s.manager.toolsChanged.Load(); changed != nil {
			(*changed)(s.def.Name)
		}
	}
}

// Failing calls yield for each server whose last starts failed, or did not last,
// with what kind of failure it was and how many there were in a row.
func (p *Pool) Failing(yield func(server, class string, times int)) {
	p.mu.Lock()
	entries := slices.Collect(maps.Values(p.entries))
	p.mu.Unlock()
	slices.SortFunc(entries, func(a, b *entry) int { return strings.Compare(a.def.Name, b.def.Name) })
	for _, first := range entries {
		for _, e := range first.all() {
			e.mu.Lock()
			if e.failures > 0 && (e.current == nil || !e.current.Alive()) {
				yield(e.def.Name, Class(e.lastErr), e.failures)
			}
			e.mu.Unlock()
		}
	}
}

// Close ends all servers, gracefully until ctx ends. It returns when they are
// gone, or with an error that names those that would not end. Calls in flight
// fail. Close is idempotent.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	var all []*entry
	for _, e := range p.entries {
		all = append(all, e.all()...)
		if e.leaving != nil {
			e.leaving.Stop()
		}
	}
	all = slices.AppendSeq(all, maps.Keys(p.retiring))
	p.mu.Unlock()
	p.cancel(ErrClosed)
	defer context.AfterFunc(ctx, p.hurry)()
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
	p.running.Wait()
	p.keeper.Close()
	p.hurry()
	return errors.Join(errs...)
}
