package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/gvisor"
	"sallyport/internal/settings"
)

// engine constructs the engine that the settings ask for. Where this version
// lacks what they ask for, it is one that says so to whoever wants to run
// code: the program starts, and nothing else takes the place of what was
// asked for.
func (a *app) engine() (sandbox.Backend, error) {
	s := a.settings
	name := s.Engine
	if name == settings.EngineAuto {
		name = settings.EngineGVisor
	}
	var lacking []sandbox.Finding
	lack := func(key, instead, format string, args ...any) {
		from := s.Origin(key)
		asks, remedy := from.String(), "remove "+from.String()
		switch from.Layer {
		case settings.LayerFile:
			asks = key + " in " + asks
			remedy = "remove that line"
		case settings.LayerEnvironment:
			remedy += ` from the environment (in a client's configuration: from "env")`
		}
		lacking = append(lacking, sandbox.Finding{
			Fatal:  true,
			Title:  fmt.Sprintf(format, args...) + ", as " + asks + " asks",
			Remedy: remedy + instead,
		})
	}
	if name != settings.EngineGVisor {
		lack("engine", "; the embedded gVisor then runs the code, and needs neither Podman nor Docker", "this version cannot run code in %s yet", name)
	}
	if s.Image != "" && name != settings.EngineGVisor {
		lack("image", "; code then runs in the host's own Python", "this version cannot run code in images such as %s yet", s.Image)
	}
	if name == settings.EngineGVisor && s.Container.User != settings.DefaultUser {
		lack("container.user", "", "the embedded gVisor runs code as %s only, and not as %s", settings.DefaultUser, s.Container.User)
	}
	if len(lacking) > 0 {
		return &lackingEngine{name: name, findings: lacking}, nil
	}
	return gvisor.New(gvisor.Options{
		RuntimeDir: filepath.Join(a.env.runtimeDir(), "gvisor"),
		CacheDir:   a.env.cacheDir(),
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

// lackingEngine is an engine that was asked for and that this version lacks.
// It says so, and runs nothing.
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
