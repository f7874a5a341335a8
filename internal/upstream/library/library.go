package library

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport/internal/state"
	"sallyport/internal/upstream/definitions"
)

// Definition is one server that the user has.
type Definition = definitions.Definition

// Config of a Library.
type Config struct {
	Places definitions.Places
	// Names choose among the sources, as definitions.Places knows them; "*"
	// stands for all.
	Names []string
	// Files count before all sources, Fallback after them.
	Files     []string
	Fallback  string
	Self      definitions.Self
	AllowSelf bool
	// State is where decisions and requests are kept.
	State state.Dir
	// Grant are patterns of what code may add by itself; see Grants.
	Grant []string
	// Check says whether a definition could be started at all; Add refuses what
	// could not. Nil: everything could.
	Check func(Definition) error
	Log   *slog.Logger // nil: nothing is logged
	// Changed is called when other definitions are in force than before, one
	// call after another; nil: nobody wants to know.
	Changed func(*Snapshot)
}

// Snapshot is what is in force at one time. It is not changed.
type Snapshot struct {
	// Version differs from that of every other Snapshot of the Library.
	Version     uint64
	Definitions []Definition // sorted by name
	Problems    []definitions.Problem

	watched []watched
}

// Get returns a definition by its name.
func (s *Snapshot) Get(name string) (Definition, bool) {
	i, ok := slices.BinarySearchFunc(s.Definitions, name, func(d Definition, name string) int { return strings.Compare(d.Name, name) })
	if !ok {
		return Definition{}, false
	}
	return s.Definitions[i], true
}

const (
	// calm is how long nobody looks at the files again: code that is run in a
	// loop does not pay for every look.
	calm = 50 * time.Millisecond
	// large is the size of a changed file from which on it is read beside what
	// goes on, and counts when it has been read: other clients keep their
	// servers among megabytes of what else they remember.
	large = 256 << 10
)

// Library knows the user's servers. Its methods are safe for concurrent use.
type Library struct {
	config  Config
	folder  string // the real path of the working directory
	sources []definitions.Source
	cache   *definitions.Cache

	current atomic.Pointer[Snapshot]
	looked  atomic.Int64 // nanoseconds since start, of the last look
	start   time.Time

	loading sync.Mutex // held by who reads files
	aside   sync.WaitGroup
	reading atomic.Bool // somebody reads beside what goes on

	mu        sync.Mutex
	closed    bool
	requested []Definition // that code was granted, in order
}

// New reads all files and returns the library.
func New(config Config) *Library {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	l := &Library{config: config, cache: definitions.NewCache(), start: time.Now()}
	for _, file := range config.Files {
		l.sources = append(l.sources, definitions.Source{Name: definitions.NameConfig, File: file})
	}
	l.sources = append(l.sources, config.Places.Sources(config.Names)...)
	if config.Fallback != "" {
		l.sources = append(l.sources, definitions.Source{Name: definitions.NameFallback, File: config.Fallback})
	}
	l.folder = config.Places.Dir
	if resolved, err := filepath.EvalSymlinks(l.folder); err == nil {
		l.folder = resolved
	}
	l.reload()
	return l
}

// Current returns what is in force. It looks at the files when it has not done
// so for a moment, which costs a few system calls, and reads them when one has
// changed. again says that a moment ago is not good enough, and that what is
// being read is to be waited for.
func (l *Library) Current(again bool) *Snapshot {
	now := int64(time.Since(l.start))
	if last := l.looked.Load(); !again && (now-last < int64(calm) || !l.looked.CompareAndSwap(last, now)) {
		return l.current.Load()
	}
	s := l.current.Load()
	changed, big := s.changed()
	if !changed {
		return s
	}
	if big && !again {
		l.reloadAside()
		return s
	}
	l.loading.Lock()
	defer l.loading.Unlock()
	if now := l.current.Load(); now != s {
		if changed, _ := now.changed(); !changed {
			return now
		}
	}
	return l.reload()
}

// Snapshot is what was in force when somebody last looked.
func (l *Library) Snapshot() *Snapshot { return l.current.Load() }

// changed reports whether a file is not what it was, and whether one of those
// is large.
func (s *Snapshot) changed() (changed, big bool) {
	for i := range s.watched {
		w := &s.watched[i]
		if now := stampOf(w.path); now != w.stamp || !w.settled {
			changed = true
			big = big || now.size >= large
		}
	}
	return changed, big
}

// reloadAside reads the files beside what goes on, once at a time.
func (l *Library) reloadAside() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.reading.CompareAndSwap(false, true) {
		return
	}
	l.aside.Go(func() {
		defer l.reading.Store(false)
		l.loading.Lock()
		defer l.loading.Unlock()
		l.reload()
	})
}

// Close waits for what is being read.
func (l *Library) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.aside.Wait()
}

// reload reads everything. Nobody else does meanwhile.
func (l *Library) reload() *Snapshot {
	read := time.Now()
	before := l.current.Load()
	trust := l.trust()
	result := definitions.Read(l.sources, definitions.Options{
		Env: l.config.Places.Env, Home: l.config.Places.Home, Dir: l.config.Places.Dir, Places: l.config.Places,
		Self: l.config.Self, AllowSelf: l.config.AllowSelf, Cache: l.cache, Offer: trust.offer,
	})
	s := &Snapshot{Definitions: result.Definitions, Problems: result.Problems}
	if trust.problem != "" {
		s.Problems = append(s.Problems, definitions.Problem{File: trust.path, Reason: trust.problem})
	}
	switched, problem := l.switches()
	if problem != "" {
		s.Problems = append(s.Problems, definitions.Problem{File: l.switchState().Path(switchFile), Reason: problem})
	}
	l.addRequested(s)
	switched.apply(s.Definitions)
	s.watched = watch(append(result.Paths, l.trustState().Path(trustName(l.folder)), l.switchState().Path(switchFile)), read)
	if before != nil && slices.EqualFunc(before.Definitions, s.Definitions, alike) && slices.Equal(before.Problems, s.Problems) {
		s.Version, s.Definitions = before.Version, before.Definitions
		l.current.Store(s)
		return s
	}
	if before == nil {
		s.Version = 1
	} else {
		s.Version = before.Version + 1
		l.report(before, s)
	}
	// Whoever sees the new version finds that it is in force.
	if l.config.Changed != nil && before != nil {
		l.config.Changed(s)
	}
	l.current.Store(s)
	return s
}

// alike reports whether nobody could tell two definitions apart.
func alike(a, b Definition) bool {
	return a.Same(b) && a.Description == b.Description && a.File == b.File && a.Line == b.Line && a.Source == b.Source &&
		slices.Equal(a.Shadowed, b.Shadowed) && slices.Equal(a.Uses, b.Uses) && a.Digest() == b.Digest() && a.CommandLine() == b.CommandLine()
}

// report logs what was not wrong before.
func (l *Library) report(before, now *Snapshot) {
	for _, p := range now.Problems {
		if !slices.Contains(before.Problems, p) {
			l.config.Log.Warn("server definitions", "problem", p.String())
		}
	}
	l.config.Log.Info("server definitions changed", "servers", len(now.Definitions))
}
