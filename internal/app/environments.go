package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/environment"
	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/store"
)

// Environments opens the environments of the engine that the settings ask for: their
// locks, and what was built from them.
func (a *App) Environments() (*environment.Store, error) {
	return a.environmentsOf(a.engineName)
}

// engineName returns the name of the engine that the settings ask for. It chooses once.
func (a *App) engineName() string {
	a.naming.Lock()
	defer a.naming.Unlock()
	if a.named == "" {
		a.named = a.Settings.Engine
		if engine, err := a.Engine(); err == nil {
			defer engine.Close()
			if c, ok := engine.(*Choice); ok {
				c.log = slog.New(slog.DiscardHandler) // what runs code says what it chose
			}
			a.named = engine.Name()
		}
	}
	return a.named
}

// FollowHub has the environments that are built from now on be for the engine of the hub
// of these settings, if one runs: it may have chosen another than this process would.
func (a *App) FollowHub(ctx context.Context) {
	if a.Settings.Engine != settings.EngineAuto {
		return
	}
	key := a.HubKey()
	hubs, _, _ := a.Hubs(ctx)
	for _, h := range hubs {
		if h.Hub.Key == key && h.Hub.Engine != "" {
			a.naming.Lock()
			a.named, a.followed = h.Hub.Engine, true
			a.naming.Unlock()
		}
	}
}

// Elsewhere explains a failure to build for the engine of the hub, which this process may
// be unable to run.
func (a *App) Elsewhere(err error) error {
	a.naming.Lock()
	defer a.naming.Unlock()
	if !a.followed || !errors.Is(err, sandbox.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w; the hub runs code in the engine %s: build the packages where it was started, or use --standalone for the engine that can run here", err, a.named)
}

// Pure reports whether the engine that the settings ask for brings its own Python along,
// so that environments are archives of packages without machine code.
func (a *App) Pure() bool { return a.pure(a.engineName) }

func (a *App) pure(engine func() string) bool {
	name := a.Settings.Engine
	if name == settings.EngineAuto {
		name = engine()
	}
	return name == settings.EngineWasm
}

// environmentsOf opens the environments of an engine, whose name it asks for where that
// is not in the settings.
func (a *App) environmentsOf(engine func() string) (*environment.Store, error) {
	if a.Settings.StateDir == "" {
		return nil, errors.New("there is no directory to keep environments in: set stateDir, XDG_STATE_HOME, or HOME to a directory that exists")
	}
	images := a.ImageStore()
	pure := func() bool { return a.pure(engine) }
	return environment.New(environment.Config{
		Images: images,
		State:  a.state(store.Environments),
		Base: func(ctx context.Context, d *environment.Definition, tell environment.Tell) (*image.Root, error) {
			return a.ImageBase(ctx, images, d, tell)
		},
		Builder: func(ctx context.Context, archives bool) (*build.Builder, func(), error) {
			make := a.ImageBuilder
			if archives {
				make = func(images *image.Store) (*build.Builder, func(), error) { return a.packageBuilder(ctx, images) }
			}
			b, end, err := make(images)
			if err != nil {
				return nil, nil, err
			}
			limit := b.Pip.MaxBytes
			if b.Pip, err = a.Pip(ctx); err != nil {
				end()
				return nil, nil, err
			}
			b.Pip.MaxBytes = limit
			return b, end, nil
		},
		Pure: &environment.Pure{Used: pure, Default: a.isHost, Needed: a.NeedsPackages},
	}), nil
}

// Pip finds what downloads wheels.
func (a *App) Pip(ctx context.Context) (build.Pip, error) {
	look := func(name string) (string, error) { return python.LookPath(name, a.Env["PATH"]) }
	return build.FindPip(ctx, a.Env.List(), look, a.Settings.Python, "python3", "python")
}

// Definition returns an environment of the settings.
func (a *App) Definition(name string) (*environment.Definition, error) {
	e, err := a.configured(name)
	if err != nil {
		return nil, err
	}
	d := &environment.Definition{Name: e.Name, Python: e.Python, Image: e.Image, File: e.File}
	if a.isHost(d.Python) && d.Image == "" {
		d.Python = a.Settings.Python // what was built for it is not for another one
	}
	for _, text := range e.Packages {
		r, err := build.ParseRequirement(text)
		if err != nil {
			return nil, fmt.Errorf("environments.%s.packages: %w", name, err)
		}
		d.Packages = append(d.Packages, r)
	}
	return d, nil
}

func (a *App) configured(name string) (*settings.Environment, error) {
	if err := a.Settings.CheckEnvironment(name); err != nil {
		return nil, err
	}
	list := a.Settings.Environments
	i := slices.IndexFunc(list, func(e settings.Environment) bool { return e.Name == name })
	if i < 0 {
		return nil, errors.New("host means no environment: there is nothing to build")
	}
	return &list[i], nil
}

// RemoveEnvironment removes a built environment, and its image if nothing else needs
// that. It returns how many bytes are free now.
func (a *App) RemoveEnvironment(s *environment.Store, b *environment.Built, all bool) (int64, error) {
	if err := s.Remove(b, all); err != nil {
		return 0, err
	}
	switch {
	case b.Archive != "":
		return s.Sweep(b.Archive)
	case b.Image == "":
		return 0, nil
	}
	removed, err := a.ImageStore().Prune(b.Image, a.NeedsImage)
	var freed int64
	for _, r := range removed {
		freed += r.Bytes
	}
	return freed, err
}

// environments implements broker.Environments.
type environments struct {
	app   *App
	store *environment.Store
	host  *session.Template // of the settings
}

// environments returns the environments of sessions, whose sandboxes are like those
// of a template but for their packages. Without a state directory there can be none.
func (a *App) environments(host *session.Template) (broker.Environments, error) {
	s, err := a.environmentsOf(host.Engine.Name)
	if err == nil {
		return &environments{a, s, host}, nil
	}
	if len(a.Settings.Environments) > 0 {
		return nil, err
	}
	return nil, nil
}

// Names implements broker.Environments.
func (e *environments) Names() []string {
	var names []string
	for _, one := range e.app.Settings.Environments {
		names = append(names, one.Name)
	}
	return names
}

// Default implements broker.Environments.
func (e *environments) Default() string {
	if name := e.app.Settings.Environment; name != broker.HostEnvironment {
		return name
	}
	return ""
}

// Template implements broker.Environments.
func (e *environments) Template(name string) (*session.Template, error) {
	if name == broker.HostEnvironment {
		return e.host, nil
	}
	set, err := e.app.configured(name)
	if err != nil {
		b, missing := e.store.Get(name)
		if missing != nil || b.Name != "" { // one that is not in the settings any more
			return nil, err
		}
		return e.template(b, &settings.Environment{}), nil
	}
	d, err := e.app.Definition(name)
	if err != nil {
		return nil, err
	}
	b, err := e.store.Find(d)
	if errors.Is(err, environment.ErrUnbuilt) {
		return nil, fmt.Errorf("%s: %w", name, broker.ErrUnbuilt)
	}
	if err != nil {
		return nil, err
	}
	return e.template(b, set), nil
}

func (e *environments) template(b *environment.Built, set *settings.Environment) *session.Template {
	t := *e.host
	t.Environment = cmp.Or(b.Name, b.ID)
	t.Root = sandbox.Root{Image: b.Image, Packages: e.store.Archive(b)}
	t.Limits = limitsOf(limitsOver(e.app.Settings.Limits, set.Limits))
	if set.Preload != nil {
		t.Preload = set.Preload
	}
	return &t
}

// limitsOver returns limits with those of an environment over them.
func limitsOver(all, own settings.Limits) settings.Limits {
	out, over := reflect.ValueOf(&all).Elem(), reflect.ValueOf(own)
	for i := range over.NumField() {
		if field := over.Field(i); !field.IsZero() {
			out.Field(i).Set(field)
		}
	}
	return all
}

// Build implements broker.Environments.
func (e *environments) Build(ctx context.Context, name string, tell func(string)) error {
	d, err := e.app.Definition(name)
	if err != nil {
		return err
	}
	_, err = e.store.Ensure(ctx, d, func(stage string, done, total int64) {
		if total > 0 {
			stage += fmt.Sprintf(", %.1f of %.1f MB", float64(done)/1e6, float64(total)/1e6)
		}
		tell(stage)
	})
	return err
}

// PrepareEnvironment makes what new sessions of a built environment start from, so
// that the first one does not wait for it.
func (c *Core) PrepareEnvironment(ctx context.Context, name string) error {
	t, err := c.environments.Template(name)
	if err != nil {
		return err
	}
	if t, err = c.broker.WithFolders(t); err != nil {
		return err
	}
	return c.set.Prepare(ctx, t)
}
