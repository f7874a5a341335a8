// Package store manages the directory of everything that outlives the program:
// the user's memories, saved tools, the catalog of servers. Several Sallyports
// of one user share it at the same time.
//
// Files are replaced atomically, so that a reader needs no lock and never finds
// half a file, even after a crash. A writer that changes a file depending on
// its content holds a lock meanwhile. Only the user has access (0700, 0600),
// because files may hold what code in a sandbox wrote and what servers
// answered.
package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/sallyport/sallyport/internal/private"
)

// ErrNoPlace reports that there is no state directory.
var ErrNoPlace = errors.New("there is no place to keep it: set stateDir (SALLYPORT_STATE_DIR), XDG_STATE_HOME, or HOME to a directory that exists")

// ErrTooLarge reports that a file is larger than its reader's limit.
var ErrTooLarge = errors.New("file is too large")

// Names of files that do not belong to callers.
const (
	temporary  = ".tmp-"
	lockSuffix = ".lock"
	trySuffix  = ".busy"
)

// abandoned is the age after which the file of an unfinished write is
// considered left by a crash.
const abandoned = time.Hour

// A Dir is a directory of files. It is created by the first write; until then
// it reads as empty. Methods are safe for concurrent use, also by several
// processes. Names are single elements of a path that do not begin with a dot.
type Dir struct{ path string }

// At returns the directory at path. If path is empty, List returns nothing and
// every other method fails with ErrNoPlace.
func At(path string) Dir { return Dir{path} }

// Placed reports whether there is a place for the directory.
func (d Dir) Placed() bool { return d.path != "" }

// Sub returns a subdirectory.
func (d Dir) Sub(name string) Dir {
	if d.path == "" {
		return d
	}
	return Dir{filepath.Join(d.path, name)}
}

// Path returns the path of a file, or of the directory itself for an empty
// name.
func (d Dir) Path(name string) string { return filepath.Join(d.path, name) }

func (d Dir) check(name string) error {
	if d.path == "" {
		return ErrNoPlace
	}
	return checkName(name)
}

func checkName(name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\\\x00") {
		return fmt.Errorf("%q is not a valid file name", name)
	}
	return nil
}

// Read returns a file's content, of at most limit bytes. The error is
// fs.ErrNotExist if it does not exist. Only regular files are read.
func (d Dir) Read(name string, limit int64) ([]byte, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: %w (over %d bytes)", f.Name(), ErrTooLarge, limit)
	}
	return data, nil
}

// OpenRoot opens the directory, and creates it if necessary. The error is a
// *private.Rejected if other users may change it.
func (d Dir) OpenRoot() (*os.Root, error) {
	if d.path == "" {
		return nil, ErrNoPlace
	}
	return private.Open(d.path)
}

// existing opens the directory if it exists.
func (d Dir) existing() (*os.Root, error) {
	if d.path == "" {
		return nil, ErrNoPlace
	}
	return private.Existing(d.path)
}

// RemoveAll removes a file or a directory with everything in it. It is not an
// error if it does not exist.
func (d Dir) RemoveAll(name string) error {
	if err := d.check(name); err != nil {
		return err
	}
	root, err := d.existing()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return root.RemoveAll(name)
}

// Open opens a file for reading. Only regular files are opened.
func (d Dir) Open(name string) (*os.File, error) {
	if err := d.check(name); err != nil {
		return nil, err
	}
	root, err := d.existing()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// Check before opening, because opening a pipe waits for its other end.
	before, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", d.Path(name))
	}
	return root.Open(name)
}

// Write replaces a file. After a crash at any moment it has either the old
// content or the new.
func (d Dir) Write(name string, data []byte) error { return d.write(name, data, true) }

// WriteUnsynced is Write without waiting for the disk: a power cut may leave an
// empty or truncated file, which readers must handle. A crash of the process
// does not.
func (d Dir) WriteUnsynced(name string, data []byte) error { return d.write(name, data, false) }

func (d Dir) write(name string, data []byte, sync bool) error {
	if err := d.check(name); err != nil {
		return err
	}
	for again := true; ; again = false {
		f, err := d.Draft()
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		if err == nil && sync {
			err = f.Sync()
		}
		if err != nil {
			f.Drop()
			return err
		}
		if err = f.Keep(name); again && errors.Is(err, fs.ErrNotExist) {
			continue // the clock has jumped, and it was removed as an old one
		}
		return err
	}
}

// Remove removes a file. The error is fs.ErrNotExist if it does not exist.
func (d Dir) Remove(name string) error {
	if err := d.check(name); err != nil {
		return err
	}
	return d.remove(name)
}

// remove removes a file of any name, also a lock's.
func (d Dir) remove(name string) error {
	root, err := d.existing()
	if err != nil {
		return err
	}
	defer root.Close()
	return root.Remove(name)
}

// List returns the names of the files, sorted. It also removes leftovers of
// writes by crashed processes.
func (d Dir) List() ([]string, error) {
	if d.path == "" {
		return nil, nil
	}
	root, err := d.existing()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), temporary):
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > abandoned {
				_ = root.Remove(e.Name())
			}
		case strings.HasPrefix(e.Name(), "."), !e.Type().IsRegular():
		default:
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// Lock waits for the lock of that name and returns a function that releases it.
// The lock is released when its process ends, however that happens. It is for
// short work, because waiting for it cannot be interrupted.
func (d Dir) Lock(name string) (unlock func(), err error) {
	if err := d.check(name); err != nil {
		return nil, err
	}
	if err := private.Check(d.path); err != nil {
		return nil, err
	}
	return lockedfile.MutexAt(d.Path("." + name + lockSuffix)).Lock()
}

// TryLock is Lock for long work: it does not wait, and ok reports whether the
// lock was free. The locks of Lock and TryLock are independent.
func (d Dir) TryLock(name string) (unlock func(), ok bool, err error) {
	if err := d.check(name); err != nil {
		return nil, false, err
	}
	if err := private.Check(d.path); err != nil {
		return nil, false, err
	}
	path := d.Path("." + name + trySuffix)
	for {
		lock := flock.New(path)
		if ok, err = lock.TryLock(); err != nil || !ok {
			return nil, false, err
		}
		// The previous holder may have removed the file before releasing it.
		held, err1 := lock.Stat()
		there, err2 := os.Lstat(path)
		if err1 == nil && err2 == nil && os.SameFile(held, there) {
			return func() {
				_ = os.Remove(path) // while no other process can hold it
				_ = lock.Unlock()   // the end of the process releases it in any case
			}, true, nil
		}
		_ = lock.Unlock()
		if err1 != nil || err2 != nil && !errors.Is(err2, fs.ErrNotExist) {
			return nil, false, errors.Join(err1, err2)
		}
	}
}

// LeftLocks returns the names of TryLock whose holder was killed.
func (d Dir) LeftLocks() []string {
	files, _ := filepath.Glob(d.Path(".*" + trySuffix))
	var names []string
	for _, path := range files {
		lock := flock.New(path)
		if ok, err := lock.TryLock(); err == nil && ok {
			names = append(names, strings.TrimSuffix(filepath.Base(path)[1:], trySuffix))
			_ = lock.Unlock()
		}
	}
	return names
}

// DropLock removes the files of TryLock for a name, which must never be used
// again.
func (d Dir) DropLock(name string) error {
	if err := d.check(name); err != nil {
		return err
	}
	if err := d.remove("." + name + trySuffix); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
