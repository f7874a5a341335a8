package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/environment"
	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/private"
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
	interpreter, err := a.wasm()
	if err != nil {
		return nil, err
	}
	own := []*candidate{{Engine: embedded, most: sandbox.KernelIsolation}, {Engine: interpreter, most: sandbox.WasmIsolation}}
	var installed, others []*candidate
	most := sandbox.ContainerIsolation
	if a.Settings.Container.Runtime != "" {
		most = sandbox.KernelIsolation
	}
	for _, name := range []string{settings.EnginePodman, settings.EngineDocker} {
		b, err := a.container(name)
		if err != nil {
			return nil, err
		}
		if one := (&candidate{Engine: b, most: most}); b.Installed() {
			installed = append(installed, one)
		} else {
			others = append([]*candidate{one}, others...)
		}
	}
	all := slices.Concat(own, installed, others)
	if runtime.GOOS != "linux" {
		all = slices.Concat(installed, others, own) // which say that they cannot
	}
	return &Choice{candidates: all, gate: gate, log: a.Log}, nil
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
	b = &build.Builder{Store: store, Run: buildIn(engine)}
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

// packageBuilder constructs what builds archives of packages. Its code runs on the engine
// wasm, whose Python they are for, if the policy accepts that.
func (a *App) packageBuilder(ctx context.Context, store *image.Store) (b *build.Builder, end func(), err error) {
	gate, err := gateOf(a.Settings, authz.Config{})
	if err != nil {
		return nil, nil, err
	}
	engine, err := a.wasm()
	if err != nil {
		return nil, nil, err
	}
	only := &Choice{gate: gate, log: a.Log}
	if v := only.judge(ctx, &candidate{Engine: engine}); !v.ok { // before anything is downloaded
		_ = engine.Close()
		return nil, nil, fmt.Errorf("packages are built in the engine %s, which cannot be used: %s", v.Engine, v.Why)
	}
	b = &build.Builder{Store: store, Run: buildIn(engine), Pip: build.Pip{MaxBytes: a.mostPackages()}}
	return b, func() {
		if err := engine.Close(); err != nil {
			a.Log.Warn("cleaning up", "error", err)
		}
	}, nil
}

// buildIn returns what runs a Builder's code in an engine.
func buildIn(engine sandbox.Engine) func(context.Context, *sandbox.Spec, string, io.Writer) error {
	return func(ctx context.Context, spec *sandbox.Spec, code string, out io.Writer) error {
		spec.Program = python.Program()
		return guest.Once(ctx, engine, spec, wire.Exec{Code: code, Filename: "<build>"}, out)
	}
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
	case s.Container.User != settings.DefaultUser:
		return a.lacking(settings.EngineWasm, "container.user", "the engine wasm has no users, and runs no code as "+s.Container.User), nil
	case len(s.Files.Mounts) > 0:
		return a.lacking(settings.EngineWasm, settings.MountsKey, "the engine wasm shows code no folders"), nil
	case s.Image != "":
		return a.lacking(settings.EngineWasm, "image", only+s.Image), nil
	case s.Origin("python").Layer != settings.LayerDefault:
		return a.lacking(settings.EngineWasm, "python", only+s.Python), nil
	}
	if key, asked := a.otherPython(); a.Settings.Engine == settings.EngineAuto && key != "" {
		return a.lacking(settings.EngineWasm, key, only+asked), nil
	}
	cacheDir, err := a.Env.cacheDir()
	if err != nil {
		return nil, err
	}
	in := func(cacheDir string) (sandbox.Engine, error) {
		return wasm.New(wasm.Options{
			CacheDir: filepath.Join(cacheDir, "wasm"),
			Key:      a.wasmKey,
			Program:  python.Program(),
			Log:      a.Log,
		})
	}
	for _, dir := range a.Env.userCaches() {
		if dir == cacheDir {
			break
		}
		// It cannot be written to, but may have all that is needed.
		e, err := in(dir)
		if err != nil {
			return nil, err
		}
		if p, ok := e.(sandbox.Preparer); ok && p.Prepared(python.Program()) {
			return e, nil
		}
		_ = e.Close()
	}
	return in(cacheDir)
}

// otherPython returns the setting by which the default environment has a Python that the
// engine wasm is not, and its value; empty: there is none.
func (a *App) otherPython() (key, asked string) {
	name := a.Settings.Environment
	i := slices.IndexFunc(a.Settings.Environments, func(e settings.Environment) bool { return e.Name == name })
	if i < 0 {
		return "", ""
	}
	e := a.Settings.Environments[i]
	switch {
	case e.Image != "":
		return "environments." + name + ".image", e.Image
	case !a.isHost(e.Python) && environment.FitsPure("=="+e.Python+".*") != nil:
		return "environments." + name + ".python", "Python " + e.Python
	}
	return "", ""
}

// passing is a key that ends with this process.
var passing = sync.OnceValue(func() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return key
})

var keyless sync.Once // says that there is no key that lasts

// wasmKey returns the key from which those of compiled code and images are derived.
// Where the state directory cannot have one, it lasts as long as the runtime directory,
// or as this process.
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
	if _, rejected := errors.AsType[*private.Rejected](err); rejected {
		return nil, errors.Join(trouble, err)
	}
	if err != nil { // what is made lasts as long as this process
		keyless.Do(func() {
			a.Log.Warn("there is no key to keep compiled Python with: each start of this program compiles it again", "error", errors.Join(trouble, err))
		})
		key = passing()
	}
	return key, nil
}
