//go:build unix

package place

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/internal/private"
)

// unfinished begins the name of a place that is being made or removed. Sweepers
// leave it alone until it must have been given up.
const (
	unfinished      = "new-"
	unfinishedGrace = time.Minute
)

// names are those of places, finished or not.
var names = regexp.MustCompile(`^(` + unfinished + `)?[a-z0-9]{10}$`)

// newName makes a place's name: ten of the characters of rand.Text.
func newName() string { return strings.ToLower(rand.Text()[:10]) }

// A Place is that of one program.
type Place struct {
	ID string
	// Dir is its path, for programs and mounts that need one. Files in it are
	// reached through Root.
	Dir  string
	Root *os.Root

	runtime *os.Root // the directory that it lies in
	lock    *os.File
}

// A Remover removes what the records in a place tell of. The caller holds the
// place's lock, and removes the place where the error is nil.
type Remover func(place *os.Root) error

// Open sweeps what dead programs left, as Sweep does, and makes a place for this
// one, with an empty directory mount in it. The error is a *private.Rejected
// where others have a hand in the runtime directory.
func Open(runtimeDir, mount string, remove Remover, log *slog.Logger) (_ *Place, err error) {
	runtime, err := private.Open(runtimeDir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, runtime.Close())
		}
	}()
	if err := sweep(runtime, remove, log); err != nil {
		// Leftovers do no harm to a new sandbox.
		log.Warn("cannot remove what an earlier program left", "error", err)
	}
	id := newName()
	// Under another name until the lock is held, so that no sweeper takes it.
	tmp := unfinished + id
	if err := runtime.Mkdir(tmp, 0o700); err != nil {
		return nil, err
	}
	p := &Place{ID: id, Dir: filepath.Join(runtime.Name(), id), runtime: runtime}
	p.Root, err = runtime.OpenRoot(tmp)
	if err == nil {
		p.lock, err = lockFile(p.Root)
	}
	if err == nil {
		err = p.Root.Mkdir(mount, 0o700)
	}
	if err == nil {
		err = runtime.Rename(tmp, id)
	}
	if err != nil {
		return nil, errors.Join(err, p.release(), runtime.RemoveAll(tmp))
	}
	return p, nil
}

func (p *Place) release() error {
	var err error
	if p.Root != nil {
		err = p.Root.Close()
	}
	if p.lock != nil {
		err = errors.Join(err, p.lock.Close())
	}
	return err
}

// Close removes the place. What remove cannot remove is left, with the place,
// for a sweeper.
func (p *Place) Close(remove Remover) error {
	err := remove(p.Root)
	if err == nil {
		err = discard(p.runtime, p.ID)
	}
	return errors.Join(err, p.release(), p.runtime.Close())
}

// Abandon lets go of the place as the death of its program does.
func (p *Place) Abandon() error { return errors.Join(p.release(), p.runtime.Close()) }

// lockFile takes the lock of a place.
func lockFile(place *os.Root) (*os.File, error) {
	f, err := place.OpenFile("lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Sweep calls remove for the places of programs that are dead now, whose locks
// it holds meanwhile, and removes these places. Several may sweep at once. The
// error is a *private.Rejected, and nothing is removed, where others have a hand
// in the runtime directory.
func Sweep(runtimeDir string, remove Remover, log *slog.Logger) error {
	runtime, err := private.Existing(runtimeDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(sweep(runtime, remove, log), runtime.Close())
}

func sweep(runtime *os.Root, remove Remover, log *slog.Logger) error {
	entries, err := fs.ReadDir(runtime.FS(), ".")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || !names.MatchString(e.Name()) {
			continue
		}
		if strings.HasPrefix(e.Name(), unfinished) {
			if fi, err := e.Info(); err != nil || time.Since(fi.ModTime()) < unfinishedGrace {
				continue
			}
		}
		swept, err := sweepOne(runtime, e.Name(), remove)
		if swept && err == nil {
			log.Info("removed what a program left that is gone", "instance", e.Name())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sweepOne removes a place, unless its program lives or is making it.
func sweepOne(runtime *os.Root, name string, remove Remover) (swept bool, err error) {
	place, err := runtime.OpenRoot(name)
	if err != nil {
		return false, nil // another sweeper was first
	}
	defer place.Close()
	lock, err := lockFile(place)
	if err != nil {
		return false, nil
	}
	defer lock.Close()
	if err := remove(place); err != nil {
		return true, err
	}
	return true, discard(runtime, name)
}

// discard removes a place, whose lock the caller holds.
func discard(runtime *os.Root, name string) error {
	// Under a name that sweepers leave alone: one that came to the directory
	// after its lock was removed would make another there.
	away := unfinished + newName()
	now := time.Now()
	if runtime.Chtimes(name, now, now) == nil && runtime.Rename(name, away) == nil {
		name = away
	}
	return runtime.RemoveAll(name)
}
