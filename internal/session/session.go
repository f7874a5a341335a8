// Package session owns sandboxes. A [Session] has at most one, starts it when
// the first code arrives, runs one execution in it at a time, in the order in
// which they came, and replaces it when it was lost; what was lost is said in
// the next outcome. A [Set] holds sessions by name.
package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport/internal/budget"
	"sallyport/internal/sandbox"
	"sallyport/internal/snapshot"
	"sallyport/internal/state"
	"sallyport/internal/wire"
)

// Config is what sessions are made from.
type Config struct {
	Backend sandbox.Backend // required; owned by the caller
	// Spec is the sandbox to start. ID is replaced, an empty Owner is the
	// session's name, zero limits get their defaults.
	Spec   sandbox.Spec
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
	// Restore says that fresh sandboxes are restored from a prepared snapshot
	// where the engine can. Preload are modules that it has imported.
	Restore bool
	Preload []string
	// Pool is how many fresh sandboxes wait for new sessions of a Set, from
	// its first execution on; PoolAuto keeps one while sessions are opened.
	Pool int
	// Records is where sessions that outlive the process are written down.
	Records state.Dir
	// Idle is how long a session rests before it is laid to sleep on disk,
	// where the engine can; 0: for ever.
	Idle time.Duration
	// Keep is how long a session that sleeps is kept; 0: for ever.
	Keep time.Duration
	// MaxAwake bounds the sandboxes of a Set; 0 is 16. The one that has
	// rested longest makes room.
	MaxAwake int
	// Logs is the directory of the sessions' logs, and LogBytes bounds each;
	// without either none are kept.
	Logs     string
	LogBytes int64
	// Rested is told, now and then and at its end, what the sandbox of a
	// session used while none of its executions ran, and in between, with
	// Spent.Open set, what it used since it was told last. It must not block.
	// Nil: nobody asks.
	Rested func(session string, spent Spent)
	// MaxDisk bounds the snapshots of sessions, of all processes together, in
	// bytes; 0 is 4 GiB. Those that have slept longest go first.
	MaxDisk int64
	// Unpacked says that sessions lie on disk as they are in memory.
	Unpacked bool
	// Unsaved, if not nil, is told at the end of each named session that could not
	// be saved, in place of the log.
	Unsaved func(session string, err error)
	// MaxNamed bounds the named sessions that a Set has, awake or asleep; 0 is
	// 256.
	MaxNamed int
	// Budget bounds what sandboxes make this program hold; nil is that of the
	// whole program.
	Budget *budget.Host
	// Now is the machine's clock; nil is time.Now.
	Now func() time.Time
}

// PoolAuto keeps a sandbox ready for some minutes after a session was opened.
const PoolAuto = -1

func (c Config) withDefaults() Config {
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
	if c.MaxAwake == 0 {
		c.MaxAwake = 16
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
	c.Spec.Limits = c.Spec.Limits.WithDefaults()
	return c
}

// Definition is a server as a sandbox learns it. Two definitions of a name
// with the same version are the same: the second is not sent.
type Definition struct {
	wire.Server
	Version string
}

// Preparation is what an execution is given of the servers.
type Preparation struct {
	Grants     []string
	Define     []Definition
	Discovered []wire.ServerInfo
	// DiscoveredVersion changes with Discovered.
	DiscoveredVersion string
}

// Request is one execution.
type Request struct {
	Code     string
	Filename string   // in tracebacks; empty: the guest's own
	Script   bool     // see guest.Exec
	Args     []string // sys.argv[1:]
	// Stdin is the code's standard input, read as the code reads it. A read of
	// it may outlive the execution. Nil: it is empty.
	Stdin   io.Reader
	Timeout time.Duration // of the agent's own time
	// Files are put into the workspace before the code runs. Their paths are
	// relative and clean.
	Files []sandbox.File
	// Collect takes out files that the execution left; nil: none are.
	Collect *Collect
	// Prepare is called when the request's turn has come, perhaps while the
	// sandbox starts; its error is the execution's. Nil: no servers.
	Prepare func(context.Context) (*Preparation, error)
	// Call answers the code's calls, each on a goroutine of its own, until
	// ctx is done. Nil: there are none.
	Call func(ctx context.Context, call wire.Call) ([]byte, error)
	// Output is given what the code writes as it comes, by one goroutine at a
	// time; it must not keep the slice. Nil: nobody looks.
	Output func(Stream, []byte)
	// Spent is told once what an execution used, off the path of its answer
	// and perhaps much later. It must not block. Nil: nobody asks.
	Spent func(Spent)
	// Measure has even the shortest execution measured for its outcome, which
	// costs its answer a millisecond.
	Measure bool
}

// End says how an execution ended.
type End int

// The ends of an execution.
const (
	Finished  End = iota // the code came to its end
	Raised               // by an exception that it did not catch
	Exited               // by SystemExit
	TimedOut             // we ended it
	Cancelled            // the caller did
	Died                 // its sandbox ended
)

// Outcome is what is known of an execution.
type Outcome struct {
	End      End
	ExitCode int // of Finished, Raised, Exited, and of Died where Known
	Known    bool
	Stdout   Captured
	Stderr   Captured
	// Limit is the time that was exceeded, when TimedOut. Whole says that it
	// was that of the whole run, waiting included.
	Limit time.Duration
	Whole bool
	// Fetching says that the code had ended by itself, and that its time was up
	// while its files were taken out.
	Fetching bool
	// Survived says that code which was to end has ended and the interpreter
	// lives on with its variables.
	Survived bool
	// Lost says why variables of earlier calls are gone: before this
	// execution, or because of it. Empty: they are not.
	Lost string
	// Reason is how the sandbox ended, when Died. OutOfMemory says that its
	// memory limit did it.
	Reason      string
	OutOfMemory bool
	Artifacts   []wire.Artifact
	// MoreArtifacts: there were more than the guest tells of.
	MoreArtifacts bool
	// Collected are the files that Request.Collect named, where it keeps them in
	// memory, and LeftOut those that could not be had.
	Collected []sandbox.File
	LeftOut   []LeftOut
	// Error is the guest's word on what was Raised; nil when it gave none.
	Error *wire.Exception
	// Background is what goes on running, when that is not the same as after
	// the execution before.
	Background wire.Background
	// Stray is the end of what was written since the last execution, and
	// StrayOmitted how many bytes before that were dropped.
	Stray        string
	StrayOmitted int64
	Own, Wall    time.Duration
	Usage        *Spent // nil: the run was too short to be measured
}

// A Session runs code in one sandbox. It is safe for concurrent use.
type Session struct {
	name   string
	config Config
	base   *base // nil: fresh sandboxes are started anew
	pool   *pool // nil: none are ready
	log    *slog.Logger
	queue  queue

	life context.Context // done when the session is closed
	end  context.CancelFunc

	room func(context.Context, *Session) error // makes room for one more sandbox; nil: there is

	// box, nap and lost belong to whoever has the turn.
	box  *box
	nap  *nap   // nil: the session lives in memory alone
	lost string // why the last box is gone; empty: there was none
	told bool   // and that was said

	got  time.Duration // when it was last asked for; the set's
	book *book         // what is kept of its output; nil: nothing
	view view          // what others are told

	clock *clock
	awake atomic.Bool  // box is not nil, or soon will be
	used  atomic.Int64 // when the last execution ended, as the clock has it

	mu     sync.Mutex
	closed bool
}

// New returns a session. It starts nothing.
func New(name string, config Config) (*Session, error) {
	if config.Backend == nil || config.Logger == nil {
		return nil, errors.New("session: a backend and a logger are required")
	}
	s := &Session{name: name, config: config.withDefaults()}
	if s.config.Spec.Owner == "" {
		s.config.Spec.Owner = name
	}
	s.log = config.Logger.With("session", name)
	s.clock = newClock(s.config.Now)
	s.view.created = s.clock.now()
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Name is what the session was made with.
func (s *Session) Name() string { return s.name }

// Enter takes the next place in the session's queue. It does not block. The
// ticket must be passed to Exec, or to Leave, or the queue stands still.
func (s *Session) Enter() *Ticket { return s.queue.enter() }

// Leave gives up a place in the queue.
func (s *Session) Leave(t *Ticket) { s.queue.leave(t) }

// use notes that the session is used now.
func (s *Session) use() { s.used.Store(int64(s.clock.elapsed())) }

// Waiting is how many executions run or wait.
func (s *Session) Waiting() int { return s.queue.length() }

// Exec runs code when the ticket's turn has come. An error says that no code
// ran. When ctx is done the code is interrupted, and its sandbox is kept if it
// survives that; with ErrStop as the cause it is killed.
func (s *Session) Exec(ctx context.Context, t *Ticket, req Request) (*Outcome, error) {
	defer s.queue.leave(t)
	defer s.use()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(ErrStop) })()
	if err := s.queue.wait(ctx, t); err != nil {
		return nil, err
	}
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
		if s.told {
			s.lost = ""
		}
		if s.lost != "" {
			s.book.lost(s.lost)
		}
		if err := s.put(ctx, req.Files); err != nil {
			return nil, err
		}
		out, err := s.box.exec(ctx, s.config, req, prep)
		if errors.Is(err, errNotStarted) && attempt == 0 {
			// It died between two executions, unnoticed until now.
			s.drop(s.box.obituary())
			continue
		}
		if err != nil {
			return nil, err
		}
		out.Lost = s.lost
		s.lost, s.told = "", false
		s.view.executed(s.box)
		if out.Reason != "" {
			s.drop(out.Reason)
			out.Lost = out.Reason
			// What ended it says so, unless nobody waits for that answer.
			if s.told = out.End != Cancelled; s.told {
				s.book.lost(s.lost)
			}
		} else {
			s.box.idle(s.config.Background)
			if !s.box.fresh {
				s.base.want()
			}
			s.pool.fill()
		}
		return out, nil
	}
}

// ready sees to a living sandbox and to the request's servers, side by side.
func (s *Session) ready(ctx context.Context, req Request) (*Preparation, error) {
	if s.box != nil {
		if s.box.dead() {
			s.drop(s.box.obituary())
		} else if err := s.box.wake(ctx); err != nil {
			s.drop("the paused sandbox could not be continued: " + err.Error())
		}
	}
	prepare := req.Prepare
	if prepare == nil {
		prepare = func(context.Context) (*Preparation, error) { return &Preparation{}, nil }
	}
	if s.box != nil {
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
	b, err := s.begin(ctx)
	s.awake.Store(err == nil)
	if err != nil {
		cancel()
	}
	<-done
	if err != nil {
		return nil, err
	}
	s.box = b
	s.opened(b)
	return prep, prepErr
}

// begin gets a sandbox for a session that has none: the one that sleeps, or
// else a fresh one.
func (s *Session) begin(ctx context.Context) (_ *box, err error) {
	lost, err := s.nap.claim()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.nap.leave(s.lost) // another process may do better
		}
	}()
	if lost != "" {
		s.lose(lost)
	}
	if s.room != nil {
		if err := s.room(ctx, s); err != nil {
			return nil, err
		}
	}
	started := time.Now()
	if s.nap != nil && s.nap.asleep {
		b, err := s.nap.wake(ctx, s)
		if err == nil {
			s.log.Debug("session woken", "run", b.id, "duration", time.Since(started))
			return b, nil
		}
		if s.nap.asleep {
			s.nap.leave("")
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, fmt.Errorf("the session sleeps, and cannot be woken now: %w", err)
		}
		s.lose("the sleeping session could not be woken: " + err.Error())
		s.log.Warn("session lost", "reason", s.lost)
	}
	if b := s.pool.take(s); b != nil {
		s.log.Debug("ready sandbox taken", "run", b.id, "duration", time.Since(started))
		return b, nil
	}
	b, err := start(ctx, s.config, s.base, s.log, s.life.Done())
	if err != nil {
		return nil, err
	}
	s.log.Debug("sandbox started", "run", b.id, "restored", b.fresh, "duration", time.Since(started))
	return b, nil
}

// lose notes why the session's state is gone, which nobody has been told yet.
func (s *Session) lose(reason string) { s.lost, s.told = reason, false }

// drop destroys the sandbox and remembers why its state is gone.
func (s *Session) drop(reason string) {
	b := s.box
	s.box = nil
	s.lose(reason)
	s.awake.Store(false)
	s.view.closed(Gone, reason)
	s.log.Info("sandbox dropped", "run", b.id, "reason", reason)
	b.destroy()
}

// Close ends what runs, destroys the sandbox and lets nothing start any more.
// It is idempotent, and returns when all of that has happened.
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
	if s.box != nil && s.nap != nil && !s.nap.own {
		ctx, cancel := context.WithTimeout(context.Background(), sleepTimeout)
		defer cancel()
		if err := s.layDown(ctx); err != nil {
			if s.config.Unsaved != nil {
				s.config.Unsaved(s.name, err)
			} else {
				s.log.Warn("the session could not be saved", "error", err)
			}
			s.lose("it could not be saved when its Sallyport ended: " + err.Error())
		}
	}
	if s.box != nil {
		s.box.destroy()
		s.box = nil
	}
	s.book.flush()
	switch {
	case s.nap == nil:
	case s.nap.own:
		_ = s.nap.forget()
	default:
		s.nap.leave(s.lost)
	}
}

// newID makes a sandbox's ID.
func newID() string {
	return "sp-" + strings.ToLower(rand.Text())[:20]
}

// startError adds to a failed start what the engine and the guest said.
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
