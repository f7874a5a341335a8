package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sallyport/internal/private"
)

// environment is the process's environment, read once.
type environment map[string]string

func newEnvironment(environ []string) environment {
	env := environment{}
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	return env
}

// home is the user's home directory, or "" where there is none.
func (e environment) home() string {
	if h := e["HOME"]; h != "" {
		return h
	}
	return e["USERPROFILE"]
}

// absolute returns the variable's value if it is an absolute path: the XDG
// specification says that others are to be ignored.
func (e environment) absolute(name string) string {
	if v := e[name]; filepath.IsAbs(v) {
		return v
	}
	return ""
}

// runtimeDir is for what lives as long as the login session or the machine's
// uptime: sockets, locks, records of live sandboxes. The error is a
// *private.Rejected where other users have a hand in it: another directory is
// not taken in its place.
func (e environment) runtimeDir() (string, error) {
	dir, err := firstUsable(e.runtimeDirs())
	if err != nil {
		return "", fmt.Errorf("the runtime directory: %w", err)
	}
	return dir, nil
}

// runtimeDirs are the directories that may be it: of this process, and of one
// that a client has started with fewer variables.
func (e environment) runtimeDirs() []string {
	var dirs []string
	if d := e.absolute("XDG_RUNTIME_DIR"); d != "" {
		dirs = append(dirs, filepath.Join(d, "sallyport"))
	}
	if os.Geteuid() == 0 {
		dirs = append(dirs, "/run/sallyport")
	}
	name := "sallyport-" + strconv.Itoa(os.Geteuid())
	return append(dirs, filepath.Join(os.TempDir(), name), filepath.Join("/tmp", name))
}

// cacheDir is for what can be made again. Its error is as of runtimeDir.
func (e environment) cacheDir() (string, error) {
	var dirs []string
	if d := e.absolute("XDG_CACHE_HOME"); d != "" {
		dirs = append(dirs, filepath.Join(d, "sallyport"))
	}
	if h := e.home(); filepath.IsAbs(h) {
		// A home that is not there is not ours to make.
		if _, err := os.Stat(h); err == nil {
			dirs = append(dirs, filepath.Join(h, ".cache", "sallyport"))
		}
	}
	if len(dirs) > 0 {
		dir, err := firstUsable(dirs)
		if err != nil {
			return "", fmt.Errorf("the cache directory: %w", err)
		}
		if usable(dir) == nil {
			return dir, nil
		}
	}
	runtime, err := e.runtimeDir()
	return filepath.Join(runtime, "cache"), err
}

// firstUsable returns the first directory that is there, or can be made, and
// that the user can write to: a daemon's HOME may not exist, a container's may
// be read-only. Where none is, it returns the first, whose error is the one to
// read. A directory in which other users have a hand ends the search.
func firstUsable(dirs []string) (string, error) {
	for _, d := range dirs {
		err := usable(d)
		if err == nil {
			return d, nil
		}
		var rejected *private.Rejected
		if errors.As(err, &rejected) {
			return "", err
		}
	}
	return dirs[0], nil
}

// usable says why a directory cannot be used.
func usable(dir string) error {
	root, err := private.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	probe := ".probe-" + rand.Text()
	f, err := root.OpenFile(probe, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), root.Remove(probe))
}

// A directory is one that the program keeps its own files in.
type directory struct {
	Name    string `json:"name"` // runtime, cache, state
	Path    string `json:"path,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Warning says what does not work without it, where code still runs.
	Warning string `json:"warning,omitempty"`

	err error
}

// directories are those of the settings in force. A state directory that is not
// there yet is not made.
func (a *app) directories() []directory {
	var out []directory
	add := func(name, path string, err error) {
		d := directory{Name: name, Path: path, err: err}
		if err != nil {
			d.Problem = err.Error()
		}
		out = append(out, d)
	}
	path, err := a.env.runtimeDir()
	add("runtime", path, err)
	path, err = a.env.cacheDir()
	add("cache", path, err)
	if path = a.settings.StateDir; path != "" {
		root, err := private.Existing(path)
		switch {
		case err == nil:
			err = root.Close()
		case errors.Is(err, fs.ErrNotExist):
			err = nil
		default:
			err = fmt.Errorf("the state directory: %w", err)
		}
		add("state", path, err)
	}
	return out
}

// checkDirectories is the first problem of the directories.
func (a *app) checkDirectories() error {
	for _, d := range a.directories() {
		if d.err != nil {
			return d.err
		}
	}
	return nil
}

// tryDirectories writes into each of the directories, too. Code runs only if ok.
func (a *app) tryDirectories() (dirs []directory, ok bool) {
	dirs, ok = a.directories(), true
	const unkept = "named sessions, images, memory and accounts are not kept"
	for i := range dirs {
		d := &dirs[i]
		if d.err == nil {
			err := usable(d.Path)
			switch {
			case err == nil:
			case d.Name == "state":
				d.Warning = fmt.Sprintf("the state directory %s cannot be written: %v: %s; make it writable, or name another with the setting stateDir", d.Path, err, unkept)
			default:
				d.err = err
				d.Problem = fmt.Sprintf("the %s directory %s cannot be written: %v", d.Name, d.Path, err)
			}
		}
		ok = ok && d.err == nil
	}
	if a.settings.StateDir == "" {
		dirs = append(dirs, directory{Name: "state", Warning: "there is no state directory: " + unkept + "; set HOME, XDG_STATE_HOME or the setting stateDir"})
	}
	return dirs, ok
}

// userBus is the address of the user's D-Bus.
func (e environment) userBus() string {
	if a := e["DBUS_SESSION_BUS_ADDRESS"]; a != "" {
		return a
	}
	if d := e.absolute("XDG_RUNTIME_DIR"); d != "" {
		if _, err := os.Stat(filepath.Join(d, "bus")); err == nil {
			return "unix:path=" + filepath.Join(d, "bus")
		}
	}
	return ""
}

// list is the environment in the form of os.Environ.
func (e environment) list() []string {
	var out []string
	for k, v := range e {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}
