package catalog

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// Server is a server that may be listed. Key identifies its definition: it
// changes with everything that may change the tools, and can be a file name.
type Server struct {
	Name, Alias, Description string
	Key                      string
	// Program identifies what runs, without its secrets. Pins belong to it.
	Program string
	Denied  []string // names of tools that code may not use
}

// Source is where servers come from. Its methods are safe for concurrent use.
type Source interface {
	// Servers returns those that code may be granted now, sorted by name. It starts
	// nothing.
	Servers() []Server
	// List asks a server what it offers. A server that was started for this is
	// ended again unless another caller uses it.
	List(ctx context.Context, name string) (*Listing, error)
}

// Refresh determines when servers are started only to be listed.
type Refresh string

// The ways to refresh.
const (
	// Auto lists servers in the background, and on demand.
	Auto Refresh = "auto"
	// Manual lists a server only on demand.
	Manual Refresh = "manual"
	// Off never lists a server. The list of a server that runs anyway is still
	// kept.
	Off Refresh = "off"
)

// Config is what a Catalog needs. Zero values mean the defaults.
type Config struct {
	Source  Source // required
	Dir     store.Dir
	Log     *slog.Logger
	Refresh Refresh // Auto
	// MaxAge is the age from which a list is old (24 h).
	MaxAge time.Duration
	// Timeout bounds the listing of one server, its start included (90 s).
	Timeout time.Duration
	// Quiet is how long there must have been no request, after Start, before the
	// background work begins (5 s).
	Quiet time.Duration
}

// parallel is how many servers are listed at the same time in the background.
// Starting one takes a core for a second or two.
const parallel = 2

// keep is how long data that was read stays in memory after its last use.
const keep = 2 * time.Minute

// A Catalog is safe for concurrent use.
type Catalog struct {
	config Config
	log    *slog.Logger
	files  files

	base    context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup
	wake    chan struct{} // has one token when there may be work

	learning sync.Mutex // held while shapes are stored

	mu      sync.Mutex
	closed  bool
	started bool
	eager   bool               // the first background work has not been done yet
	entries map[string]*cached // by key
	flights map[string]*flight // by key
	stale   map[string]bool    // keys whose list is known to be old
	asked   map[string]asked   // by key: what this program asked
	index   *index
	forget  *time.Timer
	busy    int           // executions that run
	idle    chan struct{} // closed when busy is 0 again; nil: nothing waits for that
}

// cached are a definition's files in memory, as of a version of each.
type cached struct {
	listing, failure          *record
	listingStamp, failedStamp stamp
	shapes                    *Shapes
	shapesStamp               stamp
}

// cached returns what is in memory of a definition. The caller holds c.mu.
func (c *Catalog) cached(key string) *cached {
	k := c.entries[key]
	if k == nil {
		k = &cached{}
		c.entries[key] = k
	}
	return k
}

// asked is when this program last asked a server, and when it must ask again.
// It also counts if nothing can be written.
type asked struct{ at, again time.Time }

// flight is a listing in progress, which callers wait for.
type flight struct {
	done chan struct{}
	err  error
}

// New returns a catalog. It reads and starts nothing.
func New(config Config) *Catalog {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Refresh == "" {
		config.Refresh = Auto
	}
	setDefault(&config.MaxAge, 24*time.Hour)
	setDefault(&config.Timeout, 90*time.Second)
	setDefault(&config.Quiet, 5*time.Second)
	c := &Catalog{
		config: config, log: config.Log, files: files{config.Dir},
		wake: make(chan struct{}, 1), eager: true,
		entries: map[string]*cached{}, flights: map[string]*flight{}, stale: map[string]bool{}, asked: map[string]asked{},
	}
	c.base, c.cancel = context.WithCancel(context.Background())
	return c
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// Close ends the background work and all listings, and waits for them. It is
// idempotent.
func (c *Catalog) Close() {
	c.mu.Lock()
	c.closed = true
	if c.forget != nil {
		c.forget.Stop()
	}
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
}

// Entry is what is known about one server. It is shared and must not be
// modified.
type Entry struct {
	Server
	// Listing is nil for a server that was never listed.
	Listing *Listing
	Listed  time.Time
	// Failure is why the last attempt to list it, after Listed, failed.
	Failure *Failure
}

// About returns what a server is for: in the user's words, or else in its own.
func (e *Entry) About() string {
	if e.Description != "" || e.Listing == nil {
		return tool.FirstSentence(e.Description)
	}
	return e.Listing.About
}

// Entries returns what is known about every server, sorted by name.
func (c *Catalog) Entries() []Entry {
	servers := c.config.Source.Servers()
	entries := make([]Entry, len(servers))
	for i, s := range servers {
		entries[i] = c.entry(s)
	}
	return entries
}

// Entry returns what is known about one server; ok reports whether it exists.
func (c *Catalog) Entry(name string) (e Entry, ok bool) {
	s, ok := c.server(name)
	if !ok {
		return Entry{}, false
	}
	return c.entry(s), true
}

func (c *Catalog) server(name string) (Server, bool) {
	servers := c.config.Source.Servers()
	i := slices.IndexFunc(servers, func(s Server) bool { return s.Name == name })
	if i < 0 {
		return Server{}, false
	}
	return servers[i], true
}

func (c *Catalog) entry(s Server) Entry {
	e := Entry{Server: s}
	k := c.load(s)
	if k.listing != nil {
		e.Listing, e.Listed = k.listing.Listing, k.listing.Listed
	}
	if k.failure != nil {
		e.Failure = k.failure.Failure
	}
	return e
}

// load returns what is known about a definition, from memory if the files have
// not changed.
func (c *Catalog) load(s Server) cached {
	listing, failed := c.files.stamp(listingFile(s.Key)), c.files.stamp(failureFile(s.Key))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used()
	k := c.cached(s.Key)
	if !c.files.none() {
		c.reload(s, &k.listing, &k.listingStamp, listingFile(s.Key), listing)
		c.reload(s, &k.failure, &k.failedStamp, failureFile(s.Key), failed)
	}
	return *k
}

// reload reads a file that has changed. The caller holds c.mu.
func (c *Catalog) reload(s Server, r **record, known *stamp, name string, now stamp) {
	if *known == now {
		return
	}
	fresh, err := c.files.read(name)
	if err != nil {
		c.log.Warn("catalog: a file is not usable and will be replaced", "server", s.Name, "error", err)
		fresh = nil
		c.stale[s.Key] = true
	}
	*r, *known = fresh, now
}

// used postpones the release of memory. The caller holds c.mu.
func (c *Catalog) used() {
	switch {
	case c.closed:
	case c.forget == nil:
		c.forget = time.AfterFunc(keep, c.drop)
	default:
		c.forget.Reset(keep)
	}
}

// drop forgets what can be read again, and returns the memory at once if no
// code waits: an idle program would keep it for long.
func (c *Catalog) drop() {
	c.mu.Lock()
	large, busy := c.index != nil, c.busy > 0
	c.index = nil
	if !c.files.none() {
		clear(c.entries)
	}
	c.mu.Unlock()
	if large && !busy {
		debug.FreeOSMemory()
	}
}

// put stores a list and removes the failure, or the other way round.
func (c *Catalog) put(s Server, r *record) {
	r.Server = s.Name
	name := listingFile(s.Key)
	if r.Failure != nil {
		name = failureFile(s.Key)
	}
	at, err := c.files.write(name, r)
	if err != nil {
		c.log.Warn("catalog: cannot be written", "server", s.Name, "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.cached(s.Key)
	if r.Failure != nil {
		k.failure, k.failedStamp = r, at
	} else {
		k.listing, k.listingStamp = r, at
		k.failure, k.failedStamp = nil, stamp{}
		c.files.remove(failureFile(s.Key))
	}
	c.used()
}

// Learn stores the list of a server that runs anyway. It does not wait for
// that.
func (c *Catalog) Learn(name string, l *Listing) {
	s, ok := c.server(name)
	if !ok {
		return
	}
	c.mu.Lock()
	delete(c.stale, s.Key)
	c.mu.Unlock()
	c.goes(func() { c.took(s, l) })
}

// took stores a list, with details that only an earlier list of the same
// version had.
func (c *Catalog) took(s Server, l *Listing) {
	l.bound()
	if old := c.entry(s).Listing; old != nil && old.Version == l.Version {
		if l.Resources == nil {
			l.Resources = old.Resources
		}
		if l.Prompts == nil {
			l.Prompts = old.Prompts
		}
	}
	c.put(s, &record{Listed: time.Now(), Listing: l})
}

// Stale reports that a server's tools have changed. It does not wait.
func (c *Catalog) Stale(name string) {
	c.goes(func() {
		s, ok := c.server(name)
		if !ok {
			return
		}
		c.mu.Lock()
		c.stale[s.Key] = true
		c.mu.Unlock()
		c.Wake()
	})
}

// goes runs f in the background, unless the catalog is closed.
func (c *Catalog) goes(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.running.Go(f)
	return true
}

// Trouble records that a server failed while code used it, for the user.
func (c *Catalog) Trouble(name string, why error) {
	s, ok := c.server(name)
	if !ok {
		return
	}
	f := (*Failure)(nil).next(why, time.Now())
	if _, err := c.files.write(troubleFile(s.Key), &record{Server: s.Name, Failure: f}); err != nil {
		c.log.Warn("catalog: cannot be written", "server", s.Name, "error", err)
	}
}

// LastTrouble returns the last failure that Trouble has recorded, of any process, or
// nil.
func (c *Catalog) LastTrouble(name string) *Failure {
	s, ok := c.server(name)
	if !ok {
		return nil
	}
	r, err := c.files.read(troubleFile(s.Key))
	if err != nil || r == nil {
		return nil // it is only a hint
	}
	return r.Failure
}
