package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
// uptime: sockets, locks, records of live sandboxes.
func (e environment) runtimeDir() string { return firstUsable(e.runtimeDirs()) }

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

// cacheDir is for what can be made again.
func (e environment) cacheDir() string {
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
	return firstUsable(append(dirs, filepath.Join(e.runtimeDir(), "cache")))
}

// firstUsable returns the first directory that is there, or can be made, that
// is this user's own and that they can write to: a daemon's HOME may not exist, a container's
// may be read-only. Where none is, it returns the first, whose error is the
// one to read.
func firstUsable(dirs []string) string {
	for _, d := range dirs {
		if os.MkdirAll(d, 0o700) != nil || !own(d) {
			continue
		}
		probe, err := os.CreateTemp(d, ".probe-")
		if err != nil {
			continue
		}
		probe.Close()
		if os.Remove(probe.Name()) == nil {
			return d
		}
	}
	return dirs[0]
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
