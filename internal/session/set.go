package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session/clock"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/session/places"
	"github.com/sallyport/sallyport/internal/session/sessionlog"
)

const (
	// watchInterval is how often idle sessions are looked for.
	watchInterval = 5 * time.Second
	// tidyInterval is how often suspended ones are cleaned up.
	tidyInterval = 10 * time.Minute
	// roomInterval is how often a caller that waits for room checks again.
	roomInterval = 10 * time.Millisecond
)

// A Set holds the sessions of a process, of any owners and templates. It is
// safe for concurrent use.
type Set struct {
	options    Options
	hibernator *hibernate.Store
	logs       *sessionlog.Store
	clock      *clock.Clock

	made time.Time

	life context.Context
	end  context.CancelFunc
	all  sync.WaitGroup

	mu       sync.Mutex
	sessions map[Key]*Session
	shared   map[string]*shared // by the template's id
	pools    pools              // of the templates
	watching bool
	closed   bool
}

// NewSet returns a set without sessions.
func NewSet(options Options) *Set {
	options = options.withDefaults()
	clock := clock.New(options.Now)
	s := &Set{
		options: options, hibernator: newHibernator(options, clock), clock: clock,
		logs:     sessionlog.New(options.Logs, options.LogBytes, options.Logger),
		sessions: map[Key]*Session{}, shared: map[string]*shared{},
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.made = clock.Now()
	return s
}

// Get returns the session of that key, and creates it from the template if it
// does not exist. The error is ErrTemplate if it exists with another template.
func (s *Set) Get(key Key, t *Template) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(key, t)
}

// Enter is Get and the session's Enter at once, so that the session is not
// forgotten between the two.
func (s *Set) Enter(key Key, t *Template) (*Session, *Ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, err := s.get(key, t)
	if err != nil {
		return nil, nil, err
	}
	return one, one.Enter(), nil
}

// get is Get for the holder of s.mu.
func (s *Set) get(key Key, t *Template) (*Session, error) {
	if s.closed {
		return nil, ErrClosed
	}
	if t == nil || t.Engine == nil {
		return nil, errNoEngine
	}
	if got := s.sessions[key]; got != nil {
		if t == got.template || t.id() == got.shared.id {
			got.got = s.clock.Elapsed()
			return got, nil
		}
		if !got.empty() {
			what := "engine " + got.config.Engine.Name()
			if was, now := environment(got.config.Environment), environment(t.Environment); was != now {
				what = "environment " + was + ", not " + now
			} else if !slices.Equal(got.config.Mounts, t.Mounts) {
				what = "other folders"
			}
			return nil, fmt.Errorf("%w (%s): use another name, or remove that session ('sallyport sessions rm %s')", ErrTemplate, what, key.Name)
		}
		delete(s.sessions, key)
		s.logs.Release(got.history)
		s.all.Go(got.Close)
	}
	if err := key.check(); err != nil {
		return nil, err
	}
	if !key.own() {
		if err := s.mayHave(key.Owner); err != nil {
			return nil, err
		}
	}
	shared, err := s.share(t)
	if err != nil {
		return nil, err
	}
	made := newSession(key, shared, s.clock)
	made.template, made.got, made.room = t, s.clock.Elapsed(), s.room
	made.checkpoint = newCheckpoint(s.hibernator, key, shared)
	made.history = s.logs.Log(key.String(), made.checkpoint != nil && !key.own())
	s.sessions[key] = made
	if !s.watching && (made.checkpoint != nil || s.logs != nil) {
		s.watching = true
		s.all.Go(s.watch)
	}
	return made, nil
}

// empty reports whether the session has no state and no caller waits for it, so
// that one with another template can take its place.
func (s *Session) empty() bool {
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	return s.status.state == "" && !s.running.Load() && s.Waiting() == 0
}

// share returns what the sessions of the template share, and creates it for the
// first of them. The caller holds s.mu.
func (s *Set) share(t *Template) (*shared, error) {
	if have := s.shared[t.id()]; have != nil {
		have.used = s.clock.Elapsed()
		return have, nil
	}
	made, err := newShared(s.options, t)
	if err != nil {
		return nil, err
	}
	if len(s.shared) >= maxTemplates {
		s.forgetTemplate()
	}
	made.open(&s.pools)
	made.used = s.clock.Elapsed()
	s.shared[made.id] = made
	return made, nil
}

// maxTemplates bounds the templates whose shared parts are kept although no
// session has them.
const maxTemplates = 64

// forgetTemplate gives up what the sessions of a template shared: of those that
// no session has, the one that has not been used for longest. The caller holds
// s.mu.
func (s *Set) forgetTemplate() {
	used := map[*shared]bool{}
	for _, one := range s.sessions {
		used[one.shared] = true
	}
	var oldest *shared
	for _, p := range s.shared {
		if !used[p] && (oldest == nil || p.used < oldest.used) {
			oldest = p
		}
	}
	if oldest != nil {
		delete(s.shared, oldest.id)
		s.all.Go(oldest.close)
	}
}

// Open returns the session of that key if this process has it or a record of it
// exists. From a record, it is created with the template among templates that
// it was made with. Open starts nothing.
func (s *Set) Open(key Key, templates ...*Template) (*Session, error) {
	if one := s.known(key); one != nil {
		return one, nil
	}
	if s.hibernator == nil || key.own() || len(templates) == 0 {
		return nil, ErrUnknown
	}
	if err := key.check(); err != nil {
		return nil, err
	}
	record, err := s.hibernator.Read(key.file())
	if err != nil || record == nil {
		return nil, errors.Join(ErrUnknown, err)
	}
	if i := slices.IndexFunc(templates, func(t *Template) bool { return fitsExactly(record, t) }); i >= 0 {
		return s.Get(key, templates[i])
	}
	var misfit error
	for _, t := range templates {
		if err := fits(record, t); err == nil {
			return s.Get(key, t)
		} else if misfit == nil || t.Environment == record.Environment {
			misfit = err // the first one's, if none has the record's environment
		}
	}
	if !slices.ContainsFunc(templates, func(t *Template) bool { return t.Environment == record.Environment }) {
		return nil, fmt.Errorf("%w: environment %s, which is not built or no longer configured. Build it ('sallyport env build %s'), or forget the session's state ('sallyport sessions reset %s')", ErrTemplate, record.Environment, record.Environment, record.Name)
	}
	return nil, misfit
}

// A Making says what a session that has state was made with.
type Making struct {
	Template    *Template // nil: this process does not have the session
	Environment string    // its name
	Suspended   bool      // its state is on disk
	// Folders are those that it sees, or saw last, if this process does not have it.
	Folders []sandbox.Mount
}

// Made returns what a session was made with; ok is false if it has no state.
func (s *Set) Made(key Key) (m Making, ok bool) {
	if one := s.known(key); one != nil && !one.empty() {
		return Making{Template: one.template, Environment: one.template.Environment}, true
	}
	if s.hibernator == nil || key.own() || key.check() != nil {
		return Making{}, false
	}
	record, err := s.hibernator.Read(key.file())
	if err != nil || record == nil {
		return Making{}, false // whoever runs code in it gets the error
	}
	m.Environment = record.Environment
	m.Suspended, m.Folders = record.Status == hibernate.Suspended, record.Mounts
	return m, true
}

// Prepare makes the prepared snapshot of a template now, so that its first session
// starts from it. It does nothing where sandboxes are not restored. The error is
// ErrPreload if the snapshot was made without some modules.
func (s *Set) Prepare(ctx context.Context, t *Template) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	shared, err := s.share(t)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return shared.prepared.now(ctx)
}

// End ends a client's own session and removes it with its log.
func (s *Set) End(key Key) {
	one := s.known(key)
	if one == nil || !key.own() {
		return
	}
	one.Close()
	s.mu.Lock()
	if s.sessions[key] == one {
		delete(s.sessions, key)
	}
	s.mu.Unlock()
	s.logs.Release(one.history)
	if err := one.history.Remove(); err != nil {
		s.options.Logger.Warn("a session's log could not be removed", "session", key.String(), "error", err)
	}
	s.forgotten(key)
}

// forgotten reports that a session's state was forgotten on purpose.
func (s *Set) forgotten(key Key) {
	if s.options.Forgotten != nil {
		s.options.Forgotten(key)
	}
}

// EndOf ends a client's own sessions, whatever their owners.
func (s *Set) EndOf(client string) {
	s.mu.Lock()
	var keys []Key
	for key := range s.sessions {
		if key.own() && key.Client == client {
			keys = append(keys, key)
		}
	}
	s.mu.Unlock()
	for _, key := range keys {
		s.End(key)
	}
}

// Close closes all sessions concurrently and returns when they are closed.
// Those that can be saved are suspended. It is idempotent.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	s.end()
	var all sync.WaitGroup
	for _, one := range s.sessions {
		all.Go(one.Close)
	}
	for _, one := range s.shared {
		all.Go(one.close)
	}
	s.mu.Unlock()
	all.Wait()
	s.all.Wait()
	s.logs.Close()
	s.hibernator.Close()
}

// room makes room for one more sandbox, which counts as running from then on.
// It waits for sessions that are being suspended and, if it is patient, for those
// that will be free in a moment: while fewer executions run than sandboxes may,
// there is always one.
func (s *Set) room(ctx context.Context, newcomer *Session, patient bool) error {
	var (
		failed  map[*Session]error // sessions that could not be suspended
		failure error              // that of the first of them
		waits   time.Duration
	)
	for {
		running, going, spare := s.look(newcomer, failed)
		switch {
		case running < s.options.MaxRunning:
			return nil
		case spare != nil:
			if err := s.suspendOrEnd(spare); err != nil {
				if failed == nil {
					failed, failure = map[*Session]error{}, err
				}
				failed[spare] = err
			}
		case going || patient && failure == nil && waits < s.options.StartTimeout:
			select {
			case <-time.After(roomInterval):
				waits += roomInterval
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case failure != nil:
			return failure
		default:
			return fmt.Errorf("%w: %d sessions run code, as many as may run at a time (sessions.maxRunning); wait until one has finished", ErrNoRoom, running)
		}
		if err := s.life.Err(); err != nil {
			return ErrClosed
		}
	}
}

// look returns how many sessions run besides the newcomer, which runs from then on if
// there is room; whether one of them is being suspended; and the one to suspend, of
// those that run no code and have not failed. The client that has most sandboxes makes
// room, with a session whose next execution waits for its place only where it has no
// other.
func (s *Set) look(newcomer *Session, failed map[*Session]error) (running int, going bool, spare *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := map[*places.Line]int{}
	parked := map[*Session]int{} // the sessions that can make room: 1 if the next execution waits
	for _, one := range s.sessions {
		if one == newcomer || !one.running.Load() {
			continue
		}
		running++
		going = going || one.status.isSaving()
		has[one.status.lastUser()]++
		switch {
		case failed[one] != nil:
		case one.Waiting() == 0:
			parked[one] = 0
		case one.parkedAt() != nil:
			parked[one] = 1
		}
	}
	if running < s.options.MaxRunning {
		newcomer.running.Store(true)
		return running, going, nil
	}
	if len(parked) == 0 {
		return running, going, nil
	}
	return running, going, slices.MinFunc(slices.Collect(maps.Keys(parked)), func(a, b *Session) int {
		return cmp.Or(has[b.status.lastUser()]-has[a.status.lastUser()], parked[a]-parked[b], cmp.Compare(a.used.Load(), b.used.Load()))
	})
}

// suspendOrEnd suspends a session, or ends it if the engine cannot save it; its
// next execution reports what was lost. It does nothing if the session is in use.
func (s *Set) suspendOrEnd(one *Session) error {
	ctx, cancel := context.WithTimeout(s.life, suspendTimeout)
	defer cancel()
	ended := false
	err := one.aside(func() error {
		err := one.suspend(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case !errors.Is(err, errNoSuspend):
			return fmt.Errorf("there is no room for one more: %d sessions are running, as many as may (sessions.maxRunning), and %s, which has been idle longest, could not be suspended: %w",
				s.options.MaxRunning, one.key.Label(), err)
		}
		one.drop("it was ended to make room for another session, and could not be saved: " + err.Error())
		ended = true
		return nil
	})
	if !ended || !s.options.Forget {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[one.key] == one && one.Waiting() == 0 && !one.running.Load() {
		delete(s.sessions, one.key)
		s.logs.Release(one.history)
		s.all.Go(one.Close)
	}
	return nil
}

// unused lists the running sessions that have not been used since then.
func (s *Set) unused(since time.Duration) (list []*Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sessions {
		if one.running.Load() && one.Waiting() == 0 && time.Duration(one.used.Load()) <= since {
			list = append(list, one)
		}
	}
	return list
}

// watch suspends idle sessions and cleans up the disk.
func (s *Set) watch() {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	tidied := time.Time{}
	for {
		select {
		case <-s.life.Done():
			return
		case <-ticker.C:
		}
		s.clock.Look()
		if s.options.Idle > 0 {
			since := s.clock.Elapsed() - s.options.Idle
			for _, one := range s.unused(since) {
				ctx, cancel := context.WithTimeout(s.life, suspendTimeout)
				err := one.suspendIf(ctx, since)
				if err == nil {
					tidied = time.Time{} // the disk holds more now
				} else if s.life.Err() == nil {
					one.use() // do not retry at once
					s.options.Logger.Warn("an idle session could not be saved, and stays in memory", "session", one.key.String(), "error", err)
				}
				cancel()
			}
		}
		if time.Since(tidied) > tidyInterval {
			tidied = time.Now()
			if err := s.tidy(); err != nil {
				s.options.Logger.Warn("keeping order among saved sessions", "error", err)
			}
		}
	}
}

// tidy cleans up snapshots and logs.
func (s *Set) tidy() error {
	s.logs.Tidy(func(file string) bool { return hibernate.HasRecord(s.options.Records, file) })
	s.mu.Lock()
	saves := false
	for _, one := range s.shared {
		saves = saves || one.restorer() != nil
	}
	s.mu.Unlock()
	if !saves {
		return nil
	}
	return s.hibernator.Tidy()
}
