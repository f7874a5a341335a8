package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session/capture"
	"github.com/sallyport/sallyport/internal/session/sessionlog"
	"github.com/sallyport/sallyport/internal/session/usage"
	"github.com/sallyport/sallyport/internal/wire"
)

const (
	// destroyTimeout bounds the release of a sandbox.
	destroyTimeout = 15 * time.Second
	// exitTimeout bounds the wait for an engine to report how a sandbox ended
	// whose guest is already gone.
	exitTimeout = 2 * time.Second
	// engineTimeout bounds a request to a living engine.
	engineTimeout = 2 * time.Second
)

// instance is one sandbox with its guest.
type instance struct {
	id   string
	run  sandbox.Run
	conn *guest.Conn
	log  *slog.Logger
	life <-chan struct{} // closed when the session is

	budget *budget.Sandbox

	meter       sandbox.Meter       // nil: nothing measures it
	interrupter sandbox.Interrupter // nil: only destroying it ends code
	pauser      sandbox.Pauser      // nil: it cannot be paused

	usageMeter *usage.Meter

	idleOutput capture.Idle
	history    atomic.Pointer[sessionlog.Log] // of the session that has it
	throttle   *throttle                      // watches it between executions; nil during them

	// fresh: it was restored from the prepared snapshot. reseed: the guest does
	// not know that yet.
	fresh, reseed bool

	// What the guest already knows, so that it is sent once.
	known      map[string]string // server's name: version
	discovered string

	packages []string // that the guest is still to be sent

	background wire.Background // after the last execution
	running    []string        // some of it, in words

	limits sandbox.Limits // that it runs with

	gone sync.Once
}

// start returns a fresh sandbox: restored from the prepared snapshot, or else
// newly started. On error nothing is left behind.
func start(ctx context.Context, config config, base *preparedSnapshot, log *slog.Logger, life <-chan struct{}) (*instance, error) {
	spec := config.spec()
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
func launch(ctx context.Context, config config, log *slog.Logger, life <-chan struct{}) (_ *instance, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, config.StartTimeout,
		fmt.Errorf("no answer within %v", config.StartTimeout))
	defer cancel()
	spec := config.spec()
	run, err := config.Engine.Start(ctx, &spec)
	if err != nil {
		return nil, wrapCause(ctx, err)
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
			return nil, wrapCause(ctx, fmt.Errorf("%w: the guest did not get ready: %w", sandbox.ErrStart, err))
		}
		exit, logs := b.exit(), ""
		if l, ok := sandbox.As[sandbox.Logger](run); ok {
			logs, _ = l.Logs(context.WithoutCancel(ctx))
		}
		return nil, startError(fmt.Errorf("%w: %w", sandbox.ErrStart, err), exit.Detail, logs)
	}
	if e, ok := sandbox.As[interface{ Works(sandbox.Run) }](config.Engine); ok {
		e.Works(run)
	}
	return b, nil
}

// open connects to the guest of a run. It takes ownership of the run.
func open(config config, id string, run sandbox.Run, log *slog.Logger, life <-chan struct{}, opts guest.Options) (*instance, error) {
	b := &instance{
		id: id, run: run, log: log.With("run", id), life: life, known: map[string]string{},
		budget: config.Budget.NewSandbox(), limits: config.Limits,
	}
	duplex, ok := sandbox.As[sandbox.Duplexer](run)
	if !ok {
		b.destroy()
		return nil, &sandbox.Error{Op: "start", Backend: config.Engine.Name(), Kind: sandbox.ErrUnsupported,
			Err: errors.New("this engine has no channel to running code, which a session needs")}
	}
	b.meter, _ = sandbox.As[sandbox.Meter](run)
	b.interrupter, _ = sandbox.As[sandbox.Interrupter](run)
	b.pauser, _ = sandbox.As[sandbox.Pauser](run)
	if b.meter == nil {
		b.usageMeter = usage.NewMeter(nil)
	} else {
		b.usageMeter = usage.NewMeter(b.usage)
	}
	opts.Log, opts.Budget = b.log, b.budget
	opts.IdleOutput = func(s wire.Stream, p []byte) {
		b.idleOutput.Write(p)
		b.history.Load().Output(0, s, p)
	}
	ch := duplex.Channel()
	b.conn = guest.Open(ch.Stdin, ch.Stdout, ch.Stderr, opts)
	return b, nil
}

// wrapCause puts the cause of a done context in front of the error that it led
// to.
func wrapCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func (b *instance) dead() bool {
	select {
	case <-b.conn.Dead():
		return true
	default:
		return false
	}
}

// ends reports whether the sandbox is dead or about to be.
func (b *instance) ends(within time.Duration) bool {
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
// before the engine knows.
func (b *instance) exit() sandbox.Exit {
	ctx, cancel := context.WithTimeout(context.Background(), exitTimeout)
	defer cancel()
	exit, err := b.run.Wait(ctx)
	if err != nil {
		return sandbox.Exit{}
	}
	return exit
}

// obituary describes how a dead sandbox ended. When it ran out of memory, the
// words are the same for every engine.
func (b *instance) deathReason() string { return b.describeExit(b.exit()) }

func (b *instance) describeExit(exit sandbox.Exit) string {
	switch exit.Reason {
	case sandbox.OutOfMemory:
		return fmt.Sprintf("the sandbox ran out of memory: it may use %d MB (limits.memory)", b.limits.MemoryBytes>>20)
	case sandbox.EngineDied:
		return joinDetail("the sandbox engine died", exit.Detail)
	}
	err := b.conn.Err()
	var died *guest.Died
	if errors.As(err, &died) && !died.Known && exit.Reason == sandbox.Exited {
		return joinDetail(fmt.Sprintf("the sandbox ended with status %d", exit.Code), exit.Detail)
	}
	if err == nil {
		return "the sandbox is gone"
	}
	return err.Error()
}

func joinDetail(what, detail string) string {
	if detail == "" {
		return what
	}
	return what + ": " + detail
}

// destroy ends the sandbox and releases it. It is idempotent.
func (b *instance) destroy() {
	b.gone.Do(func() {
		b.throttle.stop()
		b.usageMeter.Close(b.conn != nil && !b.dead())
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

// usage asks the engine for the sandbox's resource use. ok is false if it
// cannot be measured.
func (b *instance) usage() (sandbox.Usage, bool) {
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
	b.usageMeter.Add(u, asked)
	return u, u.CPU >= 0
}
