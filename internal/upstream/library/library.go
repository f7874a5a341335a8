package library

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// Definition is one of the user's servers.
type Definition = definitions.Definition

// Config of a Library.
type Config struct {
	Places definitions.Places
	// Names selects among the sources, as definitions.Places knows them; "*"
	// selects all.
	Names []string
	// Files take precedence over all sources; Fallback comes after them.
	Files     []string
	Fallback  string
	Self      definitions.Self
	AllowSelf bool
	// State is where decisions and requests are stored.
	State store.Dir
	// Check returns why a definition can never be started. Such a definition is a
	// problem, and Add refuses it. Nil: every definition can be started.
	Check func(Definition) error
	Log   *slog.Logger // nil: nothing is logged
}

// Snapshot is the set of servers in force at one time. It is immutable.
type Snapshot struct {
	// Version differs from those of all other Snapshots of the Library.
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
	// calm is how long the files are not checked again: code that runs in a
	// loop does not pay for a check each time.
	calm = 50 * time.Millisecond
	// large is the size from which a changed file is read in the background,
	// and counts once it has been read: other clients keep their servers among
	// megabytes of other data.
	large = 256 << 10
)

// Library knows the user's servers. Its methods are safe for concurrent use.
type Library struct {
	config  Config
	changed func(*Snapshot) // see OnChange
	folder  string          // the real path of the working directory
	sources []definitions.Source
	cache   *definitions.Cache

	current atomic.Pointer[Snapshot]
	looked  atomic.Int64 // nanoseconds since start, of the last look
	start   time.Time

	loading sync.Mutex // held while reading files
	aside   sync.WaitGroup
	reading atomic.Bool // files are being read in the background

	mu        sync.Mutex
	closed    bool
	requested []Definition // granted to code, in order
}

// New reads all files and returns the library.
func New(config Config) *Library {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	l := &Library{config: config, changed: func(*Snapshot) {}, cache: definitions.NewCache(), start: time.Now()}
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

// OnChange sets a function that is called whenever other definitions come into
// force, one call at a time and before Current returns them. It must be called
// before the Library is shared.
func (l *Library) OnChange(changed func(*Snapshot)) { l.changed = changed }

// Current returns the definitions in force. It checks the files if it has not
// done so a moment ago, which costs a few system calls, and reads them if one
// has changed. With again it always checks, and waits for files that are being
// read.
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

// Snapshot returns the definitions in force at the last check.
func (l *Library) Snapshot() *Snapshot { return l.current.Load() }

// changed reports whether a file has changed, and whether a changed one is
// large.
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

// reloadAside reads the files in the background, one reload at a time.
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

// Close waits for a reload to end.
func (l *Library) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.aside.Wait()
}

// reload reads everything. The caller holds loading.
func (l *Library) reload() *Snapshot {
	read := time.Now()
	before := l.current.Load()
	trust := l.trust()
	result := definitions.Read(l.sources, definitions.Options{
		Env: l.config.Places.Env, Home: l.config.Places.Home, Dir: l.config.Places.Dir, Places: l.config.Places,
		Self: l.config.Self, AllowSelf: l.config.AllowSelf, Cache: l.cache, Check: l.config.Check, Offer: trust.offer,
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
	s.warnOfAliases()
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
	// A caller that sees the new version must find it in force.
	if before != nil {
		l.changed(s)
	}
	l.current.Store(s)
	return s
}

// alike reports whether two definitions are indistinguishable.
func alike(a, b Definition) bool {
	return a.Same(b) && a.Description == b.Description && a.File == b.File && a.Line == b.Line && a.Source == b.Source &&
		slices.Equal(a.Shadowed, b.Shadowed) && slices.Equal(a.Uses, b.Uses) && a.Digest() == b.Digest() && a.CommandLine() == b.CommandLine()
}

// report logs the problems that are new.
func (l *Library) report(before, now *Snapshot) {
	for _, p := range now.Problems {
		if !slices.Contains(before.Problems, p) {
			l.config.Log.Warn("server definitions", "problem", p.String())
		}
	}
	l.config.Log.Info("server definitions changed", "servers", len(now.Definitions))
}
