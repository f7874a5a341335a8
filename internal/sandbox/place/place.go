//go:build unix

package place

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unfinished begins the name of a place that is being made or removed. Sweepers
// leave it alone until it must have been given up.
const (
	unfinished      = "new-"
	unfinishedGrace = time.Minute
)

// Open sweeps what dead programs left, as Sweep does, and makes a place for this
// one, with an empty directory mount in it. The caller holds the place as long as
// it does not close the lock.
func Open(runtimeDir, mount string, remove func(dir string) error, log *slog.Logger) (id, dir string, lock *os.File, err error) {
	if err := private(runtimeDir); err != nil {
		return "", "", nil, err
	}
	if err := Sweep(runtimeDir, remove, log); err != nil {
		// Leftovers do no harm to a new sandbox.
		log.Warn("cannot remove what an earlier program left", "error", err)
	}
	id = strings.ToLower(rand.Text()[:10])
	dir = filepath.Join(runtimeDir, id)
	// Under another name until the lock is held, so that no sweeper takes it.
	tmp := filepath.Join(runtimeDir, unfinished+id)
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return "", "", nil, err
	}
	lock, err = lockFile(filepath.Join(tmp, "lock"))
	if err == nil {
		err = os.Mkdir(filepath.Join(tmp, mount), 0o700)
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		if lock != nil {
			lock.Close()
		}
		return "", "", nil, errors.Join(err, os.RemoveAll(tmp))
	}
	return id, dir, lock, nil
}

// private makes dir if need be and makes sure that nobody else can put
// anything into it.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !fi.IsDir() || !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a directory of this user's", dir)
	}
	if fi.Mode().Perm()&0o022 != 0 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}

func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Sweep calls remove, which ends with Discard, for the places of programs that
// are dead now, whose locks it holds meanwhile. Several may sweep at once.
func Sweep(runtimeDir string, remove func(dir string) error, log *slog.Logger) error {
	entries, err := os.ReadDir(runtimeDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(runtimeDir, e.Name())
		if strings.HasPrefix(e.Name(), unfinished) {
			if fi, err := e.Info(); err != nil || time.Since(fi.ModTime()) < unfinishedGrace {
				continue
			}
		}
		lock, err := lockFile(filepath.Join(dir, "lock"))
		if err != nil {
			continue // alive, or being made
		}
		if err := remove(dir); err != nil {
			errs = append(errs, err)
		} else {
			log.Info("removed what a program left that is gone", "instance", e.Name())
		}
		lock.Close()
	}
	return errors.Join(errs...)
}

// Discard removes a place, whose lock the caller holds.
func Discard(dir string) error {
	// Under a name that sweepers leave alone: one that came to the directory
	// after its lock was removed would make another there.
	away := filepath.Join(filepath.Dir(dir), unfinished+strings.ToLower(rand.Text()[:10]))
	now := time.Now()
	if os.Chtimes(dir, now, now) == nil && os.Rename(dir, away) == nil {
		dir = away
	}
	return os.RemoveAll(dir)
}
