package app

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/internal/private"
)

// Environment is the process's environment, read once.
type Environment map[string]string

func NewEnvironment(environ []string) Environment {
	env := Environment{}
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	return env
}

// Home returns the user's home directory, or "" where there is none.
func (e Environment) Home() string {
	if h := e["HOME"]; h != "" {
		return h
	}
	return e["USERPROFILE"]
}

// absolute returns the variable's value if it is an absolute path: the XDG
// specification says to ignore others.
func (e Environment) absolute(name string) string {
	if v := e[name]; filepath.IsAbs(v) {
		return v
	}
	return ""
}

// runtimeDir returns the directory for what lives as long as the login session
// or the machine's uptime: sockets, locks, records of live sandboxes. The error is
// a *private.Rejected where other users could write to it: no other directory
// takes its place.
func (e Environment) runtimeDir() (string, error) {
	dir, err := firstUsable(e.runtimeDirs())
	if err != nil {
		return "", fmt.Errorf("the runtime directory: %w", err)
	}
	return dir, nil
}

// runtimeDirs returns the candidates for the runtime directory, of this process
// and of one that a client started with fewer variables.
func (e Environment) runtimeDirs() []string {
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

// cacheDir returns the directory for what can be made again. Its errors are those
// of runtimeDir.
func (e Environment) cacheDir() (string, error) {
	if dirs := e.userCaches(); len(dirs) > 0 {
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

// userCaches returns the candidates for the cache directory that outlive the runtime
// directory.
func (e Environment) userCaches() (dirs []string) {
	if d := e.absolute("XDG_CACHE_HOME"); d != "" {
		dirs = append(dirs, filepath.Join(d, "sallyport"))
	}
	if h := e.Home(); filepath.IsAbs(h) {
		// A home that is not there is not ours to make.
		if _, err := os.Stat(h); err == nil {
			dirs = append(dirs, filepath.Join(h, ".cache", "sallyport"))
		}
	}
	return dirs
}

// firstUsable returns the first directory that exists or can be made, and that
// the user can write to: a daemon's HOME may not exist, a container's may be
// read-only. If there is none, it returns the first, whose error is the one to
// report. A directory that other users could write to ends the search.
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

// usable returns why a directory cannot be used.
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

// userBus returns the address of the user's D-Bus.
func (e Environment) userBus() string {
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

// Lookup looks a variable up.
func (e Environment) Lookup(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

// List returns the environment in the form of os.Environ.
func (e Environment) List() []string {
	var out []string
	for k, v := range e {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}
