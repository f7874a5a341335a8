//go:build unix

package broker

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/fake"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/wire"
)

// Code learns the limits of its own session's template, not the default one's.
func TestFactsOfTheTemplate(t *testing.T) {
	b, _ := newBroker(t, func(p *parts) {
		p.Template.Limits = sandbox.Limits{MemoryBytes: 300 << 20}
		p.Templates = map[string]*session.Template{
			"large": {Engine: newEngine(t, fake.Options{}), Program: python.Program(), Limits: sandbox.Limits{MemoryBytes: 700 << 20, Processes: 77}},
		}
	})
	for template, want := range map[string][]string{"": {"300 MiB"}, "large": {"700 MiB", "77"}} {
		r := b.Execute(t.Context(), Request{Principal: user, Template: template, Session: "s" + template, Submission: Submission{Code: "from mcp import runtime\nprint(runtime.capability_summary())"}})
		stdout := strings.Join(r.Stdout, "\n")
		for _, text := range want {
			if r.Status != Success || !strings.Contains(stdout, text) {
				t.Errorf("template %q: got %s, %q (%s), want %q in it", template, r.Status, stdout, r.Error, text)
			}
		}
	}
}

// Code learns which folders of the host it sees, where a path of the host is that it
// has used, and no other path of the host.
func TestFolderFacts(t *testing.T) {
	b, _ := newBroker(t, func(p *parts) {
		p.Template.Mounts = []sandbox.Mount{
			{Source: "/secret/project", Target: "/roots/project", Mode: sandbox.ReadOnly},
			{Source: "/secret/project/out", Target: "/mnt/out", Mode: sandbox.ReadWrite},
			{Source: "/secret/copy", Target: "/mnt/copy", Mode: sandbox.Copy},
		}
	})
	const all = "/roots/project (read-only), /mnt/out (changes reach the user's folder), /mnt/copy (a private copy)"
	for i, tt := range []struct{ code, want string }{
		{"from mcp import runtime\nprint(runtime.capability_summary())", "\nFolders of the user: " + all + ".\n"},
		{"open('/secret/project/a/../b.csv')", "is /roots/project/b.csv in the sandbox\n"},
		{"open('/secret/project/out/b.csv')", "is /mnt/out/b.csv in the sandbox\n"},
		{"open('/secret/project')", "is /roots/project in the sandbox\n"},
		{"open('/secret/projects/b.csv')", "which the sandbox does not see, except for these folders: " + all},
		{"open('/secret/project/../b.csv')", "which the sandbox does not see, except for these folders: " + all},
		{"open('/secret')", "which the sandbox does not see, except for these folders: " + all},
		{"open('/secret/project/a', 'w')", "/roots/project is a folder of the user and read-only: write to "},
		{"open('/roots/project/a/b')", "the folder '/roots/project/a' does not exist\n"},
	} {
		r := b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: tt.code}})
		if out := strings.Join(slices.Concat(r.Stdout, r.Stderr, []string{""}), "\n"); !strings.Contains(out, tt.want) {
			t.Errorf("%.60s: got %s, %q, want %q in it", tt.code, r.Status, out, tt.want)
		}
		want := i == 0 // the first result of the session says it
		if got := slices.Contains(r.Notes, "folders of the user: "+all); got != want {
			t.Errorf("%.60s: got the notes %q, want that they name the folders: %v", tt.code, r.Notes, want)
		}
	}
}

func FuzzFolderFacts(f *testing.F) {
	for _, path := range []string{"/s/project/a", "/s/project", "/s/projects", "/roots/project/a", "/s/project/../..", "C:\\s", "", "\x00"} {
		f.Add(`{"path":` + strconv.Quote(path) + `}`)
	}
	f.Add(`{"path":5}`)
	mounts := []sandbox.Mount{{Source: "/s/project", Target: "/roots/project", Mode: sandbox.ReadOnly}}
	f.Fuzz(func(t *testing.T, params string) {
		data, err := folderFacts(mounts, json.RawMessage(params))
		var got wire.FolderFacts
		if err == nil && json.Unmarshal(data, &got) != nil {
			t.Fatalf("got %s for %q, want facts", data, params)
		}
		if got.Place != "" && got.Place != "/roots/project" && !strings.HasPrefix(got.Place, "/roots/project/") {
			t.Errorf("got the place %q for %q, want one in /roots/project", got.Place, params)
		}
	})
}

// Code learns which environment its session has, and which others there are.
func TestEnvironmentFacts(t *testing.T) {
	b, _ := environments(t, nil)
	for _, tt := range []struct{ env, want string }{
		{"data", "Environment of this session: data. Others, for a new session: ml, host ("},
		{"", "Environment of this session: host. Others, for a new session: data, ml ("},
	} {
		r := in(t, b, "s"+tt.env, tt.env, "from mcp import runtime\nprint(runtime.capability_summary())")
		if stdout := strings.Join(r.Stdout, "\n"); !strings.Contains(stdout, tt.want) {
			t.Errorf("env %q: got %s, %q (%s), want %q in it", tt.env, r.Status, stdout, r.Error, tt.want)
		}
	}
}

// noPackages is a stub that finds no packages.
type noPackages struct{ bridge.Packages }

// Code without a package learns which other environments have it.
func TestPackageFacts(t *testing.T) {
	var module, pkg string
	b, _ := newBroker(t, func(p *parts) {
		p.Gate, p.packages = lax("ask"), noPackages{}
		p.PackageFacts = func(m, k string) wire.PackageFacts {
			module, pkg = m, k
			return wire.PackageFacts{Environments: []string{"data"}}
		}
	})
	r := b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "raise ModuleNotFoundError(name='sklearn.svm')"}})
	want := `The environment data has it: call run_python with env="data" and a new session. Install it: await runtime.install_packages("scikit-learn"), which asks the user.`
	if stderr := strings.Join(r.Stderr, "\n"); !strings.Contains(stderr, want) || module != "sklearn" || pkg != "scikit-learn" {
		t.Errorf("got %s, %q, asked about %q and %q, want %q", r.Status, stderr, module, pkg, want)
	}
	r = b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "raise ModuleNotFoundError('x', name='a' * 100000)"}})
	if stderr := strings.Join(r.Stderr, "\n"); len(stderr) > 2000 || len(module) > maxModule {
		t.Errorf("a long name: got %.300q, asked about %d bytes", stderr, len(module))
	}
}

// The header of code is read on the host, for the sandbox's Python. Code whose header
// cannot be fulfilled does not run.
func TestScriptHeader(t *testing.T) {
	var asked string
	b, _ := newBroker(t, func(p *parts) {
		p.ScriptHeader = func(code string, major, minor int) ([]string, error) {
			asked = code
			if major != 3 || minor < 9 {
				t.Errorf("asked about Python %d.%d", major, minor)
			}
			if strings.Contains(code, "odd") {
				return nil, errors.New("line 2: it is odd")
			}
			return []string{"absent>=1"}, nil
		}
	})
	for _, tt := range []struct{ code, want string }{
		{"# /// script\n# odd\n# ///\nprint('runs')", "MCPError: the code did not run: line 2: it is odd"},
		{"# /// script\n# ///\nprint('runs')", "asks for packages that are not installed (absent>=1): packages cannot be installed here"},
	} {
		r := b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: tt.code}})
		if stderr := strings.Join(r.Stderr, "\n"); !strings.Contains(stderr, tt.want) || len(r.Stdout) != 0 || asked != tt.code {
			t.Errorf("got %s, %q, %q, asked about %q, want %q", r.Status, r.Stdout, stderr, asked, tt.want)
		}
	}
}
