//go:build unix

package instancedir

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/private"
)

// unfinished begins the name of a directory that is being made or removed.
// Sweepers leave it alone until its program must have given up.
const (
	unfinished      = "new-"
	unfinishedGrace = time.Minute
)

// names matches instance directories, finished or not.
var names = lazyregexp.New(`^(` + unfinished + `)?[a-z0-9]{10}$`)

// newName returns a new directory's name: ten of the characters of rand.Text.
func newName() string { return strings.ToLower(rand.Text()[:10]) }

// A Dir is the instance directory of this program. Make one with New.
type Dir struct {
	// ID, Path and Root are set by Open. Path is for programs and mounts that
	// need one; use Root to reach files in the directory.
	ID   string
	Path string
	Root *os.Root

	runtimeDir, mount string
	remove            Remover
	log               *slog.Logger

	mu      sync.Mutex // held while the directory is opened or closed
	closed  bool
	runtime *os.Root // the directory that holds all instance directories
	lock    *os.File
}

// A Remover removes what the records in an instance directory describe. The
// caller holds the directory's lock, and removes the directory if the error is
// nil.
type Remover func(dir *os.Root) error

// ErrClosed is the error of Open after Close.
var ErrClosed = errors.New("the instance directory is closed")

// New returns the instance directory of this program below runtimeDir, with an
// empty directory mount in it. It touches nothing before Open.
func New(runtimeDir, mount string, remove Remover, log *slog.Logger) *Dir {
	return &Dir{runtimeDir: runtimeDir, mount: mount, remove: remove, log: log}
}

// Open removes what dead programs left, as Sweep does, and makes the directory,
// once. The error is a *private.Rejected if others have access to the runtime
// directory.
func (d *Dir) Open() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	if d.Root != nil {
		return nil
	}
	runtime, err := private.Open(d.runtimeDir)
	if err != nil {
		return err
	}
	if err := sweep(runtime, d.remove, d.log); err != nil {
		// Leftovers do no harm to a new sandbox.
		d.log.Warn("cannot remove what an earlier program left", "error", err)
	}
	id := newName()
	root, lock, err := create(runtime, id, d.mount)
	if err != nil {
		return errors.Join(err, runtime.Close())
	}
	d.ID, d.Path, d.Root = id, filepath.Join(runtime.Name(), id), root
	d.runtime, d.lock = runtime, lock
	return nil
}

// create makes and locks a directory. It has another name until the lock is
// held, so that no sweeper takes it.
func create(runtime *os.Root, id, mount string) (root *os.Root, lock *os.File, err error) {
	tmp := unfinished + id
	if err := runtime.Mkdir(tmp, 0o700); err != nil {
		return nil, nil, err
	}
	root, err = runtime.OpenRoot(tmp)
	if err == nil {
		lock, err = lockFile(root)
	}
	if err == nil {
		err = root.Mkdir(mount, 0o700)
	}
	if err == nil {
		err = runtime.Rename(tmp, id)
	}
	if err != nil {
		return nil, nil, errors.Join(err, release(root, lock), runtime.RemoveAll(tmp))
	}
	return root, lock, nil
}

func release(root *os.Root, lock *os.File) error {
	var err error
	if root != nil {
		err = root.Close()
	}
	if lock != nil {
		err = errors.Join(err, lock.Close())
	}
	return err
}

// Mountpoint returns the path of the empty directory.
func (d *Dir) Mountpoint() string { return filepath.Join(d.Path, d.mount) }

const recordSuffix = ".json"

// Record writes down what a run is about to make that may outlive the program.
func (d *Dir) Record(run string, what any) error {
	b, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return d.Root.WriteFile(run+recordSuffix, b, 0o600)
}

// Forget removes the record of a run.
func (d *Dir) Forget(run string) error {
	err := d.Root.Remove(run + recordSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Records calls remove for each run that dir has a record of. A record that was
// cut short by a crash is skipped: what it would describe was not made yet.
func Records[T any](dir *os.Root, remove func(run string, what T) error) error {
	files, err := fs.Glob(dir.FS(), "*"+recordSuffix)
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		b, err := dir.ReadFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var what T
		if json.Unmarshal(b, &what) == nil {
			errs = append(errs, remove(strings.TrimSuffix(file, recordSuffix), what))
		}
	}
	return errors.Join(errs...)
}

// Close removes the directory and what its records describe. If something cannot
// be removed, the directory stays for a sweeper.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.Root == nil {
		d.closed = true
		return nil
	}
	d.closed = true
	err := d.remove(d.Root)
	if err == nil {
		err = discard(d.runtime, d.ID)
	}
	return errors.Join(err, release(d.Root, d.lock), d.runtime.Close())
}

// Abandon lets go of the directory as the death of its program does. It is for
// tests of sweepers.
func (d *Dir) Abandon() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return errors.Join(release(d.Root, d.lock), d.runtime.Close())
}

// lockFile takes the lock of an instance directory.
func lockFile(dir *os.Root) (*os.File, error) {
	f, err := dir.OpenFile("lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Sweep removes the directories of dead programs, and what their records
// describe, while it holds their locks. Several programs may sweep at once. The
// error is a *private.Rejected, and nothing is removed, if others have access to
// the runtime directory.
func (d *Dir) Sweep() error {
	runtime, err := private.Existing(d.runtimeDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(sweep(runtime, d.remove, d.log), runtime.Close())
}

// Left returns the directories of dead programs below runtimeDir.
func Left(runtimeDir string) []string {
	locks, _ := filepath.Glob(filepath.Join(runtimeDir, "*", "lock"))
	var out []string
	for _, path := range locks {
		dir := filepath.Dir(path)
		f, err := os.Open(path)
		if err != nil || !names().MatchString(filepath.Base(dir)) {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			out = append(out, dir)
		}
		f.Close()
	}
	return out
}

func sweep(runtime *os.Root, remove Remover, log *slog.Logger) error {
	entries, err := fs.ReadDir(runtime.FS(), ".")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || !names().MatchString(e.Name()) {
			continue
		}
		if strings.HasPrefix(e.Name(), unfinished) {
			if fi, err := e.Info(); err != nil || time.Since(fi.ModTime()) < unfinishedGrace {
				continue
			}
		}
		swept, err := sweepOne(runtime, e.Name(), remove)
		if swept && err == nil {
			log.Info("removed what a dead program left", "instance", e.Name())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sweepOne removes a directory unless its program lives or is making it.
func sweepOne(runtime *os.Root, name string, remove Remover) (swept bool, err error) {
	dir, err := runtime.OpenRoot(name)
	if err != nil {
		return false, nil // another sweeper was first
	}
	defer dir.Close()
	lock, err := lockFile(dir)
	if err != nil {
		return false, nil
	}
	defer lock.Close()
	if err := remove(dir); err != nil {
		return true, err
	}
	return true, discard(runtime, name)
}

// discard removes a directory whose lock the caller holds.
func discard(runtime *os.Root, name string) error {
	// Rename it first, so that sweepers leave it alone: one that opened the
	// directory after its lock was removed would make another lock there.
	away := unfinished + newName()
	now := time.Now()
	if runtime.Chtimes(name, now, now) == nil && runtime.Rename(name, away) == nil {
		name = away
	}
	return runtime.RemoveAll(name)
}
