package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sallyport/internal/budget"
	"sallyport/internal/guest"
	"sallyport/internal/sandbox"
	"sallyport/internal/wire"
)

const (
	// destroyTimeout bounds the release of a sandbox.
	destroyTimeout = 15 * time.Second
	// exitTimeout bounds the wait for an engine to say how a sandbox ended
	// whose guest is gone already.
	exitTimeout = 2 * time.Second
	// engineTimeout bounds a question to a living engine.
	engineTimeout = 2 * time.Second
)

// box is one sandbox with its guest.
type box struct {
	id   string
	run  sandbox.Run
	conn *guest.Conn
	log  *slog.Logger
	life <-chan struct{} // closed when the session is

	budget *budget.Sandbox

	meter       sandbox.Meter       // nil: nothing measures it
	interrupter sandbox.Interrupter // nil: only destroying it ends code
	pauser      sandbox.Pauser      // nil: it cannot be paused

	tally *tally

	stray stray
	book  atomic.Pointer[book] // of the session that has it
	rest  *rest                // what watches it between executions; nil during them

	// fresh says that it was restored from the base, and reseed that it has
	// not been told so yet.
	fresh, reseed bool

	// What the guest has been told, to be told once.
	known      map[string]string // server's name: version
	discovered string

	background wire.Background // after the last execution
	running    []string        // some of it, in words

	memory int64 // its limit

	gone sync.Once
}

// start gets a fresh sandbox: from the base, or else anew. On error nothing is
// left behind.
func start(ctx context.Context, config Config, base *base, log *slog.Logger, life <-chan struct{}) (*box, error) {
	spec := config.Spec
	spec.ID = newID()
	if run, note := base.restore(ctx, &spec); run != nil {
		b, err := open(config, spec.ID, run, log, life, guest.Options{Restored: &note.Ready})
		if err == nil {
			b.fresh, b.reseed = true, true
		}
		return b, err
	}
	return launch(ctx, config, log, life)
}

// launch starts a sandbox and waits until its guest is ready. On error nothing
// is left behind.
func launch(ctx context.Context, config Config, log *slog.Logger, life <-chan struct{}) (_ *box, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, config.StartTimeout,
		fmt.Errorf("no answer within %v", config.StartTimeout))
	defer cancel()
	spec := config.Spec
	spec.ID = newID()
	run, err := config.Backend.Start(ctx, &spec)
	if err != nil {
		return nil, because(ctx, err)
	}
	b, err := open(config, spec.ID, run, log, life, guest.Options{})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.destroy()
		}
	}()
	if _, err := b.conn.Ready(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, because(ctx, fmt.Errorf("%w: the guest did not get ready: %w", sandbox.ErrStart, err))
		}
		exit, logs := b.exit(), ""
		if l, ok := sandbox.As[sandbox.Logger](run); ok {
			logs, _ = l.Logs(context.WithoutCancel(ctx))
		}
		return nil, startError(fmt.Errorf("%w: %w", sandbox.ErrStart, err), exit.Detail, logs)
	}
	return b, nil
}

// open begins the conversation with the guest of a run, which it takes over.
func open(config Config, id string, run sandbox.Run, log *slog.Logger, life <-chan struct{}, opts guest.Options) (*box, error) {
	b := &box{
		id: id, run: run, log: log.With("run", id), life: life, known: map[string]string{},
		budget: config.Budget.NewSandbox(), memory: config.Spec.Limits.WithDefaults().MemoryBytes,
	}
	duplex, ok := sandbox.As[sandbox.Duplexer](run)
	if !ok {
		b.destroy()
		return nil, &sandbox.Error{Op: "start", Backend: config.Backend.Name(), Kind: sandbox.ErrUnsupported,
			Err: errors.New("this engine has no channel to running code, which a session needs")}
	}
	b.meter, _ = sandbox.As[sandbox.Meter](run)
	b.interrupter, _ = sandbox.As[sandbox.Interrupter](run)
	b.pauser, _ = sandbox.As[sandbox.Pauser](run)
	if b.meter == nil {
		b.tally = newTally(nil)
	} else {
		b.tally = newTally(b.usage)
	}
	opts.Log, opts.Budget = b.log, b.budget
	opts.Stray = func(s guest.Stream, p []byte) {
		b.stray.write(p)
		b.book.Load().output(0, streamOf(s), p)
	}
	ch := duplex.Channel()
	b.conn = guest.Open(ch.Stdin, ch.Stdout, ch.Stderr, opts)
	return b, nil
}

// because puts the cause of a done context in front of an error that it led to.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func (b *box) dead() bool {
	select {
	case <-b.conn.Dead():
		return true
	default:
		return false
	}
}

// ends says whether the sandbox is dead, or soon will be.
func (b *box) ends(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-b.conn.Dead():
		return true
	case <-timer.C:
		return b.dead()
	}
}

// exit asks the engine how the sandbox ended. The guest's streams end a moment
// before an engine knows.
func (b *box) exit() sandbox.Exit {
	ctx, cancel := context.WithTimeout(context.Background(), exitTimeout)
	defer cancel()
	exit, err := b.run.Wait(ctx)
	if err != nil {
		return sandbox.Exit{}
	}
	return exit
}

// obituary says how a dead sandbox ended. Where its memory ended, every engine's
// words for it are the same.
func (b *box) obituary() string { return b.epitaph(b.exit()) }

func (b *box) epitaph(exit sandbox.Exit) string {
	switch exit.Reason {
	case sandbox.OutOfMemory:
		return fmt.Sprintf("the sandbox ran out of memory: it may use %d MB (limits.memory)", b.memory>>20)
	case sandbox.EngineDied:
		return sentence("the sandbox engine died", exit.Detail)
	}
	err := b.conn.Err()
	var died *guest.Died
	if errors.As(err, &died) && !died.Known && exit.Reason == sandbox.Exited {
		return sentence(fmt.Sprintf("the sandbox ended with status %d", exit.Code), exit.Detail)
	}
	if err == nil {
		return "the sandbox is gone"
	}
	return err.Error()
}

func sentence(what, detail string) string {
	if detail == "" {
		return what
	}
	return what + ": " + detail
}

// destroy ends the sandbox and releases it. It is idempotent.
func (b *box) destroy() {
	b.gone.Do(func() {
		b.rest.stop()
		b.tally.close(b.conn != nil && !b.dead())
		ctx, cancel := context.WithTimeout(context.Background(), destroyTimeout)
		defer cancel()
		if b.conn != nil {
			_ = b.conn.Close() // always nil
		}
		if err := b.run.Destroy(ctx); err != nil {
			b.log.Error("destroying the sandbox failed", "error", err)
		}
	})
}

// usage asks the engine what the sandbox has used. ok is false where nothing
// can be measured.
func (b *box) usage() (sandbox.Usage, bool) {
	if b.meter == nil {
		return sandbox.Usage{}, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	asked := time.Now()
	u, err := b.meter.Usage(ctx)
	if err != nil {
		b.log.Debug("usage", "error", err)
		return sandbox.Usage{}, false
	}
	b.tally.add(u, asked)
	return u, u.CPU >= 0
}
