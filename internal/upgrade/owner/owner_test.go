//go:build !windows

package owner

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestByPath(t *testing.T) {
	local := &debug.BuildInfo{}
	fetched := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3", Sum: "h1:x"}}
	for _, tt := range []struct {
		path     string
		info     *debug.BuildInfo
		released bool
		want     string
	}{
		{"/nix/store/abc-sallyport-1.2.3/bin/sallyport", local, true, "nix"},
		{"/home/me/nix/store/sallyport", local, true, Archive},
		{"/opt/homebrew/Cellar/sallyport/1.2.3/bin/sallyport", local, true, "homebrew"},
		{"/usr/lib/node_modules/sallyport/node_modules/@sallyport/linux-x64/bin/sallyport", local, true, "npm"},
		{"/home/me/.npm/_npx/0123abc/node_modules/@sallyport/linux-x64/bin/sallyport", local, true, "npx"},
		{"/home/me/.local/share/uv/tools/sallyport/bin/sallyport", local, true, "uv"},
		{"/home/me/.cache/uv/archive-v0/abc/bin/sallyport", local, true, "uvx"},
		{"/srv/cache/archive-v0/abc/bin/sallyport", local, true, "uvx"},
		{"/home/me/.cache/pipx/98cba25373a9159/bin/sallyport", local, true, "pipx run"},
		{"/home/me/.cache/pnpm/dlx/8a06/mx0m/node_modules/.pnpm/x/node_modules/@sallyport/linux-x64/bin/sallyport", local, true, "pnpm dlx"},
		{"/home/me/.bun/install/cache/.bunx-0/sallyport@latest/node_modules/@sallyport/linux-x64/bin/sallyport", local, true, "bunx"},
		{"/home/me/.local/share/pipx/venvs/sallyport/bin/sallyport", local, true, "pipx"},
		{"C:/Users/me/scoop/apps/sallyport/current/sallyport.exe", local, true, "scoop"},
		{"C:/Users/me/AppData/Local/Microsoft/WinGet/Packages/x/sallyport.exe", local, true, "winget"},
		{"/home/me/go/bin/sallyport", fetched, false, "go install"},
		{"/home/me/bin/sallyport", local, true, Archive},
		{"/home/me/src/sallyport/bin/sallyport", local, false, Source},
	} {
		got := System{}.Of(t.Context(), tt.path, tt.info, tt.released)
		if managed := got.Upgrade != ""; got.Name != tt.want || managed != (tt.want != Archive && tt.want != Source) {
			t.Errorf("%s: got %+v, want %s", tt.path, got, tt.want)
		}
	}
}

// TestPip: a package for Python owns the scripts that its record lists.
func TestPip(t *testing.T) {
	for _, tt := range []struct{ name, record, python, want, command string }{
		{"listed", "sallyport/x.py,,\n../../../bin/sallyport,sha256=abc,5\n", "python3", "pip", "/bin/python3 -m pip install --upgrade sallyport"},
		{"no interpreter", "../../../bin/sallyport,sha256=abc,5\n", "", "pip", "python3 -m pip install --upgrade sallyport"},
		{"not listed", "sallyport/bin/sallyport.py,,\n", "python3", Archive, ""},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "bin", "sallyport")
		write(t, path, "", 0o755)
		write(t, filepath.Join(dir, "lib/python3.13/site-packages/sallyport-1.2.3.dist-info/RECORD"), tt.record, 0o644)
		if tt.python != "" {
			write(t, filepath.Join(dir, "bin", tt.python), "", 0o755)
		}
		want := tt.command
		if tt.python != "" && want != "" {
			want = dir + want
		}
		if got := (System{}).Of(t.Context(), path, &debug.BuildInfo{}, true); got != (Owner{tt.want, want}) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, Owner{tt.want, want})
		}
	}
}

// TestDatabases: the system's package managers are asked about files outside
// the user's home, with the path as their last argument.
func TestDatabases(t *testing.T) {
	for _, d := range databases {
		dir := t.TempDir()
		write(t, filepath.Join(dir, d.query[0]), "#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\n[ \"$1\" = /usr/bin/sallyport ]\n", 0o755)
		s := System{Path: []string{"/nowhere", dir}, Home: "/home/me"}
		for _, tt := range []struct{ path, want string }{
			{"/usr/bin/sallyport", d.name}, {"/usr/local/bin/sallyport", Archive}, {"/home/me/bin/sallyport", Archive},
		} {
			if got := s.Of(t.Context(), tt.path, &debug.BuildInfo{}, true); got.Name != tt.want {
				t.Errorf("%s: %s: got %+v, want %s", d.query[0], tt.path, got, tt.want)
			}
		}
		s.Home = "/usr"
		if got := s.Of(t.Context(), "/usr/bin/sallyport", &debug.BuildInfo{}, true); got.Name != Archive {
			t.Errorf("%s was asked about the user's own file: got %+v", d.query[0], got)
		}
	}
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}
