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

// TryDirectories returns Directories and tries to write into each. Code runs only
// if ok.
func (a *App) TryDirectories() (dirs []Directory, ok bool) {
	dirs, ok = a.Directories(), true
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
	if a.Settings.StateDir == "" {
		dirs = append(dirs, Directory{Name: "state", Warning: "there is no state directory: " + unkept + "; set HOME, XDG_STATE_HOME or the setting stateDir"})
	}
	return dirs, ok
}
