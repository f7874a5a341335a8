// Package session owns sandboxes. A [Session] has at most one, starts it when
// the first code arrives, runs executions in it one at a time, in the order of
// their arrival, and replaces it when it was lost; the next outcome reports the
// loss. A [Set] holds sessions by name.
package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session/clock"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/session/places"
	"github.com/sallyport/sallyport/internal/session/sessionlog"
	"github.com/sallyport/sallyport/internal/snapshot"
	"github.com/sallyport/sallyport/internal/store"
)

// Options are what all sessions of a Set have in common.
type Options struct {
	Logger *slog.Logger // required
	// Grace is how long interrupted code may take to end before its sandbox
	// is destroyed; 0 is 2 seconds.
	Grace time.Duration
	// WholeRun bounds an execution's wall time, pending calls included; 0 is
	// 10 minutes.
	WholeRun time.Duration
	// StartTimeout bounds a sandbox's start; 0 is 60 seconds.
	StartTimeout time.Duration
	// Background is the share of one CPU that a sandbox may use between
	// executions before it is paused until the next one, where the engine can
	// measure and pause; 0 is a tenth, negative is no bound.
	Background float64
	// Snapshots is where snapshots are kept; nil: none are taken.
	Snapshots *snapshot.Store
	// Restore means that fresh sandboxes are restored from a prepared snapshot
	// where the engine can do that.
	Restore bool
	// Pool is how many fresh sandboxes of each template wait for new sessions
	// after its first execution; PoolAuto keeps one while sessions are being
	// opened. Those of the four templates used last are kept.
	Pool int
	// Records holds the records of sessions that outlive the process.
	Records store.Dir
	// Idle is how long a session is unused before it is suspended to disk,
	// where the engine can do that; 0: never.
	Idle time.Duration
	// Keep is how long a suspended session is kept; 0: forever.
	Keep time.Duration
	// MaxRunning bounds the sandboxes of a Set; 0 is 16. Of the sessions that run no
	// code, those of the client that has most sandboxes make room, and of these the one
	// that has been unused longest.
	MaxRunning int
	// Forget forgets a session that could not be saved when it made room,
	// instead of reporting the loss to its next execution: its key may then be
	// used with another template.
	Forget bool
	// Logs is the directory of the sessions' logs, and LogBytes bounds each;
	// without either, no logs are kept.
	Logs     string
	LogBytes int64
	// Journal receives the changes of sessions, under their Key.Label, and what their
	// sandboxes used between executions. It may be nil.
	Journal *journal.Journal
	// MaxDisk bounds the snapshots of sessions, of all owners and processes
	// together, in bytes; 0 is 4 GiB. Those suspended longest are removed
	// first.
	MaxDisk int64
	// Unpacked leaves the snapshots of sessions uncompressed.
	Unpacked bool
	// Unsaved, if not nil, is called at the end with the Key.Label of each
	// named session that could not be saved, instead of the log.
	Unsaved func(session string, err error)
	// Forgotten, if not nil, is called when a session's state was forgotten because
	// someone or its client asked for it. It must not block.
	Forgotten func(Key)
	// MaxNamed bounds the named sessions of each owner in a Set, running or
	// suspended; 0 is 256.
	MaxNamed int
	// Budget bounds the memory that sandboxes make this program hold; nil is
	// the budget of the whole program.
	Budget *budget.Host
	// Now is the machine's clock; nil is time.Now.
	Now func() time.Time
}

// PoolAuto keeps a sandbox ready for some minutes after a session was opened.
const PoolAuto = -1

func (c Options) withDefaults() Options {
	if c.Grace == 0 {
		c.Grace = 2 * time.Second
	}
	if c.WholeRun == 0 {
		c.WholeRun = 10 * time.Minute
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = time.Minute
	}
	if c.Background == 0 {
		c.Background = 0.1
	}
	if c.MaxRunning == 0 {
		c.MaxRunning = 16
	}
	if c.MaxDisk == 0 {
		c.MaxDisk = 4 << 30
	}
	if c.MaxNamed == 0 {
		c.MaxNamed = 256
	}
	if c.Budget == nil {
		c.Budget = budget.Program()
	}
	return c
}

// A Session runs code in one sandbox. It is safe for concurrent use.
type Session struct {
	key    Key
	config config
	shared *shared // by all sessions of its template
	// template is the one that Get was called with, to recognize it again.
	template *Template
	log      *slog.Logger
	queue    queue

	life context.Context // done when the session is closed
	end  context.CancelFunc

	// room makes room for one more sandbox; nil: there is room.
	room func(ctx context.Context, newcomer *Session, patient bool) error

	parking sync.Mutex    // held by whoever suspends a session whose turn is another's
	parked  *places.Place // that the holder of the turn waits for; nil: it does not

	// These belong to the holder of the turn.
	instance   *instance
	checkpoint *hibernate.Checkpoint // nil: the session exists in memory only
	lost       string                // why the last instance is gone; empty: there was none
	reported   bool                  // lost has been reported
	notice     string                // what is to be reported about the limits; empty: nothing
	lostBefore string                // the last loss that was reported
	packages   packages              // that code has added

	got     time.Duration   // when Get last returned it; belongs to the set
	history *sessionlog.Log // nil: none is kept
	status  status          // for List

	clock   *clock.Clock
	running atomic.Bool  // instance is not nil, or soon will be
	used    atomic.Int64 // when the last execution ended, by the clock

	mu     sync.Mutex
	closed bool
}

// New returns a session that belongs to no Set: it exists in memory only, and
// its sandboxes are not restored from a prepared snapshot. New starts nothing.
func New(key Key, options Options, t *Template) (*Session, error) {
	shared, err := newShared(options.withDefaults(), t)
	if err != nil {
		return nil, err
	}
	if err := key.check(); err != nil {
		return nil, err
	}
	return newSession(key, shared, clock.New(options.Now)), nil
}

func newSession(key Key, shared *shared, now *clock.Clock) *Session {
	s := &Session{key: key, config: shared.config, shared: shared, clock: now}
	s.config.label = key.Label()
	s.log = s.config.Logger.With("session", key.String())
	s.status.created = s.clock.Now()
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Key returns what identifies the session.
func (s *Session) Key() Key { return s.key }

// Engine returns the engine that runs its sandboxes.
func (s *Session) Engine() sandbox.Engine { return s.config.Engine }

// Running reports whether the session has a sandbox.
func (s *Session) Running() bool { return s.running.Load() }

// Limits returns the limits of the session's sandbox: those of its template,
// unless it was resumed under the smaller ones that it was suspended with.
func (s *Session) Limits() sandbox.Limits {
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	if s.status.instance != nil {
		return s.status.instance.limits
	}
	return s.config.Limits
}

// Written returns what code wrote in an execution of the session, of one stream
// or, if stream is empty, of both. The execution is the latest with that number
// if it is positive, and else counted back from the latest, which is 0.
func (s *Session) Written(ctx context.Context, number int64, stream string) (string, error) {
	return s.history.Written(ctx, number, stream)
}

// Unkept tells why the session ends with this process; nil: it can be
// suspended.
func (s *Session) Unkept() error { return s.shared.unkept() }

// Enter takes the next place in the session's queue. It does not block. The
// ticket must be passed to Exec or Leave, or the queue stops.
func (s *Session) Enter() *Ticket { return s.queue.enter() }

// Ahead returns how many executions run or wait before that of the ticket.
func (s *Session) Ahead(t *Ticket) int { return s.queue.ahead(t) }

// Leave gives up a place in the queue.
func (s *Session) Leave(t *Ticket) { s.queue.leave(t) }

// use records that the session is being used.
func (s *Session) use() { s.used.Store(int64(s.clock.Elapsed())) }

// Waiting returns how many executions run or wait.
func (s *Session) Waiting() int { return s.queue.length() }

// Exec runs code when the ticket's turn has come. An error means that no code
// ran. When ctx is done the code is interrupted, and its sandbox is kept if it
// survives that; with ErrStop as the cause it is killed.
func (s *Session) Exec(ctx context.Context, t *Ticket, req Request) (*Outcome, error) {
	defer req.Place.Done() // after it has left: its session may have to make room
	defer s.queue.leave(t)
	defer s.use()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(ErrStop) })()
	if err := s.queue.wait(ctx, t); err != nil {
		return nil, err
	}
	if err := s.place(ctx, req.Place); err != nil {
		return nil, err
	}
	call := req.Call
	for attempt := 0; ; attempt++ {
		if s.life.Err() != nil {
			return nil, ErrClosed
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		prep, err := s.ready(ctx, req)
		if err != nil {
			return nil, err
		}
		if s.reported {
			s.lost = ""
		}
		if s.lost != "" {
			s.history.Lost(s.lost)
		}
		if err := s.put(ctx, req.Files); err != nil {
			return nil, err
		}
		req.Call = s.packages.observe(call, s.instance.memoryLeft)
		s.packages.keepWith(s.checkpoint.KeepPackages)
		out, err := s.instance.exec(ctx, s.config, req, prep)
		s.packages.keepWith(nil)
		if errors.Is(err, errNotStarted) && attempt == 0 {
			// It died between two executions, unnoticed until now.
			s.drop(s.instance.deathReason())
			continue
		}
		if err != nil {
			return nil, err
		}
		out.Engine = s.instance.run.Handle().Backend
		out.Lost, out.LostBefore, out.Notice = s.lostBut(s.lost), s.lostBefore, s.notice
		s.notice = ""
		s.lost, s.reported = "", false
		s.status.executed(s.instance, req.Place.Line())
		if out.Reason != "" {
			s.drop(out.Reason)
			out.Lost = s.lostBut(out.Reason)
			// The execution that ended it reports that, unless its caller has
			// left.
			if s.reported = out.End != Cancelled; s.reported {
				s.history.Lost(s.lost)
			}
		} else {
			s.instance.startIdle(s.config.Background)
			if !s.instance.fresh {
				s.shared.prepared.want()
			}
			s.shared.pool.fill()
		}
		if out.Lost != "" {
			s.lostBefore = out.Lost
		}
		return out, nil
	}
}

// ready provides a living sandbox and prepares the request's servers,
// concurrently.
func (s *Session) ready(ctx context.Context, req Request) (*Preparation, error) {
	if s.instance != nil {
		if s.instance.dead() {
			s.drop(s.instance.deathReason())
		} else if err := s.instance.unpause(ctx); err != nil {
			s.drop("the paused sandbox could not be continued: " + err.Error())
		}
	}
	prepare := req.Prepare
	if prepare == nil {
		prepare = func(context.Context) (*Preparation, error) { return &Preparation{}, nil }
	}
	if s.instance != nil {
		return prepare(ctx)
	}
	var (
		prep    *Preparation
		prepErr error
		done    = make(chan struct{})
	)
	prepCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(done)
		prep, prepErr = prepare(prepCtx)
	}()
	b, err := s.begin(ctx, req.Place)
	s.running.Store(err == nil)
	if err != nil {
		cancel()
	}
	<-done
	if err != nil {
		return nil, err
	}
	b.packages = s.packages.list()
	s.instance = b
	s.opened(b)
	return prep, prepErr
}

// begin provides a sandbox for a session that has none: the suspended one, or
// else a fresh one. An execution with a place waits for room.
func (s *Session) begin(ctx context.Context, place *places.Place) (_ *instance, err error) {
	lost, err := s.checkpoint.Claim()
	if err != nil {
		return nil, err
	}
	if err := s.fits(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.checkpoint.Leave(s.lost) // another process may do better
		}
	}()
	if s.checkpoint.Held() {
		s.packages.adopt(&s.checkpoint.Record)
	}
	if lost != "" {
		s.lose(lost)
	}
	if s.room != nil {
		s.status.usedBy(place.Line())
		if err := s.room(ctx, s, place != nil); err != nil {
			return nil, err
		}
	}
	started := time.Now()
	if s.checkpoint != nil && s.checkpoint.Suspended {
		b, err := s.resume(ctx)
		if err == nil {
			s.notice = limitsNotice(b.limits, s.config.Limits)
			s.log.Debug("session resumed", "run", b.id, "duration", time.Since(started))
			s.changed(ctx, journal.SessionResumed, "", started)
			return b, nil
		}
		if s.checkpoint.Suspended {
			s.checkpoint.Leave("")
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, fmt.Errorf("the session is suspended, and cannot be resumed now: %w", err)
		}
		s.lose("the suspended session could not be resumed: " + err.Error())
		s.log.Warn("session lost", "reason", s.lost)
		s.changed(ctx, journal.SessionLost, s.lost, started)
	}
	if b := s.shared.pool.take(s); b != nil {
		s.log.Debug("ready sandbox taken", "run", b.id, "duration", time.Since(started))
		s.changed(ctx, journal.SessionStarted, "pool", started)
		return b, nil
	}
	b, err := start(ctx, s.config, s.shared.prepared, s.log, s.life.Done())
	if err != nil {
		return nil, err
	}
	s.log.Debug("sandbox started", "run", b.id, "restored", b.fresh, "duration", time.Since(started))
	cause := "cold"
	if b.fresh {
		cause = "prepared"
	}
	s.changed(ctx, journal.SessionStarted, cause, started)
	return b, nil
}

// drop destroys the sandbox and records why its state is gone.
func (s *Session) drop(reason string) {
	b := s.instance
	s.instance, s.notice = nil, ""
	s.lose(reason)
	s.running.Store(false)
	s.status.closed(hibernate.Gone, reason)
	s.log.Info("sandbox dropped", "run", b.id, "reason", reason)
	began := time.Now()
	b.destroy()
	s.changed(context.Background(), journal.SessionLost, reason, began)
}

// Close ends what is running, destroys the sandbox and lets nothing start
// again. It is idempotent, and returns when all of that is done.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.end()
	t := s.queue.enter()
	defer s.queue.leave(t)
	_ = s.queue.wait(context.Background(), t)
	if s.instance != nil && s.checkpoint != nil && !s.key.own() {
		ctx, cancel := context.WithTimeout(context.Background(), suspendTimeout)
		defer cancel()
		if err := s.suspend(ctx); err != nil {
			if s.config.Unsaved != nil {
				s.config.Unsaved(s.key.Label(), err)
			} else {
				s.log.Warn("the session could not be saved", "error", err)
			}
			s.lose("it could not be saved when its Sallyport ended: " + err.Error())
		}
	}
	if s.instance != nil {
		s.instance.destroy()
		s.instance = nil
	}
	s.history.Flush()
	switch {
	case s.checkpoint == nil:
	case s.key.own():
		_ = s.checkpoint.Forget()
	default:
		s.checkpoint.Leave(s.lost)
	}
}

// newID makes a sandbox's ID.
func newID() string {
	return "sp-" + strings.ToLower(rand.Text())[:20]
}

// startError adds what the engine and the guest reported to the error of a
// failed start.
func startError(err error, details ...string) error {
	var said []string
	for _, d := range details {
		if d = strings.TrimSpace(d); d != "" {
			said = append(said, d)
		}
	}
	if len(said) == 0 {
		return err
	}
	const most = 2000
	text := strings.Join(said, "\n")
	if len(text) > most {
		text = "…" + text[len(text)-most:]
	}
	return fmt.Errorf("%w\n%s", err, text)
}
