package folder

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		arg    string
		volume int
		want   sandbox.Mount
		err    string
	}{
		{arg: "data", want: sandbox.Mount{Source: "data"}},
		{arg: "~/my data", want: sandbox.Mount{Source: "~/my data"}},
		{arg: "/a/b:/mnt/x", want: sandbox.Mount{Source: "/a/b", Target: "/mnt/x"}},
		{arg: "/a:/mnt/x:rw", want: sandbox.Mount{Source: "/a", Target: "/mnt/x", Mode: "rw"}},
		{arg: "/a:copy", want: sandbox.Mount{Source: "/a", Mode: "copy"}},
		{arg: "/a::ro", want: sandbox.Mount{Source: "/a", Mode: "ro"}},
		{arg: `C:\data`, volume: 2, want: sandbox.Mount{Source: `C:\data`}},
		{arg: `C:\data:/mnt/x:copy`, volume: 2, want: sandbox.Mount{Source: `C:\data`, Target: "/mnt/x", Mode: "copy"}},
		{arg: `\\host\share\d:ro`, volume: 12, want: sandbox.Mount{Source: `\\host\share\d`, Mode: "ro"}},
		{arg: "", err: "no folder is named"},
		{arg: ":/mnt/x", err: "no folder is named"},
		{arg: "/a:b", err: `"b" is neither a place in the sandbox such as /mnt/data nor a mode (ro, copy, rw). Mount a folder with a colon`},
		{arg: "/a:RW", err: `"RW" is neither a place in the sandbox`},
		{arg: "/a:/mnt/x:read", err: `"read" is not a mode`},
		{arg: "/a:/mnt/x:", err: `"" is not a mode`},
		{arg: "/a:rw:/mnt/x", err: `nothing can follow the mode "rw"`},
		{arg: "/a:/mnt/x:rw:x", err: `nothing can follow the mode "rw"`},
	} {
		got, err := parse(tt.arg, tt.volume)
		switch {
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("parse(%q) = %v, %v, want an error with %q", tt.arg, got, err, tt.err)
		case tt.err == "" && (err != nil || got != tt.want):
			t.Errorf("parse(%q) = %+v, %v, want %+v", tt.arg, got, err, tt.want)
		}
	}
}

// tree makes a home directory and what is around it, and returns rules for it.
func tree(t testing.TB) (dir string, rules Rules) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "users", "me")
	for _, d := range []string{
		"data", "work/.ssh/keys", "work/project", "backup/.gnupg", "state/sallyport/sessions", "elsewhere/secrets/deep", "users/you/docs",
		"users/me/.ssh", "users/me/.local/share/keyrings", "users/me/.local/share/datasets", "users/me/.local/state/app", "users/me/.cache/huggingface/hub",
		"users/me/.newtool/tokens", "users/me/projects/shop/.aws/deep", "users/me/projects/docs", "users/me/Library/Keychains", "users/me/snap/firefox", "users/me/.docker",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.FromSlash(d)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"users/me/data": "data", "users/me/keys": "users/me/.ssh", "users/me/.gnupg": "elsewhere/secrets", "users/me/system": "/etc",
		"users/me/loop": "users/me/loop", "users/me/lost": "nowhere", "users/mine": "users/me",
	} {
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Skip("symbolic links cannot be made here:", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "users/me/.cache/huggingface/token"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "a.csv"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, Rules{Home: home, Own: []string{"", "relative", filepath.Join(dir, "state", "sallyport"), filepath.Join(dir, "users/me/not/there/yet")}}
}

func TestResolve(t *testing.T) {
	dir, rules := tree(t)
	t.Chdir(filepath.Join(dir, "users/me/projects"))
	socket := filepath.Join(dir, "data", "s")
	if l, err := net.Listen("unix", socket); err == nil {
		defer l.Close()
	}
	const (
		home    = "is or contains your home directory"
		private = "a hidden folder of your home directory"
		own     = "which programs keep their own files and secrets in"
		keys    = "holds keys"
		system  = "a directory of the system"
	)
	at := func(p string) string { return filepath.Join(dir, filepath.FromSlash(p)) }
	for _, tt := range []struct {
		name, source string
		want         string // the source, or a part of the error
		target       string
	}{
		{"folder", at("data"), at("data"), "/mnt/data"},
		{"relative", "docs", at("users/me/projects/docs"), "/mnt/docs"},
		{"working directory", ".", at("users/me/projects"), "/mnt/projects"},
		{"home", "~/projects/docs", at("users/me/projects/docs"), "/mnt/docs"},
		{"link keeps its name", "~/data", at("data"), "/mnt/data"},
		{"unclean", at("work") + "/../data/", at("data"), "/mnt/data"},
		{"another user's documents", at("users/you/docs"), at("users/you/docs"), "/mnt/docs"},
		{"downloaded data", "~/.cache/huggingface/hub", at("users/me/.cache/huggingface/hub"), "/mnt/hub"},
		{"shared data", "~/.local/share/datasets", at("users/me/.local/share/datasets"), "/mnt/datasets"},

		{"empty", "", "the path is empty", ""},
		{"NUL", "a\x00b", "cannot be shown", ""},
		{"newline", "a\nb", "cannot be shown", ""},
		{"direction", "a\u202eb", "cannot be shown", ""},
		{"long", strings.Repeat("a", 5000), "longer than 4096", ""},
		{"below a file", at("data/a.csv/x"), "cannot be opened", ""},
		{"missing", at("nothing"), "there is no such folder", ""},
		{"dangling", "~/lost", "there is no such folder", ""},
		{"loop", "~/loop", "cannot be opened", ""},
		{"file", at("data/a.csv"), "'sallyport run --file'", ""},
		{"socket", socket, "it is a socket", ""},
		{"device", "/dev/null", "it is a device", ""},

		{"root", "/", "the whole file system", ""},
		{"home itself", "~", home, ""},
		{"home with a slash", "~/", home, ""},
		{"home by a link", at("users/mine"), home, ""},
		{"above home", at("users"), home, ""},
		{"far above home", dir, home, ""},
		{"keys", "~/.ssh", private, ""},
		{"keys by a link", "~/keys", private, ""},
		{"keys through the other home", at("users/mine/.ssh"), private, ""},
		{"keys elsewhere", at("elsewhere/secrets"), private, ""},
		{"below keys elsewhere", at("elsewhere/secrets/deep"), private, ""},
		{"above keys elsewhere", at("elsewhere"), private, ""},
		{"keyring", "~/.local/share/keyrings", private, ""},
		{"above a keyring", "~/.local/share", private, ""},
		{"far above a keyring", "~/.local", private, ""},
		{"state of programs", "~/.local/state/app", private, ""},
		{"all caches", "~/.cache", private, ""},
		{"token", "~/.cache/huggingface", private, ""},
		{"unknown hidden folder", "~/.newtool/tokens", private, ""},
		{"docker", "~/.docker", private, ""},
		{"macOS", "~/Library/Keychains", private, ""},
		{"browsers", "~/snap/firefox", private, ""},
		{"keys of a project", "~/projects/shop/.aws", keys, ""},
		{"below keys of a project", at("work/.ssh/keys"), keys, ""},
		{"copy of a home", at("backup"), "as a home directory has", ""},
		{"holds keys", at("work"), "as a home directory has", ""},
		{"state", at("state/sallyport"), own, ""},
		{"below the state", at("state/sallyport/sessions"), own, ""},
		{"above the state", at("state"), own, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := rules.Resolve(sandbox.Mount{Source: tt.source})
			want := sandbox.Mount{Source: tt.want, Target: tt.target, Mode: sandbox.ReadOnly}
			if tt.target == "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Resolve(%q) = %+v, %v, want an error with %q", tt.source, got, err, tt.want)
				}
			} else if err != nil || got != want {
				t.Errorf("Resolve(%q) = %+v, %v, want %+v", tt.source, got, err, want)
			}
		})
	}
	if runtime.GOOS == "windows" {
		return
	}
	for _, p := range []string{"/proc", "/proc/self/cwd", "/dev", "/etc", "/usr/lib", "/var", "/bin", "~/system", "/tmp", "/home"} {
		if _, err := os.Stat(p); err != nil && p[0] == '/' {
			continue
		}
		if p == "/proc/self/cwd" { // leads to a folder that may be mounted
			continue
		}
		got, err := rules.Resolve(sandbox.Mount{Source: p})
		if err == nil || !strings.Contains(err.Error(), system) && !strings.Contains(err.Error(), "all users share it") && !strings.Contains(err.Error(), home) && !strings.Contains(err.Error(), own) {
			t.Errorf("Resolve(%q) = %+v, %v, want it refused", p, got, err)
		}
	}
}

// TestResolveCase: where case does not matter to the file system, neither does it here.
func TestResolveCase(t *testing.T) {
	dir, rules := tree(t)
	odd := filepath.Join(dir, "users", "me", ".SSH")
	if err := os.MkdirAll(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	project := filepath.Join(dir, "data", ".Aws")
	if err := os.MkdirAll(project, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{odd, project} {
		if got, err := rules.Resolve(sandbox.Mount{Source: p}); err == nil {
			t.Errorf("Resolve(%q) = %+v, want an error", p, got)
		}
	}
}

func TestResolveFixed(t *testing.T) {
	dir, rules := tree(t)
	rules.Fixed = []string{"", filepath.Join(dir, "users", "me", "data", "a.csv")} // by a link
	for mode, ok := range map[sandbox.MountMode]bool{sandbox.ReadOnly: true, sandbox.Copy: true, sandbox.ReadWrite: false} {
		got, err := rules.Resolve(sandbox.Mount{Source: filepath.Join(dir, "data"), Mode: mode})
		if (err == nil) != ok {
			t.Errorf("Resolve of a folder with a fixed file as %s = %+v, %v, want it allowed: %v", mode, got, err, ok)
		}
	}
}

func TestResolveTarget(t *testing.T) {
	dir, rules := tree(t)
	source := filepath.Join(dir, "data")
	for target, want := range map[string]string{
		"/mnt/x": "", "/data/in": "", "/mnt/../etc": "clean", "/etc": "belongs to the sandbox", "relative": "clean", "/mnt/a\nb": "cannot be shown",
	} {
		got, err := rules.Resolve(sandbox.Mount{Source: source, Target: target, Mode: sandbox.Copy})
		switch {
		case want == "" && (err != nil || got != sandbox.Mount{Source: source, Target: target, Mode: sandbox.Copy}):
			t.Errorf("Resolve with place %q = %+v, %v", target, got, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("Resolve with place %q = %+v, %v, want an error with %q", target, got, err, want)
		}
	}
}

// TestResolveHomes: root's home is a system directory for others, and HOME says little.
func TestResolveHomes(t *testing.T) {
	for _, home := range []string{"/root", "/", "/etc", "", "relative"} {
		rules := Rules{Home: home, Account: "/srv/me"}
		for p, refused := range map[string]bool{
			"/root/data": home != "/root", "/root/.ssh": true, "/etc/ssh": true, "/run/media/me/disk": false, "/run/user/0": true,
			"/srv/data": false, "/srv": true, "/srv/me": true, "/srv/me/.config/app": true, "/srv/me/docs": false,
			"/home/you/.config": true, "/home/you/.mozilla/x": true, "/Users/you/Library/x": true, "/home/you/docs": false, "/home/you": false,
		} {
			if why := rules.refused(p); (why != "") != refused {
				t.Errorf("with home %q, %s: %q, want refused: %v", home, p, why, refused)
			}
		}
	}
}

// TestResolveOpen: code that can change a folder cannot choose, by a link in it, what
// another session sees.
func TestResolveOpen(t *testing.T) {
	dir, rules := tree(t)
	at := func(p string) string { return filepath.Join(dir, filepath.FromSlash(p)) }
	rules.Open = []string{"relative", at("users/mine/projects")} // by a link of the user
	for link, to := range map[string]string{
		"users/me/projects/shop/planted": at("users/you"), "users/me/projects/up": "../../you", "users/me/into": "projects/up/docs", "users/me/projects/within": "docs",
	} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for p, link := range map[string]string{
		"users/me/projects/docs": "", "users/mine/projects": "", "users/mine/projects/docs": "", "users/me/data": "",
		"users/me/projects/shop/planted": "shop/planted", "users/me/projects/shop/planted/docs": "shop/planted", "users/mine/projects/up": "projects/up",
		"users/me/into": "projects/up", "users/me/projects/within": "projects/within",
	} {
		got, err := rules.Resolve(sandbox.Mount{Source: at(p)})
		if want := filepath.FromSlash(link) + `" is a link, and code can change`; link == "" && err != nil || link != "" && (err == nil || !strings.Contains(filepath.ToSlash(err.Error()), filepath.ToSlash(want))) {
			t.Errorf("Resolve(%q) = %+v, %v, want the link %q refused", p, got, err, link)
		}
	}
}

func FuzzResolve(f *testing.F) {
	dir, rules := tree(f)
	for _, s := range []string{"~/.ssh", "~/projects:/mnt/x:rw", "../x", "/", "~/data/../.ssh:copy", dir + "/data", dir + "/users/mine/keys", "~/projects/../..", "a:b:c:d", "\x00"} {
		f.Add(s)
	}
	var guarded []os.FileInfo
	for _, p := range []string{"", "users", "users/me", "users/me/.ssh", "elsewhere/secrets", "state/sallyport", "users/me/.local/share/keyrings"} {
		info, err := os.Stat(filepath.Join(dir, p))
		if err != nil {
			f.Fatal(err)
		}
		guarded = append(guarded, info)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		m, err := Parse(arg)
		if err != nil {
			return
		}
		if again, err := Parse(Format(m)); err != nil || again != m {
			t.Fatalf("Parse(%q) = %+v, and as text %q it is %+v, %v", arg, m, Format(m), again, err)
		}
		got, err := rules.Resolve(m)
		if err != nil {
			return
		}
		if err := sandbox.CheckMounts([]sandbox.Mount{got}); err != nil {
			t.Fatalf("Resolve(%+v) = %+v, which is wrong: %v", m, got, err)
		}
		info, err := os.Lstat(got.Source)
		if err != nil || !info.IsDir() {
			t.Fatalf("Resolve(%+v) = %+v, which is no folder: %v", m, got, err)
		}
		for _, secret := range guarded {
			if os.SameFile(info, secret) {
				t.Fatalf("Resolve(%q) = %+v, which is refused", arg, got)
			}
		}
	})
}
