package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"

	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/container"
	"sallyport/internal/sandbox/gvisor"
	"sallyport/internal/settings"
	"sallyport/internal/state"
)

// engine constructs the engine that the settings ask for: one, or a choice.
// Where it cannot do what they ask for, it is one that says so to whoever wants
// to run code: the program starts, and nothing else takes the place of what was
// asked for.
func (a *app) engine() (sandbox.Backend, error) {
	switch name := a.settings.Engine; name {
	case settings.EngineGVisor:
		return a.gvisor()
	case settings.EnginePodman, settings.EngineDocker:
		return a.container(name)
	}
	rules, err := policyOf(a.settings.Policy)
	if err != nil {
		return nil, err
	}
	embedded, err := a.gvisor()
	if err != nil {
		return nil, err
	}
	var first, installed, others []sandbox.Backend
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
			others = append([]sandbox.Backend{b}, others...)
		}
	}
	return &choice{candidates: slices.Concat(first, installed, others), policy: rules}, nil
}

// container constructs Podman or Docker.
func (a *app) container(name string) (*container.Backend, error) {
	s := a.settings
	runtimeDir, err := a.env.runtimeDir()
	if err != nil {
		return nil, err
	}
	cacheDir, err := a.env.cacheDir()
	if err != nil {
		return nil, err
	}
	opts := container.Options{
		Engine:        name,
		Path:          a.env["PATH"],
		Environ:       a.env.list(),
		Image:         s.Image,
		Python:        s.Python,
		User:          s.Container.User,
		Runtime:       s.Container.Runtime,
		UserNamespace: s.Container.UserNamespace,
		Pull:          s.Images.Pull,
		StartMachine:  s.Container.StartMachine,
		IdleTimeout:   s.Container.IdleTimeout,
		State:         state.At(filepath.Join(runtimeDir, "containers")),
		Cache:         state.At(cacheDir).Sub("containers"),
		Log:           a.log,
	}
	if s.StateDir != "" {
		opts.State = state.At(s.StateDir).Sub("containers")
	}
	return container.New(opts)
}

// gvisor constructs the embedded engine.
func (a *app) gvisor() (sandbox.Backend, error) {
	s := a.settings
	if s.Container.User != settings.DefaultUser {
		from := s.Origin("container.user")
		asks, remedy := from.String(), "remove "+from.String()
		switch from.Layer {
		case settings.LayerFile:
			asks = "container.user in " + asks
			remedy = "remove that line"
		case settings.LayerEnvironment:
			remedy += ` from the environment (in a client's configuration: from "env")`
		}
		return &lackingEngine{name: settings.EngineGVisor, findings: []sandbox.Finding{{
			Fatal:  true,
			Title:  fmt.Sprintf("the embedded gVisor runs code as %s only, and not as %s, as %s asks", settings.DefaultUser, s.Container.User, asks),
			Remedy: remedy,
		}}}, nil
	}
	runtimeDir, err := a.env.runtimeDir()
	if err != nil {
		return nil, err
	}
	cacheDir, err := a.env.cacheDir()
	if err != nil {
		return nil, err
	}
	return gvisor.New(gvisor.Options{
		RuntimeDir: filepath.Join(runtimeDir, "gvisor"),
		CacheDir:   cacheDir,
		Python:     s.Python,
		Path:       a.env["PATH"],
		Home:       a.env.home(),
		UserBus:    a.env.userBus(),
		DebugDir:   s.Debug.GVisor,
		Image:      s.Image,
		Images:     a.imageLibrary(),
		Log:        a.log,
	})
}

// lackingEngine is an engine that cannot do what was asked for. It says so,
// and runs nothing.
type lackingEngine struct {
	name     string
	findings []sandbox.Finding
}

var _ sandbox.Backend = (*lackingEngine)(nil)

func (e *lackingEngine) Name() string { return e.name }

func (e *lackingEngine) Probe(context.Context) (*sandbox.Report, error) {
	return &sandbox.Report{Backend: e.name, Limits: map[sandbox.Resource]sandbox.LimitReport{}, Findings: e.findings}, nil
}

func (e *lackingEngine) Start(context.Context, *sandbox.Spec) (sandbox.Run, error) {
	return nil, &sandbox.Error{Op: "start", Backend: e.name, Kind: sandbox.ErrUnavailable, Err: errors.New(e.findings[0].Title)}
}

func (e *lackingEngine) Attach(context.Context, sandbox.Handle) (sandbox.Run, error) {
	return nil, &sandbox.Error{Op: "attach", Backend: e.name, Kind: sandbox.ErrGone}
}

func (e *lackingEngine) Close() error { return nil }
