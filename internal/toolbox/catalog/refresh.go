package catalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrUnknown reports that there is no server of that name.
var ErrUnknown = errors.New("unknown MCP server")

// ErrNotListed reports that a server's tools are unknown, and that it may not
// be started to list them.
var ErrNotListed = errors.New("its tools are not known, and catalog.refresh is off")

// errClosed reports that the program is ending.
var errClosed = errors.New("the catalog is closed")

// Start lets the background work begin: after the first Wake, or when the
// program has been idle for a moment. It does nothing unless Refresh is Auto.
func (c *Catalog) Start() {
	c.mu.Lock()
	again := c.started
	c.started = true
	c.mu.Unlock()
	if again || c.config.Refresh != Auto {
		return
	}
	c.goes(c.background)
}

// Wake reports that there may be work, or that now is the time for it.
func (c *Catalog) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Busy reports that code runs, so that no background work begins. The function
// that it returns ends that, and must be called once.
func (c *Catalog) Busy() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy++
	return func() {
		c.mu.Lock()
		if c.busy--; c.busy == 0 && c.idle != nil {
			close(c.idle)
			c.idle = nil
		}
		eager := c.eager
		c.mu.Unlock()
		if eager {
			c.Wake()
		}
	}
}

// quiet waits until no code runs.
func (c *Catalog) quiet() bool {
	for {
		c.mu.Lock()
		if c.busy > 0 && c.idle == nil {
			c.idle = make(chan struct{})
		}
		idle := c.idle
		c.mu.Unlock()
		if idle == nil {
			return c.base.Err() == nil
		}
		select {
		case <-idle:
		case <-c.base.Done():
			return false
		}
	}
}

// background lists servers as long as the catalog is open.
func (c *Catalog) background() {
	// Without a Wake, a moment without requests starts it.
	pause := time.NewTimer(c.config.Quiet)
	defer pause.Stop()
	for first := true; ; first = false {
		select {
		case <-c.wake:
		case <-pause.C:
		case <-c.base.Done():
			return
		}
		if !c.quiet() {
			return
		}
		c.pass()
		if first {
			c.mu.Lock()
			c.eager = false
			c.mu.Unlock()
			used := map[string]bool{}
			for _, s := range c.config.Source.Servers() {
				used[s.Key] = true
			}
			c.files.sweep(used, time.Now())
		}
		pause.Reset(c.untilDue())
	}
}

// pass lists every server whose list is old, a few at a time.
func (c *Catalog) pass() {
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, parallel)
	for _, s := range c.config.Source.Servers() {
		if c.due(s, time.Now()) > 0 {
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-c.base.Done():
			return
		}
		if !c.quiet() {
			return
		}
		all.Go(func() {
			defer func() { <-slots }()
			_ = c.wait(c.base, s, time.Now()) // the error is kept with the entry
		})
	}
}

// calm is the shortest pause between two listings of a server that keeps
// announcing changes of its tools.
const calm = 10 * time.Second

// due returns how long until a server needs to be listed. It does not read the
// list.
func (c *Catalog) due(s Server, now time.Time) time.Duration {
	c.mu.Lock()
	stale, did := c.stale[s.Key], c.asked[s.Key]
	c.mu.Unlock()
	wait := did.again.Sub(now)
	if f := c.failure(s); f != nil {
		return max(wait, f.Retry.Sub(now))
	}
	if stale {
		return did.at.Add(calm).Sub(now)
	}
	listed := c.files.stamp(listingFile(s.Key)).modified
	if listed.After(now) { // a clock was wrong
		return wait
	}
	return max(wait, listed.Add(c.config.MaxAge).Sub(now))
}

// failure returns why a server could not be listed the last time, or nil.
func (c *Catalog) failure(s Server) *Failure {
	at := c.files.stamp(failureFile(s.Key))
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.cached(s.Key)
	if !c.files.none() {
		c.reload(s, &k.failure, &k.failedStamp, failureFile(s.Key), at)
	}
	if k.failure == nil {
		return nil
	}
	return k.failure.Failure
}

// untilDue returns when to look again. Definitions may be added meanwhile.
func (c *Catalog) untilDue() time.Duration {
	const least, most = time.Second, 10 * time.Minute
	now, wait := time.Now(), most
	for _, s := range c.config.Source.Servers() {
		wait = min(wait, c.due(s, now))
	}
	return max(wait, least)
}

// Want returns what is known about a server. If nothing is known, or the server
// said that the list is old, it lists the server and waits until ctx ends; the
// listing continues after that. A server that has failed is tried again.
func (c *Catalog) Want(ctx context.Context, name string) (Entry, error) {
	s, ok := c.server(name)
	if !ok {
		return Entry{}, fmt.Errorf("%w: %s", ErrUnknown, clip(name, 100))
	}
	began := time.Now() // a listing may end while this looks
	c.mu.Lock()
	stale := c.stale[s.Key]
	c.mu.Unlock()
	e := c.entry(s)
	if e.Listing != nil && !stale {
		return e, nil
	}
	err := c.list(ctx, s, began)
	if e = c.entry(s); e.Listing != nil {
		return e, nil // an old list is better than none
	}
	return e, err
}

// List lists a server now, whatever is known about it.
func (c *Catalog) List(ctx context.Context, name string) (Entry, error) {
	s, ok := c.server(name)
	if !ok {
		return Entry{}, fmt.Errorf("%w: %s", ErrUnknown, clip(name, 100))
	}
	err := c.wait(ctx, s, time.Time{})
	return c.entry(s), err
}

func (c *Catalog) list(ctx context.Context, s Server, enough time.Time) error {
	if c.config.Refresh == Off {
		return ErrNotListed
	}
	return c.wait(ctx, s, enough)
}

// wait starts listing a server, or joins the listing in progress, and waits
// until ctx ends. What was found out after enough, here or by another process, is
// not asked again; the zero time means that nothing is enough.
func (c *Catalog) wait(ctx context.Context, s Server, enough time.Time) error {
	c.mu.Lock()
	f := c.flights[s.Key]
	if f == nil {
		if c.closed {
			c.mu.Unlock()
			return errClosed
		}
		f = &flight{done: make(chan struct{})}
		c.flights[s.Key] = f
		c.running.Go(func() {
			f.err = c.fly(s, enough)
			c.mu.Lock()
			delete(c.flights, s.Key)
			c.mu.Unlock()
			close(f.done)
		})
	}
	c.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fly lists a server, unless another process does or just did.
func (c *Catalog) fly(s Server, enough time.Time) error {
	ctx, cancel := context.WithTimeout(c.base, c.config.Timeout)
	defer cancel()
	unlock, err := c.alone(ctx, s)
	if err != nil {
		return err
	}
	defer unlock()
	if known := c.entry(s); !enough.IsZero() && known.looked().After(enough) {
		return known.err()
	}
	listing, err := c.config.Source.List(ctx, s.Name)
	if c.base.Err() != nil {
		return errClosed
	}
	now := time.Now()
	did := asked{now, now.Add(c.config.MaxAge)}
	if err != nil {
		if ctx.Err() != nil {
			err = ownError(fmt.Sprintf("did not list its tools within %s", c.config.Timeout))
		}
		failure := c.failure(s).next(err, now)
		did.again = failure.Retry
		c.did(s, did)
		c.put(s, &record{Failure: failure})
		return err
	}
	c.did(s, did)
	c.took(s, listing)
	return nil
}

// did records that a server was asked. Earlier notices of changes no longer
// count.
func (c *Catalog) did(s Server, what asked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.stale, s.Key)
	c.asked[s.Key] = what
}

// looked returns when the server was last asked.
func (e *Entry) looked() time.Time {
	if e.Failure != nil {
		return e.Failure.At
	}
	return e.Listed
}

func (e *Entry) err() error {
	if e.Failure != nil {
		return failureError{e.Failure}
	}
	return nil
}

// alone waits until no other process lists the server.
func (c *Catalog) alone(ctx context.Context, s Server) (unlock func(), err error) {
	const look = 100 * time.Millisecond
	for {
		unlock, ok, err := c.files.dir.TryLock(s.Key)
		switch {
		case err != nil:
			return func() {}, nil // without a directory nothing is shared
		case ok:
			return unlock, nil
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			if c.base.Err() != nil {
				return nil, errClosed
			}
			return nil, ownError("another Sallyport is still listing it")
		}
	}
}
