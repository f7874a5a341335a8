package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/socket"
	"github.com/sallyport/sallyport/internal/store"
)

const (
	// welcomeTimeout is how long a hub may take to construct what serves a client.
	welcomeTimeout = 30 * time.Second
	// lockWait is how long a hub may take to end: it suspends sessions.
	lockWait = time.Minute
	// attempts bounds how often a client meets a hub that is about to end.
	attempts = 10
	// attemptWait is the time between two attempts where a hub listens.
	attemptWait = 20 * time.Millisecond
	// mostStarts bounds how many hubs are started for one client: each may be
	// killed, or fail, before it is ready.
	mostStarts = 3
)

// ErrUnready means that a hub ended before it was ready, and did not say why.
var ErrUnready = errors.New("the hub ended before it was ready")

// none reports whether the error of dial means that no hub listens.
func none(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// Connect connects to the hub, or starts it. start returns when a hub listens at
// the place. It is called by one process at a time, and once more after ErrUnready.
func (p *Place) Connect(ctx context.Context, h Hello, start func(context.Context) error) (*Conn, error) {
	h.Key = p.Key
	if c, err := p.activated(ctx, h); c != nil || err != nil {
		return c, err
	}
	var last error
	starts := 0
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
		err = p.Begin(ctx, start)
		if starts++; err != nil && (!errors.Is(err, ErrUnready) || starts >= mostStarts) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the hub could not be reached: %w", last)
}

// Find connects to the hub if one runs, and returns nil where there is none. It waits
// for one that starts or ends. active reports whether the hub of a service manager
// runs, which connecting to its socket would start.
func (p *Place) Find(ctx context.Context, h Hello, active func() bool) (*Conn, error) {
	if _, err := os.Lstat(p.Dir); err != nil {
		return nil, nil
	}
	h.Key = p.Key
	if _, err := os.Lstat(filepath.Join(p.Dir, Activated)); err == nil && active() {
		if c, err := p.activated(ctx, h); c != nil || err != nil {
			return c, err
		}
	}
	var last error
	for range attempts {
		c, err := p.dial(ctx, p.socket(), h)
		var refused *Refused
		if err == nil || errors.As(err, &refused) || ctx.Err() != nil {
			return c, err
		}
		last = err
		unlock, free, err := store.At(p.Dir).TryLock(p.Key)
		switch {
		case err != nil:
			return nil, err
		case !free:
			waiting, cancel := context.WithTimeout(ctx, lockWait)
			err := p.Ended(waiting)
			cancel()
			if err != nil {
				return nil, fmt.Errorf("waiting for another process that starts or ends the hub: %w", err)
			}
			continue
		}
		unlock()
		if none(last) {
			return nil, nil
		}
		select { // it has too much to do
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(attemptWait):
		}
	}
	return nil, fmt.Errorf("the hub could not be reached: %w", last)
}

// Begin starts the hub, unless one runs. start is Connect's.
func (p *Place) Begin(ctx context.Context, start func(context.Context) error) error {
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err := p.lock(waiting)
	if err != nil && waiting.Err() != nil {
		err = fmt.Errorf("waiting for another process that starts or ends the hub: %w", err)
	}
	if err != nil {
		return err
	}
	defer unlock()
	if p.listens(ctx) {
		return nil
	}
	return start(ctx)
}

// Startable returns the error with which Begin ends before it starts anything, as where
// nothing can be written. It waits for no other process.
func (p *Place) Startable() error {
	if _, err := os.Lstat(filepath.Join(p.Dir, Activated)); err == nil {
		return nil // the service manager starts the hub
	}
	unlock, free, err := store.At(p.Dir).TryLock(p.Key)
	if free {
		unlock()
	}
	return err
}

// Own makes this process the one hub of the place until it ends. It waits for one
// that starts or ends, and reports false if another one serves clients.
func (p *Place) Own(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err := p.wait(ctx, p.Key+"-hub", func() bool { return p.listens(ctx) })
	if err != nil {
		return false, fmt.Errorf("waiting for another hub that starts or ends: %w", err)
	}
	keep(unlock)
	return unlock != nil, nil
}

// keptLogs is how long the log of a hub is kept that does not run any more.
const keptLogs = 7 * 24 * time.Hour

// Tidy removes what hubs left that were killed: sockets, and after a while logs.
func (p *Place) Tidy(ctx context.Context) {
	root, err := private.Existing(p.Dir)
	if err != nil {
		return
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return
	}
	for _, e := range entries {
		name := e.Name()
		info, err := e.Info()
		switch {
		case err != nil || strings.HasPrefix(name, ".") || name == Activated || name == p.socket():
		case e.Type() == fs.ModeSocket:
			conn, err := socket.Dial(ctx, p.Dir, name)
			if err == nil {
				_ = conn.Close()
			} else if errors.Is(err, syscall.ECONNREFUSED) {
				_ = root.Remove(name)
			}
		case (strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".log.old")) && time.Since(info.ModTime()) > keptLogs:
			_ = root.Remove(name)
		}
	}
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
	return err == nil || ctx.Err() == nil && !none(err)
}

// activated connects to a hub that a service manager starts, if it has these
// settings. It returns nothing where there is none.
func (p *Place) activated(ctx context.Context, h Hello) (*Conn, error) {
	if _, err := os.Lstat(filepath.Join(p.Dir, Activated)); err != nil {
		return nil, nil
	}
	for left := attempts; ; left-- {
		c, err := p.dial(ctx, Activated, h)
		var refused *Refused
		switch {
		case err == nil, errors.As(err, &refused), ctx.Err() != nil:
			return c, err
		case errors.Is(err, errElsewhere), none(err):
			return nil, nil
		case left == 1:
			p.Log.Warn("the hub of the service manager cannot be used", "error", err)
			return nil, nil
		}
		// It ended while it was asked: the manager starts another one.
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(attemptWait):
		}
	}
}
