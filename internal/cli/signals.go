package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// errOutputClosed reports that standard output has no reader any more.
var errOutputClosed = errors.New("standard output is closed")

// An outlet is standard output that is no terminal. It notes when its reader is
// gone, also where a command ignores that it cannot write.
type outlet struct {
	w      io.Writer
	closed atomic.Bool
}

// Write implements io.Writer.
func (o *outlet) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if closedPipe(err) {
		o.closed.Store(true)
	}
	return n, err
}

// unheard reports whether standard output has lost its reader. A command then
// ends like one that SIGPIPE kills: without a word, whatever failed because of it.
func unheard(ctx context.Context, out io.Writer) bool {
	o, ok := out.(*outlet)
	return ok && o.closed.Load() || errors.Is(context.Cause(ctx), errOutputClosed)
}

// signalled is the cause of a context that a signal ended.
type signalled struct{ syscall.Signal }

func (s signalled) Error() string { return "ended by signal: " + s.String() }

// A loan says whether another program has the terminal, whose Ctrl-C and Ctrl-\
// reach this program, too.
type loan struct{ out atomic.Bool }

type loanKey struct{}

// lend lets a program have the terminal while it runs: what is typed is meant for
// it. Other signals end this command as ever.
func (u *ui) lend(run func() error) error {
	if l, ok := u.ctx.Value(loanKey{}).(*loan); ok {
		l.out.Store(true)
		defer l.out.Store(false)
	}
	return run()
}

// untilSignal returns a context that ends with a signal that ends programs, so
// that a command cleans up first: an interrupt, a request to end, a closed
// terminal, and standard output without a reader. A signal that was ignored when
// the program started, as with nohup, stays ignored.
//
// A second SIGQUIT prints what the program is doing and ends it at once.
func untilSignal(ctx context.Context, out any) (context.Context, func()) {
	lent := &loan{}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, loanKey{}, lent))
	came := make(chan os.Signal, 8)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) {
			signal.Notify(came, s)
		}
	}
	// Without a receiver, writing to a closed pipe kills the program at once if
	// the pipe is its standard output.
	signal.Notify(came, syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-came:
				switch number, ok := s.(syscall.Signal); {
				case lent.out.Load() && (s == os.Interrupt || s == syscall.SIGQUIT):
				case s == syscall.SIGPIPE:
					if f, ok := out.(*os.File); ok && unread(f) {
						cancel(errOutputClosed)
					}
				case ok:
					cancel(signalled{number})
					signal.Reset(syscall.SIGQUIT)
				default:
					cancel(signalled{syscall.SIGINT})
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(came)
		close(done)
		cancel(nil)
	}
}

// interrupted returns the exit status of a command whose context has ended. It
// is the one that a shell reports for the signal: 130 for an interrupt.
func (u *ui) interrupted() exitError {
	var s signalled
	switch cause := context.Cause(u.ctx); {
	case errors.As(cause, &s):
		return exitError(exitSignal + int(s.Signal))
	case errors.Is(cause, errOutputClosed):
		return exitError(exitClosed)
	}
	return exitInterrupted
}

// ending describes what ended a command's context.
func (u *ui) ending() string {
	var s signalled
	if errors.As(context.Cause(u.ctx), &s) && s.Signal != syscall.SIGINT {
		return fmt.Sprintf("ended by a signal (%s)", s.Signal)
	}
	return "interrupted"
}
