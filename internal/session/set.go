package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport/internal/snapshot"
)

const (
	// lookEvery is how often resting sessions are looked at.
	lookEvery = 5 * time.Second
	// tidyEvery is how often those that sleep are.
	tidyEvery = 10 * time.Minute
	// roomEvery is how often somebody looks who waits for room.
	roomEvery = 10 * time.Millisecond
	// ahead is how far the clock of what is on disk may be before ours.
	ahead = time.Hour
)

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// A Set holds sessions by name. It is safe for concurrent use.
type Set struct {
	config Config
	own    string // the name of the session that ends with the process
	base   *base
	pool   *pool
	keeper *keeper
	books  *books
	clock  *clock

	made time.Time

	life context.Context
	end  context.CancelFunc
	all  sync.WaitGroup

	mu       sync.Mutex
	sessions map[string]*Session
	looking  bool
	closed   bool
}

// NewSet returns a set that makes its sessions from config. The session named
// own ends with the set; others sleep on where the engine can save them.
func NewSet(config Config, own string) *Set {
	config = config.withDefaults()
	clock := newClock(config.Now)
	s := &Set{config: config, own: own, base: newBase(config), keeper: newKeeper(config, clock), clock: clock, sessions: map[string]*Session{}}
	s.pool, s.books = newPool(s.config, s.base), newBooks(s.config)
	s.life, s.end = context.WithCancel(context.Background())
	s.made = clock.now()
	return s
}

// Get returns the session of that name, which it makes where there is none.
func (s *Set) Get(name string) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if got := s.sessions[name]; got != nil {
		got.got = s.clock.elapsed()
		return got, nil
	}
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("a session's name is 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit")
	}
	if name != s.own {
		if err := s.mayHave(); err != nil {
			return nil, err
		}
	}
	made, err := New(name, s.config)
	if err != nil {
		return nil, err
	}
	made.clock, made.got = s.clock, s.clock.elapsed()
	made.base, made.pool, made.room = s.base, s.pool, s.room
	made.nap = s.keeper.nap(name, name == s.own)
	made.book = s.books.book(name, s.keeper != nil && name != s.own)
	s.sessions[name] = made
	if !s.looking && (s.keeper != nil || s.books != nil) {
		s.looking = true
		s.all.Go(s.look)
	}
	return made, nil
}

// Unkept says why named sessions end with this process; nil: they are kept.
func (s *Set) Unkept() error {
	switch {
	case s.keeper != nil:
		return nil
	case s.config.Snapshots == nil:
		return errors.New("there is no directory to keep it in (set HOME, XDG_STATE_HOME or stateDir)")
	}
	return fmt.Errorf("engine %s cannot save sandboxes", s.config.Backend.Name())
}

// Close closes every session, side by side, and returns when they are closed.
// Those that can be saved sleep then. It is idempotent.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	s.end()
	var all sync.WaitGroup
	for _, one := range s.sessions {
		all.Go(one.Close)
	}
	s.mu.Unlock()
	s.pool.close()
	s.base.close()
	all.Wait()
	s.all.Wait()
	s.books.close()
	s.keeper.close()
}

// resting lists the sessions that are awake and that nobody uses, the one that
// has rested longest first.
func (s *Set) resting() []*Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*Session
	for _, one := range s.sessions {
		if one.awake.Load() && one.Waiting() == 0 {
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b *Session) int { return int(a.used.Load() - b.used.Load()) })
	return list
}

// room makes room for one more sandbox, which then counts as awake. It waits for
// sessions that are being laid to sleep already.
func (s *Set) room(ctx context.Context, newcomer *Session) error {
	for {
		s.mu.Lock()
		awake, going := 0, false
		for _, one := range s.sessions {
			if one != newcomer && one.awake.Load() {
				awake++
				going = going || one.view.isSaving()
			}
		}
		if awake < s.config.MaxAwake {
			newcomer.awake.Store(true)
		}
		s.mu.Unlock()
		if awake < s.config.MaxAwake {
			return nil
		}
		list := s.resting()
		if len(list) == 0 && going {
			select {
			case <-time.After(roomEvery):
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if len(list) == 0 {
			return fmt.Errorf("%d sessions run code, as many as may be awake at a time (sessions.maxAwake); wait until one has ended", awake)
		}
		if err := s.rest(list[0]); err != nil {
			return err
		}
	}
}

// rest lays a session down, or ends it where the engine can save none; what it
// lost is said at its next execution.
func (s *Set) rest(one *Session) error {
	ctx, cancel := context.WithTimeout(s.life, sleepTimeout)
	defer cancel()
	err := one.sleepIf(ctx, s.clock.elapsed())
	if err == nil || ctx.Err() != nil {
		return err
	}
	if !errors.Is(err, errNoSleep) {
		return fmt.Errorf("there is no room for one more: %d sessions are awake, as many as may be (sessions.maxAwake), and %s, which has rested longest, could not be laid to sleep: %w",
			s.config.MaxAwake, one.name, err)
	}
	return one.dropIf(ctx, "it was ended to make room for another session, and could not be saved: "+err.Error())
}

// look lays resting sessions down and keeps order on the disk.
func (s *Set) look() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	tidied := time.Time{}
	for {
		select {
		case <-s.life.Done():
			return
		case <-ticker.C:
		}
		s.clock.look()
		if s.config.Idle > 0 {
			for _, one := range s.resting() {
				since := s.clock.elapsed() - s.config.Idle
				if time.Duration(one.used.Load()) > since {
					continue
				}
				ctx, cancel := context.WithTimeout(s.life, sleepTimeout)
				err := one.sleepIf(ctx, since)
				if err == nil {
					tidied = time.Time{} // the disk holds more now
				} else if s.life.Err() == nil {
					one.use() // not at once again
					s.config.Logger.Warn("a resting session could not be saved, and stays in memory", "session", one.name, "error", err)
				}
				cancel()
			}
		}
		if time.Since(tidied) > tidyEvery {
			tidied = time.Now()
			if err := s.tidy(); err != nil {
				s.config.Logger.Warn("keeping order among saved sessions", "error", err)
			}
		}
	}
}

// tidy keeps order among snapshots and logs.
func (s *Set) tidy() error {
	if s.books != nil {
		s.books.tidy(func(file string) bool {
			_, err := os.Lstat(s.config.Records.Path(file + recordSuffix))
			return !errors.Is(err, fs.ErrNotExist)
		})
	}
	if s.keeper == nil {
		return nil
	}
	return s.keeper.tidy()
}

// makeRoom has the sessions go that have slept longest until so many more bytes
// may be written. It removes nothing where that is not enough. The caller holds
// the store's lock.
func (k *keeper) makeRoom(need int64) error {
	total, err := k.store.Unfinished()
	if err != nil {
		return err
	}
	list, err := k.store.List()
	if err != nil {
		return err
	}
	var stay int64 // of what cannot go
	for _, e := range list {
		switch {
		case strings.HasPrefix(e.Name, sessionPrefix):
			total += e.Size
		case !strings.HasPrefix(e.Name, basePrefix):
			total, stay = total+e.Size, stay+e.Size
		}
	}
	tooMuch := func(has int64) error {
		return fmt.Errorf("saved sessions may take %d MB on disk (sessions.maxDisk): %d MB are taken, and up to %d MB are needed", k.config.MaxDisk>>20, has>>20, need>>20)
	}
	if stay+need > k.config.MaxDisk {
		return tooMuch(stay)
	}
	slices.SortFunc(list, func(a, b snapshot.Entry) int { return a.Time.Compare(b.Time) })
	for _, e := range list {
		if total+need <= k.config.MaxDisk {
			return nil
		}
		name, named := strings.CutPrefix(e.Name, sessionPrefix)
		if !named {
			continue
		}
		if err := k.expire(name, "saved sessions took more room than sessions.maxDisk allows"); err != nil {
			return err
		}
		if k.store.Size(e.Name) == 0 {
			total -= e.Size
		}
	}
	if total+need > k.config.MaxDisk {
		return tooMuch(total)
	}
	return nil
}

// tidy removes what dead processes left, what has slept too long, and what is
// more than the disk is to hold.
func (k *keeper) tidy() error {
	list, err := k.store.List()
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b snapshot.Entry) int { return a.Time.Compare(b.Time) })
	var total int64
	for _, e := range list {
		if !strings.HasPrefix(e.Name, basePrefix) {
			total += e.Size
		}
	}
	var errs []error
	for _, e := range list {
		name, named := strings.CutPrefix(e.Name, sessionPrefix)
		if e.Time.Sub(k.clock.now()) > ahead {
			// The clock was set back since. It counts from now on.
			errs = append(errs, k.store.Touch(e.Name, k.clock.now()))
		}
		switch {
		case named && k.config.Keep > 0 && k.clock.age(e.Time) > k.config.Keep:
			errs = append(errs, k.expire(name, fmt.Sprintf("it slept for more than %v (sessions.keep)", k.config.Keep)))
		case named && total > k.config.MaxDisk:
			errs = append(errs, k.expire(name, "saved sessions took more room than sessions.maxDisk allows"))
		case strings.HasPrefix(e.Name, processPrefix):
			unlock, err := k.try(e.Name)
			if err != nil {
				continue // that process lives
			}
			errs = append(errs, k.store.Remove(e.Name))
			unlock()
		default:
			continue
		}
		total -= e.Size
	}
	return errors.Join(errs...)
}
