// Package state is the directory in which everything lies that outlives the
// program: a person's memories, saved tools, what is known of servers. Several
// Sallyports of one user share it at the same time.
//
// Files are replaced whole or not at all, so that a reader needs no lock and
// finds no half file, whatever dies when. Who changes a file depending on what
// is in it holds a lock meanwhile. Everything is the user's own alone (0700,
// 0600): it may hold what code in a sandbox wrote, and what servers answered.
package state

import (
	"crypto/rand"
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

	"sallyport/internal/private"
)

// ErrNoPlace: there is no state directory.
var ErrNoPlace = errors.New("there is no place to keep it: set stateDir (SALLYPORT_STATE_DIR), XDG_STATE_HOME or HOME")

// ErrTooLarge: a file is larger than its reader wants to read.
var ErrTooLarge = errors.New("file is too large")

// Names of what is not a file of the callers.
const (
	temporary  = ".tmp-"
	lockSuffix = ".lock"
	trySuffix  = ".busy"
)

// abandoned is the age at which the file of an unfinished write is one that a
// crash left behind.
const abandoned = time.Hour

// A Dir is a directory of files. It exists once something was written; until
// then it reads as empty. Methods are safe for concurrent use, also by several
// processes. Names are single elements of a path that do not begin with a dot.
type Dir struct{ path string }

// At is the directory of that path. With an empty path every method fails with
// ErrNoPlace, except that nothing is listed.
func At(path string) Dir { return Dir{path} }

// Sub is a directory below.
func (d Dir) Sub(name string) Dir {
	if d.path == "" {
		return d
	}
	return Dir{filepath.Join(d.path, name)}
}

// Path is where the file lies, or the directory itself for an empty name.
func (d Dir) Path(name string) string { return filepath.Join(d.path, name) }

func (d Dir) check(name string) error {
	if d.path == "" {
		return ErrNoPlace
	}
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\\\x00") {
		return fmt.Errorf("%q is no name of a file", name)
	}
	return nil
}

// Read returns a file's content, of at most limit bytes. A file that is not
// there is fs.ErrNotExist. What is no regular file is not read.
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

// OpenRoot opens the directory, which it makes if need be. The error is a
// *private.Rejected where other users have a hand in it.
func (d Dir) OpenRoot() (*os.Root, error) {
	if d.path == "" {
		return nil, ErrNoPlace
	}
	return private.Open(d.path)
}

// existing opens the directory if it is there.
func (d Dir) existing() (*os.Root, error) {
	if d.path == "" {
		return nil, ErrNoPlace
	}
	return private.Existing(d.path)
}

// RemoveAll removes a file or a directory with everything in it. One that is
// not there is no error.
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

// Open opens a file for reading, and nothing but a regular file.
func (d Dir) Open(name string) (*os.File, error) {
	if err := d.check(name); err != nil {
		return nil, err
	}
	root, err := d.existing()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// Before it is opened: the opening of a pipe waits for its other end.
	before, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", d.Path(name))
	}
	return root.Open(name)
}

// Write replaces a file. After a crash at any moment there is either the old
// content or the new.
func (d Dir) Write(name string, data []byte) error { return d.write(name, data, true) }

// WriteUnsynced is Write without waiting for the disk: a power cut may leave a
// file that is empty or cut short, which its readers must bear. A crash of
// processes alone does not.
func (d Dir) WriteUnsynced(name string, data []byte) error { return d.write(name, data, false) }

func (d Dir) write(name string, data []byte, sync bool) error {
	if err := d.check(name); err != nil {
		return err
	}
	root, err := d.OpenRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	for again := true; ; again = false {
		tmp := temporary + rand.Text()
		f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		if err == nil && sync {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err == nil {
			err = root.Rename(tmp, name)
		}
		if err == nil {
			return nil
		}
		if again && errors.Is(err, fs.ErrNotExist) {
			continue // the clock has jumped, and it was taken for an old one
		}
		if e := root.Remove(tmp); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		return err
	}
}

// Remove removes a file; one that is not there is fs.ErrNotExist.
func (d Dir) Remove(name string) error {
	if err := d.check(name); err != nil {
		return err
	}
	root, err := d.existing()
	if err != nil {
		return err
	}
	defer root.Close()
	return root.Remove(name)
}

// List returns the names of the files, sorted. It also removes what unfinished
// writes of a crashed process left.
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

// Lock waits for the lock of that name and returns what releases it. The lock
// goes with its holder, however that ends. It is for short work: nobody who
// waits for it can be interrupted.
func (d Dir) Lock(name string) (unlock func(), err error) {
	if err := d.check(name); err != nil {
		return nil, err
	}
	if err := private.Check(d.path); err != nil {
		return nil, err
	}
	return lockedfile.MutexAt(d.Path("." + name + lockSuffix)).Lock()
}

// TryLock is Lock for work that takes long: it does not wait, and ok says
// whether the lock was free. The two know nothing of each other.
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
		// Whoever had it may have removed the file before it let go.
		held, err1 := lock.Stat()
		there, err2 := os.Lstat(path)
		if err1 == nil && err2 == nil && os.SameFile(held, there) {
			return func() {
				_ = os.Remove(path) // while nobody else can have it
				_ = lock.Unlock()   // its end frees it in any case
			}, true, nil
		}
		_ = lock.Unlock()
		if err1 != nil || err2 != nil && !errors.Is(err2, fs.ErrNotExist) {
			return nil, false, errors.Join(err1, err2)
		}
	}
}

// DropLock removes what TryLock leaves of a name, which must never be used
// again.
func (d Dir) DropLock(name string) error {
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
	if err := root.Remove("." + name + trySuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
