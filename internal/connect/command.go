package connect

import (
	"cmp"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// Running is this program, and what decides how others start it.
type Running struct {
	Executable string
	OS         string // as in runtime.GOOS
	Home       string
	Env        definitions.Environment
	Temporary  []string // folders for temporary files
}

// TemporaryFolders returns the folders of this system.
func TemporaryFolders() []string {
	return []string{os.TempDir(), "/tmp", "/var/tmp", "/dev/shm", "/private/tmp", "/private/var/folders"}
}

// Command is how a client starts Sallyport.
type Command struct {
	Path string
	// OnPath means that the name alone leads to the program, too.
	OnPath bool
	// Vanishes says why the program will not last where it is; empty: nothing is
	// known.
	Vanishes string
	// Launcher fetches the program each time that it is started, because it is in
	// the launcher's cache; nil: there is none.
	Launcher *Launcher
	// Cached means that Path is in a cache, and must not be written down.
	Cached bool
}

// Start is what an entry starts.
type Start struct {
	Command string
	Args    []string
	// launcher is how many of the arguments are a launcher's.
	launcher int
	by       string // the launcher's name
}

// String returns the command line.
func (s Start) String() string { return strings.Join(append([]string{s.Command}, s.Args...), " ") }

// with returns the same program with other arguments of its own.
func (s Start) with(own []string) Start {
	s.Args = append(slices.Clone(s.Args[:s.launcher]), own...)
	return s
}

// Start returns how a client of this user starts the program.
func (c Command) Start() Start {
	if c.Launcher != nil {
		return c.Launcher.Start
	}
	return Start{Command: c.Path, Args: []string{"serve"}}
}

// Shared returns how everyone who works in a folder starts the program: by its
// name, or with the launcher that started it here, but never by a path of this
// machine.
func (c Command) Shared() Start {
	if c.Launcher != nil {
		return c.Launcher.shared
	}
	return Start{Command: Name, Args: []string{"serve"}}
}

// Again returns how a person runs the program from here again.
func (c Command) Again() string {
	switch {
	case c.Launcher != nil:
		s := c.Launcher.shared
		return strings.TrimSuffix(s.String(), " serve")
	case c.OnPath:
		return Name
	}
	return c.Path
}

// lookUp returns a variable's value.
func (r Running) lookUp(name string) string {
	if r.Env == nil {
		return ""
	}
	value, _ := r.Env(name)
	return value
}

// Find returns how to start the program: by the first name in the search path, or
// in a folder where package managers put names, that leads to it and lasts,
// without following its links, because an upgrade replaces what they point to.
// If the program is in the cache of a launcher, the launcher starts it.
func (r Running) Find() Command {
	ours, err := os.Stat(r.Executable)
	if err != nil {
		return Command{Path: r.Executable, Vanishes: "it cannot be found any more"}
	}
	real := r.Executable
	if path, err := filepath.EvalSymlinks(real); err == nil {
		real = path
	}
	why, launcher, cache := vanishes(real, r.Temporary)
	name := Name
	if strings.EqualFold(filepath.Ext(r.Executable), ".exe") {
		name += ".exe"
	}
	var found []string
	searched := filepath.SplitList(r.lookUp("PATH"))
	for _, dir := range append(slices.Clone(searched), r.shims(real)...) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err != nil || !filepath.IsAbs(dir) || slices.Contains(found, path) {
			continue
		} else if os.SameFile(ours, info) || !cache && starts(path, real) {
			found = append(found, path)
		}
	}
	// A name in a folder of programs rather than the program's own folder.
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(inEnvironment(a), inEnvironment(b)) })
	for _, path := range found {
		if lasts(path, r.Temporary) {
			return Command{Path: path, OnPath: slices.Contains(searched, filepath.Dir(path))}
		}
	}
	if launcher == "" && why != "" && (r.lookUp("npm_command") == "exec" || r.lookUp("npm_command") == "dlx") && strings.Contains(filepath.ToSlash(real), "/node_modules/") {
		launcher = r.nodeLauncher()
	}
	c := Command{Path: r.Executable, Vanishes: cmp.Or(why, r.linked()), Cached: cache}
	if len(found) > 0 {
		c.Path, c.OnPath = found[0], slices.Contains(searched, filepath.Dir(found[0]))
	}
	if launcher != "" {
		c.Launcher = r.launcher(launcher, real)
	}
	return c
}

// linked returns why the name that the program was started by will not last.
func (r Running) linked() string {
	why, _, _ := vanishes(r.Executable, r.Temporary)
	return why
}

// inEnvironment is 1 for a path in an environment that uv or pipx made for the
// program alone, and 0 for others.
func inEnvironment(path string) int {
	slashed := filepath.ToSlash(path)
	if strings.Contains(slashed, "/uv/tools/") || strings.Contains(slashed, "/pipx/venvs/") {
		return 1
	}
	return 0
}

// shims returns folders in which package managers put the names of programs.
func (r Running) shims(real string) (out []string) {
	for _, name := range []string{"UV_TOOL_BIN_DIR", "PIPX_BIN_DIR", "XDG_BIN_HOME"} {
		out = append(out, r.lookUp(name))
	}
	if prefix, _, ok := strings.Cut(filepath.ToSlash(real), "/Cellar/"); ok {
		out = append(out, filepath.Join(filepath.FromSlash(prefix), "bin"))
	}
	if r.Home != "" {
		out = append(out, filepath.Join(r.Home, ".local", "bin"))
	}
	if strings.HasPrefix(filepath.ToSlash(real), "/nix/store/") {
		if r.Home != "" {
			out = append(out, filepath.Join(r.Home, ".nix-profile", "bin"))
		}
		out = append(out, "/etc/profiles/per-user/"+cmp.Or(r.lookUp("USER"), "-")+"/bin", "/run/current-system/sw/bin", "/nix/var/nix/profiles/default/bin")
	}
	return out
}

// starts reports whether a name is a script or a manager's link that starts the
// program with the path real.
func starts(path, real string) bool {
	slashed := filepath.ToSlash(real)
	manager := filepath.ToSlash(filepath.Dir(path))
	if strings.HasSuffix(manager, "/mise/shims") && strings.Contains(slashed, "/mise/installs/") ||
		strings.HasSuffix(manager, "/.asdf/shims") && strings.Contains(slashed, "/.asdf/installs/") {
		return true
	}
	// pnpm's scripts say which package they start.
	const global = "/pnpm/global/"
	at := strings.Index(slashed, global)
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 16<<10))
	return err == nil && at >= 0 && strings.Contains(slashed, "/.pnpm/") && strings.HasPrefix(string(text), "#!") &&
		strings.Contains(string(text), "/node_modules/"+Name+"/")
}

// program returns the path of a program in the search path; empty: it is not
// there.
func (r Running) program(name string) string {
	for _, dir := range filepath.SplitList(r.lookUp("PATH")) {
		if path := filepath.Join(dir, name); filepath.IsAbs(dir) {
			if found, err := exec.LookPath(path); err == nil && lasts(found, r.Temporary) {
				return path
			}
		}
	}
	return ""
}
