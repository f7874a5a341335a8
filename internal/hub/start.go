package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/internal/socket"
)

const (
	// welcomeTimeout is how long a hub may take to construct what serves a client.
	welcomeTimeout = 30 * time.Second
	// attempts bounds how often a client meets a hub that is about to end.
	attempts = 10
	// attemptWait is the time between two attempts where a hub listens.
	attemptWait = 20 * time.Millisecond
)

// none reports whether the error of dial means that no hub listens.
func none(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// Connect connects to the hub, or starts it. start returns when a hub listens at
// the place. It is called by one process at a time.
func (p *Place) Connect(ctx context.Context, h Hello, start func(context.Context) error) (*Conn, error) {
	h.Key = p.Key
	if c, err := p.activated(ctx, h); c != nil || err != nil {
		return c, err
	}
	var last error
	for range attempts {
		c, err := p.dial(ctx, p.socket(), h)
		var refused *Refused
		if err == nil || errors.As(err, &refused) || ctx.Err() != nil {
			return c, err
		}
		last = err
		if !none(err) {
			// It ended while it was asked, or has too much to do.
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(attemptWait):
			}
			continue
		}
		if err := p.Begin(ctx, start); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the hub could not be reached: %w", last)
}

// Begin starts the hub, unless one runs. start is Connect's.
func (p *Place) Begin(ctx context.Context, start func(context.Context) error) error {
	unlock, err := p.lock(ctx)
	if err != nil {
		return fmt.Errorf("waiting for another process that starts or ends the hub: %w", err)
	}
	defer unlock()
	if p.listens(ctx) {
		return nil
	}
	return start(ctx)
}

// Ended returns when no process starts the hub, or is about to end as one.
func (p *Place) Ended(ctx context.Context) error {
	unlock, err := p.lock(ctx)
	if err == nil {
		unlock()
	}
	return err
}

// listens reports whether a hub listens. One that is too busy to accept does.
func (p *Place) listens(ctx context.Context) bool {
	conn, err := socket.Dial(ctx, p.Dir, p.socket())
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || !none(err)
}

// activated connects to a hub that a service manager starts, if it has these
// settings. It returns nothing where there is none.
func (p *Place) activated(ctx context.Context, h Hello) (*Conn, error) {
	if _, err := os.Lstat(filepath.Join(p.Dir, Activated)); err != nil {
		return nil, nil
	}
	c, err := p.dial(ctx, Activated, h)
	var refused *Refused
	switch {
	case err == nil, errors.As(err, &refused), ctx.Err() != nil:
		return c, err
	case !errors.Is(err, errElsewhere) && !none(err):
		p.Log.Warn("the hub of the service manager cannot be used", "error", err)
	}
	return nil, nil
}
