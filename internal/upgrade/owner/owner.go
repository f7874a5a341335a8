// Package owner finds out what installed an executable: a package manager, which
// alone should replace it, or a person.
package owner

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// An Owner is what installed an executable.
type Owner struct {
	Name    string // one of the names below
	Upgrade string // the command that upgrades it; empty: no package manager
}

// Executables that no package manager owns.
const (
	Archive = "archive" // a release, unpacked by a person
	Source  = "source"  // built on this machine
)

// module is where `go install` finds the program.
const module = "github.com/sallyport/sallyport/cmd/sallyport"

// rules recognize managers by the path of an executable, with forward slashes.
var rules = []struct {
	path    func() *regexp.Regexp
	name    string
	upgrade string
}{
	{lazyregexp.New(`^/nix/store/`), "nix", "nix profile upgrade sallyport"},
	{lazyregexp.New(`/Cellar/sallyport/`), "homebrew", "brew upgrade sallyport"},
	{lazyregexp.New(`/_npx/[^/]+/node_modules/`), "npx", "npx -y sallyport@latest"},
	{lazyregexp.New(`/pnpm/dlx/|/dlx-\d+/\.pnpm/`), "pnpm dlx", "pnpm dlx sallyport@latest"},
	{lazyregexp.New(`/\.?bunx-\d+[-/]`), "bunx", "bunx sallyport@latest"},
	{lazyregexp.New(`/node_modules/`), "npm", "npm install -g sallyport@latest"},
	{lazyregexp.New(`/uv/tools/sallyport/`), "uv", "uv tool upgrade sallyport"},
	{lazyregexp.New(`/(archive|environments)-v\d+/[^/]+/(bin|Scripts)/`), "uvx", "uvx sallyport@latest"},
	{lazyregexp.New(`/pipx/(\.cache/)?[0-9a-f]{12,}/`), "pipx run", "pipx run --no-cache sallyport"},
	{lazyregexp.New(`/pipx/venvs/sallyport/`), "pipx", "pipx upgrade sallyport"},
	{lazyregexp.New(`(?i)/scoop/apps/sallyport/`), "scoop", "scoop update sallyport"},
	{lazyregexp.New(`(?i)/microsoft/winget/packages/`), "winget", "winget upgrade Sallyport.Sallyport"},
}

// A database is a package manager of the system that knows the owner of a file.
type database struct {
	name    string
	query   []string // the command; the path follows
	upgrade string
}

const fromReleases = ", with the package from https://github.com/sallyport/sallyport/releases"

var databases = []database{
	{"deb", []string{"dpkg-query", "--search"}, "sudo apt install ./sallyport_*.deb" + fromReleases},
	{"rpm", []string{"rpm", "--query", "--file"}, "sudo dnf install ./sallyport-*.rpm" + fromReleases},
	{"apk", []string{"apk", "info", "--who-owns"}, "sudo apk add --allow-untrusted ./sallyport_*.apk" + fromReleases},
	{"pacman", []string{"pacman", "--query", "--owns"}, "sudo pacman -Syu sallyport"},
}

// A System is where to look. The zero value sees no package database.
type System struct {
	Path []string // the directories of the package managers: root's alone
	Home string   // packages of the system have no files below it
}

// Here is this machine. The user's PATH does not count: what it names would
// run.
func Here(home string) System {
	return System{Path: []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin"}, Home: home}
}

// Of returns the owner of the executable at path, which has no symbolic links.
// info is its build information, and released reports whether it is a release's.
func (s System) Of(ctx context.Context, path string, info *debug.BuildInfo, released bool) Owner {
	slashed := filepath.ToSlash(path)
	for _, r := range rules {
		if r.path().MatchString(slashed) {
			return Owner{r.name, r.upgrade}
		}
	}
	if python, ok := wheel(path); ok {
		return Owner{"pip", python + " -m pip install --upgrade sallyport"}
	}
	// Only modules from a proxy have a checksum.
	if info.Main.Sum != "" {
		return Owner{"go install", "go install " + module + "@latest"}
	}
	if s.Home == "" || !strings.HasPrefix(path, filepath.Clean(s.Home)+string(filepath.Separator)) {
		for _, d := range databases {
			if s.owns(ctx, d, path) {
				return Owner{d.name, d.upgrade}
			}
		}
	}
	if released {
		return Owner{Name: Archive}
	}
	return Owner{Name: Source}
}

// owns asks a package manager whether it knows a file.
func (s System) owns(ctx context.Context, d database, path string) bool {
	const wait = 20 * time.Second
	for _, dir := range s.Path {
		program := filepath.Join(dir, d.query[0])
		if _, err := os.Stat(program); err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, append(slices.Clone(d.query[1:]), path)...)
		cmd.Env = []string{"PATH=" + strings.Join(s.Path, ":"), "LC_ALL=C"}
		cmd.WaitDelay = time.Second
		return cmd.Run() == nil
	}
	return false
}

// wheel reports whether pip installed the executable, as part of a package for
// Python, and with which interpreter.
func wheel(path string) (python string, ok bool) {
	scripts := filepath.Dir(path)
	prefix := filepath.Dir(scripts)
	var records []string
	for _, pattern := range []string{"lib/python3*/site-packages", "lib/python3*/dist-packages", "local/lib/python3*/dist-packages", "Lib/site-packages"} {
		found, _ := fs.Glob(os.DirFS(prefix), pattern+"/sallyport-*.dist-info/RECORD")
		records = append(records, found...)
	}
	name := "/" + filepath.Base(scripts) + "/" + filepath.Base(path) + ","
	for _, record := range records {
		list, err := os.ReadFile(filepath.Join(prefix, record))
		if err != nil || !bytes.Contains(list, []byte(name)) {
			continue
		}
		for _, name := range []string{"python3", "python", "python.exe"} {
			python = filepath.Join(scripts, name)
			if _, err := os.Stat(python); err == nil {
				return python, true
			}
		}
		return "python3", true
	}
	return "", false
}
