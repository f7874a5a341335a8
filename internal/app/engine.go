package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/container"
	"github.com/sallyport/sallyport/internal/sandbox/gvisor"
	"github.com/sallyport/sallyport/internal/sandbox/wasm"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/wire"
)

// Engine constructs the engine that the settings ask for: one, or a Choice. An
// engine that cannot do what they ask for is replaced by one that refuses to run
// code and says why: the program starts, and no other engine takes its place.
func (a *App) Engine() (sandbox.Engine, error) {
	switch name := a.Settings.Engine; name {
	case settings.EngineGVisor:
		return a.gvisor()
	case settings.EnginePodman, settings.EngineDocker:
		return a.container(name)
	case settings.EngineWasm:
		return a.wasm()
	}
	gate, err := gateOf(a.Settings, authz.Config{})
	if err != nil {
		return nil, err
	}
	embedded, err := a.gvisor()
	if err != nil {
		return nil, err
	}
	var first, installed, others []sandbox.Engine
	if runtime.GOOS == "linux" {
		first = append(first, embedded)
	} else {
		others = append(others, embedded) // it says that it cannot
	}
	for _, name := range []string{settings.EnginePodman, settings.EngineDocker} {
		b, err := a.container(name)
		if err != nil {
			return nil, err
		}
		if b.Installed() {
			installed = append(installed, b)
		} else {
			others = append([]sandbox.Engine{b}, others...)
		}
	}
	return &Choice{candidates: slices.Concat(first, installed, others), gate: gate}, nil
}

// ImageBuilder constructs what builds images in a store. Its code runs in images
// of the store, by their IDs, whatever engine and image the settings name: on the
// first engine that can and that the policy accepts, as for the engine auto. end
// removes what only the builder needed.
func (a *App) ImageBuilder(store *image.Store) (b *build.Builder, end func(), err error) {
	engine := &imageEngine{choose: func(image string) (sandbox.Engine, error) {
		set := *a.Settings
		set.Engine, set.Image = settings.EngineAuto, image
		other := App{Env: a.Env, Dir: a.Dir, Settings: &set, Log: a.Log, Version: a.Version, Life: a.Life}
		return other.Engine()
	}}
	run := func(ctx context.Context, spec *sandbox.Spec, code string, out io.Writer) error {
		spec.Program = python.Program()
		return guest.Once(ctx, engine, spec, wire.Exec{Code: code, Filename: "<build>"}, out)
	}
	b = &build.Builder{Store: store, Run: run}
	return b, func() {
		if err := engine.Close(); err != nil {
			a.Log.Warn("cleaning up", "error", err)
		}
		for _, id := range b.Passing {
			if _, err := store.Prune(id, a.NeedsImage); err != nil {
				a.Log.Warn("cleaning up", "image", id, "error", err)
			}
		}
	}, nil
}

// imageEngine chooses an engine when the first sandbox starts: its image is what
// engines are probed with. A registry's image is not needed then.
type imageEngine struct {
	sandbox.Engine // nil until it is chosen
	choose         func(image string) (sandbox.Engine, error)
	mu             sync.Mutex
}

func (e *imageEngine) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	e.mu.Lock()
	var err error
	if e.Engine == nil {
		e.Engine, err = e.choose(spec.Root.Image)
	}
	chosen := e.Engine
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return chosen.Start(ctx, spec)
}

func (e *imageEngine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Engine == nil {
		return nil
	}
	return e.Engine.Close()
}

// container constructs the engine on Podman or Docker.
func (a *App) container(name string) (*container.Engine, error) {
	s := a.Settings
	runtimeDir, err := a.Env.runtimeDir()
	if err != nil {
		return nil, err
	}
	cacheDir, err := a.Env.cacheDir()
	if err != nil {
		return nil, err
	}
	opts := container.Options{
		Engine:        name,
		Path:          a.Env["PATH"],
		Environ:       a.Env.List(),
		Image:         s.Image,
		Program:       python.Program(),
		Interpreter:   s.Python,
		User:          s.Container.User,
		Runtime:       s.Container.Runtime,
		UserNamespace: s.Container.UserNamespace,
		Pull:          s.Images.Pull,
		Images:        a.imageLibrary(),
		StartMachine:  s.Container.StartMachine,
		IdleTimeout:   s.Container.IdleTimeout,
		State:         store.At(filepath.Join(runtimeDir, "containers")),
		Cache:         store.At(cacheDir).Sub("containers"),
		Log:           a.Log,
	}
	if s.StateDir != "" {
		opts.State = store.At(s.StateDir).Area(store.Containers)
	}
	return container.New(opts)
}

// gvisor constructs the embedded engine.
func (a *App) gvisor() (sandbox.Engine, error) {
	s := a.Settings
	if user := s.Container.User; user != settings.DefaultUser {
		return a.lacking(settings.EngineGVisor, "container.user", fmt.Sprintf("the embedded gVisor runs code as %s only, and not as %s", settings.DefaultUser, user)), nil
	}
	runtimeDir, err := a.Env.runtimeDir()
	if err != nil {
		return nil, err
	}
	cacheDir, err := a.Env.cacheDir()
	if err != nil {
		return nil, err
	}
	return gvisor.New(gvisor.Options{
		RuntimeDir:  filepath.Join(runtimeDir, "gvisor"),
		CacheDir:    cacheDir,
		Program:     python.Program(),
		Interpreter: s.Python,
		Path:        a.Env["PATH"],
		Home:        a.Env.Home(),
		UserBus:     a.Env.userBus(),
		DebugDir:    s.Debug.GVisor,
		Image:       s.Image,
		Images:      a.imageLibrary(),
		Log:         a.Log,
	})
}

// lacking returns an engine that cannot do what a setting asks for.
func (a *App) lacking(engine, key, cannot string) sandbox.Engine {
	from := a.Settings.Origin(key)
	asks, remedy := from.String(), "remove "+from.String()
	switch from.Layer {
	case settings.LayerFile:
		asks = key + " in " + asks
		remedy = "remove that line"
	case settings.LayerEnvironment:
		remedy += ` from the environment (in a client's configuration: from "env")`
	}
	return &sandbox.Unusable{Backend: engine, Why: sandbox.Finding{Fatal: true, Title: cannot + ", as " + asks + " asks", Remedy: remedy}}
}

// wasm constructs the engine of the embedded interpreter.
func (a *App) wasm() (sandbox.Engine, error) {
	const only = "the engine wasm runs the Python that is part of this program, and not "
	switch s := a.Settings; {
	case s.Image != "":
		return a.lacking(settings.EngineWasm, "image", only+s.Image), nil
	case s.Origin("python").Layer != settings.LayerDefault:
		return a.lacking(settings.EngineWasm, "python", only+s.Python), nil
	}
	cacheDir, err := a.Env.cacheDir()
	if err != nil {
		return nil, err
	}
	return wasm.New(wasm.Options{
		CacheDir: filepath.Join(cacheDir, "wasm"),
		Key:      a.wasmKey,
		Program:  python.Program(),
		Log:      a.Log,
	})
}

// wasmKey returns the key from which those of compiled code and images are derived.
// Where the state directory cannot have one, it lasts as long as the runtime directory.
func (a *App) wasmKey() ([]byte, error) {
	var trouble error
	if a.Settings.StateDir != "" {
		key, err := store.At(a.Settings.StateDir).Area(store.Snapshots).Key("key", true)
		if err == nil {
			return key, nil
		}
		trouble = err
	}
	runtimeDir, err := a.Env.runtimeDir()
	if err != nil {
		return nil, errors.Join(trouble, err)
	}
	key, err := store.At(filepath.Join(runtimeDir, "wasm")).Key("key", true)
	if err != nil {
		return nil, errors.Join(trouble, err)
	}
	return key, nil
}
