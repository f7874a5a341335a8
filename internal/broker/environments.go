package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/session"
)

// ErrUnbuilt reports an environment that has to be built before its first use.
var ErrUnbuilt = errors.New("the environment has not been built yet")

// Environments are the sets of packages that a request can choose by name.
type Environments interface {
	// Names lists the user's, sorted.
	Names() []string
	// Default is the one of sessions that choose none; empty: Config.Template.
	Default() string
	// Template returns the kind of sandbox of an environment: of a name, or of the ID
	// of a built environment. Its Environment is that name or ID. The error is
	// ErrUnbuilt where Build is needed first. It is fast: it is called for each
	// execution that names an environment.
	Template(name string) (*session.Template, error)
	// Build makes Template succeed. It may take minutes; tell receives progress for
	// people.
	Build(ctx context.Context, name string, tell func(string)) error
}

// HostEnvironment is the name of Config.Template, where another environment is the
// default.
const HostEnvironment = "host"

// NoEnvironment is the answer to a request for an environment that does not exist
// among those with these names.
func NoEnvironment(name string, names []string) *Result {
	if len(names) == 0 {
		return invalid(fmt.Sprintf("There is no environment %.40q: none is configured. Leave 'env' out", name))
	}
	all := names
	if !slices.Contains(all, HostEnvironment) {
		all = append(slices.Clone(all), HostEnvironment)
	}
	return invalid(fmt.Sprintf("There is no environment %.40q. Nearest: %q. There are: %s", name, bridge.Nearest(name, all, 1)[0], strings.Join(all, ", ")))
}

// errUnknownEnvironment reports a name that is not among the configured ones.
var errUnknownEnvironment = errors.New("there is no such environment")

// environment returns the template of an environment. The error is ErrUnbuilt if it
// has to be built, and errUnknownEnvironment if there is none.
func (b *Broker) environment(name string) (*session.Template, error) {
	if name == HostEnvironment {
		return b.config.Template, nil
	}
	all := b.config.Environments
	if all == nil {
		return nil, errUnknownEnvironment
	}
	t, err := all.Template(name)
	if err != nil && !slices.Contains(all.Names(), name) {
		return nil, errUnknownEnvironment // what has an ID has been built
	}
	return t, err
}

// defaultEnvironment returns the name of the environment of sessions that choose none.
func (b *Broker) defaultEnvironment() string {
	if b.config.Environments == nil {
		return HostEnvironment
	}
	return cmp.Or(b.config.Environments.Default(), HostEnvironment)
}

// choose returns the template of the request's sandbox. If its environment has to be
// built first, unbuilt names that. refused is the answer to a request that cannot have
// what it asks for.
func (b *Broker) choose(req *Request) (t *session.Template, unbuilt string, refused *Result) {
	if t, refused = b.template(req); refused != nil {
		return nil, "", refused
	}
	if t == nil { // there is no engine
		return nil, "", failure(errNoEngine)
	}
	made, exists := b.sessions.Made(req.key())
	if t, unbuilt, refused = b.chooseEnvironment(req, t, made, exists); t == nil {
		return nil, unbuilt, refused
	}
	if t, refused = b.withFolders(req, t, made); refused != nil {
		return nil, "", refused
	}
	return t, "", nil
}

// chooseEnvironment is choose, without folders.
func (b *Broker) chooseEnvironment(req *Request, t *session.Template, made session.Making, exists bool) (_ *session.Template, unbuilt string, refused *Result) {
	switch {
	case req.Template != "" && req.Env != "":
		return nil, "", invalid("a template has its own environment: leave the environment out")
	case req.Template != "" || b.config.Environments == nil && (req.Env == "" || req.Env == HostEnvironment):
		return t, "", nil
	}
	key := req.key()
	its := cmp.Or(made.Environment, HostEnvironment)
	name := cmp.Or(req.Env, b.defaultEnvironment())
	if exists && (req.Env == "" || req.Env == its) {
		if made.Template != nil { // even if the environment has changed since
			return made.Template, "", nil
		}
		name = its
	}
	t, err := b.environment(name)
	switch {
	case errors.Is(err, errUnknownEnvironment) && exists && name == its:
		return nil, "", failure(fmt.Errorf("session %s needs environment %s, which is gone. Configure it again, use another session, or remove this one ('sallyport sessions rm %s')", key.Name, its, key.Name))
	case errors.Is(err, errUnknownEnvironment):
		var names []string
		if b.config.Environments != nil {
			names = b.config.Environments.Names()
		}
		return nil, "", NoEnvironment(name, names)
	case exists && name != its:
		env, other := "'env'", "'session'"
		if req.Shown {
			env, other = "--env", "--session"
		}
		what := fmt.Sprintf("Session %s has environment %s, and cannot change to %s. Leave %s out to go on in %s, or name another %s for %s", key.Name, its, name, env, its, other, name)
		if key.Client == "" {
			what += fmt.Sprintf(". The user can also remove it: sallyport sessions rm %s", key.Name)
		}
		return nil, "", invalid(what)
	case errors.Is(err, ErrUnbuilt):
		return nil, name, nil
	case err != nil:
		return nil, "", failure(err)
	}
	return t, "", nil
}

// environments returns the names of the session's environment and of all, or nothing
// where there is no choice.
func (x *execution) environments() (its string, all []string) {
	if x.broker.config.Environments != nil {
		all = x.broker.config.Environments.Names()
	}
	if its = x.session.Environment(); its == "" && len(all) == 0 {
		return "", nil
	}
	return cmp.Or(its, HostEnvironment), append(slices.Clone(all), HostEnvironment)
}

// ready returns the template of an environment, which it builds if that is needed.
func (b *Broker) ready(ctx context.Context, name string, a *Activity) (*session.Template, error) {
	t, err := b.environment(name)
	if !errors.Is(err, ErrUnbuilt) {
		return t, err
	}
	if err := b.builds.wait(ctx, name, a); err != nil {
		return nil, err
	}
	if t, err = b.environment(name); errors.Is(err, ErrUnbuilt) {
		err = fmt.Errorf("environment %s was changed while it was built. Try again", name)
	}
	return t, err
}

// later runs a request once its environment is there: those before it have entered
// the session by then.
func (b *Broker) later(ctx context.Context, req *Request, turn *arrival) *Result {
	defer turn.leave()
	if turn.before != nil {
		req.Activity.Follow(func() string { return "waiting for earlier code of the session" })
	}
	if err := turn.wait(ctx); err != nil {
		return b.finish(req, unrun(ctx, err))
	}
	t, unbuilt, refused := b.choose(req)
	if unbuilt != "" {
		// An engine that cannot run here is no reason to build.
		_, err := b.probe(ctx, b.config.Template.Engine)
		if err == nil {
			t, err = b.ready(ctx, unbuilt, req.Activity)
		}
		if err != nil {
			refused = unrun(ctx, err)
		}
	}
	if refused == nil && unbuilt != "" {
		made, _ := b.sessions.Made(req.key())
		t, refused = b.withFolders(req, t, made)
	}
	if refused != nil {
		return b.finish(req, refused)
	}
	run, refused := b.enter(req, t)
	if refused != nil {
		return refused
	}
	turn.leave()
	return run(ctx)
}

// An arrival is a request's place among those that cannot enter their session yet,
// because one of them waits for its environment.
type arrival struct {
	all    *arrivals
	key    session.Key
	before *arrival      // nil: none
	left   chan struct{} // closed when the next one may enter
	once   sync.Once
}

// arrivals are the last ones, by session. They are safe for concurrent use.
type arrivals struct {
	mu   sync.Mutex
	last map[session.Key]*arrival
}

// join takes a place behind others. It returns nil if there are none, unless the
// request waits for its environment.
func (a *arrivals) join(key session.Key, waits bool) *arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.last[key].waiting()
	if before == nil && !waits {
		return nil
	}
	if a.last == nil {
		a.last = map[session.Key]*arrival{}
	}
	one := &arrival{all: a, key: key, before: before, left: make(chan struct{})}
	a.last[key] = one
	return one
}

// wait waits until those before it have left.
func (a *arrival) wait(ctx context.Context) error {
	for before := a.before.waiting(); before != nil; before = before.waiting() { // the nearest may have given up
		select {
		case <-before.left:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	a.before = nil
	return ctx.Err()
}

// leave gives up the place. It is idempotent.
func (a *arrival) leave() {
	a.once.Do(func() {
		close(a.left)
		a.all.mu.Lock()
		defer a.all.mu.Unlock()
		if a.all.last[a.key] != a {
			return
		}
		if before := a.waiting(); before != nil {
			a.all.last[a.key] = before
		} else {
			delete(a.all.last, a.key)
		}
	})
}

// waiting returns the nearest among the arrival and those before it that has not
// left, or nil.
func (a *arrival) waiting() *arrival {
	for ; a != nil; a = a.before {
		select {
		case <-a.left:
		default:
			return a
		}
	}
	return nil
}

// builds are the environments that are being built. Requests for the same one share
// a build, which ends when none waits for it.
type builds struct {
	broker *Broker
	mu     sync.Mutex
	all    map[string]*build // by environment
	work   sync.WaitGroup
	closed bool
}

// close ends the builds, and waits until they have ended.
func (g *builds) close() {
	g.mu.Lock()
	g.closed = true
	for _, one := range g.all {
		one.cancel()
	}
	g.mu.Unlock()
	g.work.Wait()
}

type build struct {
	waiting int // guarded by builds.mu
	began   time.Time
	cancel  context.CancelFunc
	stage   atomic.Pointer[string]
	done    chan struct{}
	err     error // set before done is closed
}

// wait builds an environment, or waits for the build that is under way.
func (g *builds) wait(ctx context.Context, name string, a *Activity) error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return session.ErrClosed
	}
	one := g.all[name]
	if one == nil {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		one = &build{began: time.Now(), cancel: cancel, done: make(chan struct{})}
		if g.all == nil {
			g.all = map[string]*build{}
		}
		g.all[name] = one
		g.work.Go(func() { g.run(own, name, one) })
	}
	one.waiting++
	g.mu.Unlock()
	a.Follow(func() string {
		text := "building environment " + name
		if stage := one.stage.Load(); stage != nil && *stage != "" {
			text += ": " + *stage
		}
		return text
	})
	select {
	case <-one.done:
	case <-ctx.Done():
	}
	g.mu.Lock()
	if one.waiting--; one.waiting == 0 {
		one.cancel()
		if g.all[name] == one {
			delete(g.all, name)
		}
	}
	g.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if one.err != nil {
		return fmt.Errorf("environment %s could not be built: %w. Nothing was run; the next call tries again", name, one.err)
	}
	return nil
}

func (g *builds) run(ctx context.Context, name string, one *build) {
	defer close(one.done)
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.all[name] == one {
			delete(g.all, name) // the next request tries again
		}
	}()
	defer g.broker.caught(&Request{}, &one.err)
	one.err = g.broker.config.Environments.Build(ctx, name, func(stage string) {
		stage = firstLine(stage)
		one.stage.Store(&stage)
	})
	attrs := []any{"environment", name, "duration", time.Since(one.began)}
	switch {
	case one.err == nil:
		g.broker.log.Info("environment built", attrs...)
	case ctx.Err() == nil:
		g.broker.log.Warn("an environment could not be built", append(attrs, "error", one.err)...)
	}
}
