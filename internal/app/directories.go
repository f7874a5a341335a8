package app

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/sallyport/sallyport/internal/private"
)

// Directory is a directory of the program's own files.
type Directory struct {
	Name    string `json:"name"` // runtime, cache, state
	Path    string `json:"path,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Warning says what does not work without it, where code still runs.
	Warning string `json:"warning,omitempty"`

	err error
}

// Directories returns the program's directories. It does not create a state
// directory.
func (a *App) Directories() []Directory {
	var out []Directory
	add := func(name, path string, err error) {
		d := Directory{Name: name, Path: path, err: err}
		if err != nil {
			d.Problem = err.Error()
		}
		out = append(out, d)
	}
	path, err := a.Env.runtimeDir()
	add("runtime", path, err)
	path, err = a.Env.cacheDir()
	add("cache", path, err)
	if path = a.Settings.StateDir; path != "" {
		root, err := private.Existing(path)
		switch {
		case err == nil:
			err = errors.Join(root.Close(), a.State().CheckVersion())
		case errors.Is(err, fs.ErrNotExist):
			err = nil
		default:
			err = fmt.Errorf("the state directory: %w", err)
		}
		add("state", path, err)
	}
	return out
}

// CheckDirectories returns the first problem of the directories.
func (a *App) CheckDirectories() error {
	for _, d := range a.Directories() {
		if d.err != nil {
			return d.err
		}
	}
	return nil
}

// unkept is what does not outlive the program without a state directory.
const unkept = "named sessions, images, memory and accounts are not kept"

// lacking says, by the name of a directory, what does not work where it cannot be written,
// and what to do.
var lacking = map[string]string{
	"runtime": "clients share no hub, commands do not find this program, and only the engine wasm runs code; make it writable, or name another with XDG_RUNTIME_DIR",
	"cache":   "each start of the program compiles and unpacks again what it needs; make it writable, or name another with XDG_CACHE_HOME",
	"state":   unkept + "; make it writable, or name another with the setting stateDir",
}

// try tries to write into the directory. That it cannot be written is no reason not to run
// code: the engine wasm needs no directory.
func (d *Directory) try() {
	if d.err != nil {
		return
	}
	if err := usable(d.Path); err != nil {
		d.Warning = fmt.Sprintf("the %s directory %s cannot be written: %v: %s", d.Name, d.Path, err, lacking[d.Name])
	}
}

// TryDirectories returns Directories and tries to write into each. Code runs only
// if ok.
func (a *App) TryDirectories() (dirs []Directory, ok bool) {
	dirs, ok = a.Directories(), true
	for i := range dirs {
		dirs[i].try()
		ok = ok && dirs[i].err == nil
	}
	if a.Settings.StateDir == "" {
		dirs = append(dirs, Directory{Name: "state", Warning: "there is no state directory: " + unkept + "; set the setting stateDir, XDG_STATE_HOME, or HOME to a directory that exists"})
	}
	return dirs, ok
}
