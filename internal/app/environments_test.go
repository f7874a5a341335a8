package app

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/settings"
)

// appWith returns an App with the settings of a configuration file.
func appWith(t *testing.T, config string, env Environment) *App {
	t.Helper()
	home := t.TempDir()
	file := filepath.Join(home, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &App{Env: Environment{"HOME": home, "PATH": os.Getenv("PATH")}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Life: context.Background()}
	for name, value := range env {
		a.Env[name] = value
	}
	var err error
	if a.Settings, err = a.Env.LoadSettings(home, file, nil); err != nil {
		t.Fatal(err)
	}
	return a
}

const twoEnvironments = `
limits: {memory: 600m, processes: 99}
sessions: {preload: [json]}
environment: data
environments:
  data:
    packages: [numpy, pandas>=2]
    file: more.txt
    preload: [pandas]
    limits: {memory: 1g}
  web: {image: "python:3.13-slim", packages: ["evil -x"]}
`

func TestDefinition(t *testing.T) {
	a := appWith(t, twoEnvironments, nil)
	d, err := a.Definition("data")
	if err != nil {
		t.Fatal(err)
	}
	if d.Name != "data" || len(d.Packages) != 2 || d.Packages[1] != "pandas>=2" || d.File != filepath.Join(a.Env.Home(), "more.txt") {
		t.Errorf("got %+v, want what the file says", d)
	}
	a.Settings.Python = "/opt/python"
	if other, err := a.Definition("data"); err != nil || other.Python != "/opt/python" || other.Python == d.Python {
		t.Errorf("got Python %q and then %q (%v), want the setting's, so that no other one's build is used", d.Python, other.Python, err)
	}
	for name, want := range map[string]string{
		"web": "environments.web.packages: ", "dat": "did you mean data?", "host": "host means no environment", "": "there are data, web",
	} {
		if d, err := a.Definition(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v (%v), want an error with %q", name, d, err, want)
		}
	}
}

// TestTemplates: an environment has limits and modules of its own, and the rest from
// the settings.
func TestTemplates(t *testing.T) {
	a := appWith(t, twoEnvironments, nil)
	if err := os.WriteFile(filepath.Join(a.Env.Home(), "more.txt"), []byte("httpx\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	host := &session.Template{Engine: &sandbox.Unusable{Backend: settings.EngineGVisor}, Program: python.Program(), Limits: limitsOf(a.Settings.Limits), Preload: a.Settings.Sessions.Preload}
	all, err := a.environments(host)
	if err != nil {
		t.Fatal(err)
	}
	if got := all.Names(); !slices.Equal(got, []string{"data", "web"}) || all.Default() != "data" {
		t.Errorf("got %v, by default %q, want data and web, by default data", got, all.Default())
	}
	if got, err := all.Template(broker.HostEnvironment); got != host || err != nil {
		t.Errorf("host: got %+v (%v), want the template of the settings", got, err)
	}
	if got, err := all.Template("data"); !errors.Is(err, broker.ErrUnbuilt) {
		t.Errorf("before it is built: got %+v (%v), want ErrUnbuilt", got, err)
	}
	want := limitsOf(a.Settings.Limits)
	want.MemoryBytes = 1 << 30
	if got := limitsOf(limitsOver(a.Settings.Limits, a.Settings.Environments[0].Limits)); got != want || got.Processes != 99 {
		t.Errorf("got limits %+v, want %+v", got, want)
	}
	if got := limitsOver(settings.Limits{Tmp: 1}, settings.Limits{}); got != (settings.Limits{Tmp: 1}) {
		t.Errorf("got %+v over nothing, want it unchanged", got)
	}
	a.Settings.StateDir = ""
	if got, err := a.environments(host); err == nil {
		t.Errorf("without a state directory: got %v, want an error: code must not run without its packages", got)
	}
}

// TestPythonOfAVersion: a version is looked for in the search path, and then by uv.
func TestPythonOfAVersion(t *testing.T) {
	here, err := python.FindInterpreter(t.Context(), "python3", os.Getenv("PATH"))
	if err != nil {
		t.Skipf("this machine has no Python: %v", err)
	}
	bin := t.TempDir()
	a := appWith(t, "python: "+here.Executable+"\n", Environment{"PATH": bin})
	find := func(which, requires string) string {
		p, err := a.interpreter(t.Context(), which, requires)
		if err != nil {
			return err.Error()
		}
		return p.Executable
	}
	version := here.Version.String()
	if got := find("3.77", ""); !strings.Contains(got, "uv python install 3.77") || !strings.Contains(got, "image: python:3.77-slim") {
		t.Errorf("a version that is not here: got %q, want what to install", got)
	}
	if err := os.Symlink(here.Executable, filepath.Join(bin, "python"+version)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "uv"), []byte("#!/bin/sh\n[ \"$*\" = 'python find --no-project --no-python-downloads 3.77' ] && echo "+here.Executable+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ which, requires, want string }{
		{version, "", here.Executable},
		{"", ">=" + version, here.Executable},
		{"host", "", here.Executable},
		{here.Executable, "", here.Executable},
		{"3.77", "", here.Executable},
		{"", ">=3.88", "requires-python is >=3.88: install a Python that it accepts"},
		{version, "<" + version, "requires-python is <" + version},
		{"", "3.9", "is not a version specifier"},
	} {
		if got := find(c.which, c.requires); !strings.Contains(got, c.want) {
			t.Errorf("python %q, requires-python %q: got %q, want %q", c.which, c.requires, got, c.want)
		}
	}
}

// noSessions are those of a process that has none.
type noSessions struct{ others }

type others interface{ control.Sessions }

func (noSessions) Sessions() []session.Info { return nil }

// TestFollowHub: packages are for the engine of the hub that will run the code, and not
// for the one that this process would choose.
func TestFollowHub(t *testing.T) {
	for _, tt := range []struct {
		name, engine, key, hub string
		follows                string
	}{
		{"another engine", "auto", "", "wasm", "wasm"},
		{"the hub has none", "auto", "", "", ""},
		{"a hub of other settings", "auto", "other", "wasm", ""},
		{"the settings name the engine", "gvisor", "", "wasm", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runtime := t.TempDir()
			if err := os.Chmod(runtime, 0o700); err != nil {
				t.Fatal(err)
			}
			a := appWith(t, "engine: "+tt.engine+"\n", Environment{"XDG_RUNTIME_DIR": runtime})
			a.named = settings.EngineGVisor // what this process would choose
			key := cmp.Or(tt.key, a.HubKey())
			server, err := control.Listen(filepath.Join(runtime, "sallyport", controlDir), control.Config{
				Sessions: noSessions{}, Log: a.Log,
				About: func() control.Process {
					return control.Process{Hub: &control.Hub{Key: key, Engine: tt.hub}}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			// Others of this user may run.
			hubs, _, problems := a.Hubs(t.Context())
			if !slices.ContainsFunc(hubs, func(h RunningHub) bool { return h.Hub.Key == key }) {
				t.Fatalf("got the hubs %v (%v), want %s among them", hubs, problems, key)
			}
			a.FollowHub(t.Context())
			if want := cmp.Or(tt.follows, settings.EngineGVisor); a.named != want || a.Pure() != (tt.follows == settings.EngineWasm) {
				t.Errorf("packages are for the engine %s, for wasm: %v, want the engine %s", a.named, a.Pure(), want)
			}
		})
	}
}
