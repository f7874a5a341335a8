//go:build linux && (amd64 || arm64)

package gvisor

import (
	"crypto/rand"
	"encoding/json"
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

// instance is one program's place in the runtime directory: a directory with
// a lock file that the program holds for as long as it lives, an empty
// directory for cells to mount on, and a record for each run of what lies
// outside of the run's own namespaces. A directory whose lock can be had
// belongs to a program that is dead, and is swept.
type instance struct {
	id   string
	dir  string
	lock *os.File
}

// unfinished begins the name of a place that is being made. Sweepers leave it
// alone until it must have been given up.
const (
	unfinished      = "new-"
	unfinishedGrace = time.Minute
)

type record struct {
	Cgroups []string `json:"cgroups"`
}

// openInstance sweeps what dead programs left and makes a place for this one.
func openInstance(runtimeDir string, log *slog.Logger) (*instance, error) {
	if err := privateDir(runtimeDir); err != nil {
		return nil, err
	}
	if err := sweep(runtimeDir, log); err != nil {
		// Leftovers do no harm to a new sandbox.
		log.Warn("cannot remove what an earlier program left", "error", err)
	}
	id := strings.ToLower(rand.Text()[:10])
	in := &instance{id: id, dir: filepath.Join(runtimeDir, id)}
	// Under another name until the lock is held, so that no sweeper takes it.
	tmp := filepath.Join(runtimeDir, unfinished+id)
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(tmp, "lock"))
	if err == nil {
		err = os.Mkdir(filepath.Join(tmp, "cell"), 0o700)
	}
	if err == nil {
		err = os.Rename(tmp, in.dir)
	}
	if err != nil {
		if lock != nil {
			lock.Close()
		}
		return nil, errors.Join(err, os.RemoveAll(tmp))
	}
	in.lock = lock
	return in, nil
}

// privateDir makes dir if need be and makes sure that nobody else can put
// anything into it.
func privateDir(dir string) error {
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

func (in *instance) mountpoint() string { return filepath.Join(in.dir, "cell") }

func (in *instance) recordFile(run string) string {
	return filepath.Join(in.dir, run+".json")
}

// record writes down what run is about to make outside of its namespaces.
func (in *instance) record(run string, cgroups []string) error {
	b, err := json.Marshal(record{Cgroups: cgroups})
	if err != nil {
		return err
	}
	return os.WriteFile(in.recordFile(run), b, 0o600)
}

func (in *instance) forget(run string) { _ = os.Remove(in.recordFile(run)) }

// close removes the place. Records that are left keep it for a sweeper.
func (in *instance) close() error {
	err := removePlace(in.dir)
	return errors.Join(err, in.lock.Close())
}

// sweep removes what programs left that are dead now. Several may sweep at
// once.
func sweep(runtimeDir string, log *slog.Logger) error {
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
		if err := removePlace(dir); err != nil {
			errs = append(errs, err)
		} else {
			log.Info("removed what a program left that is gone", "instance", e.Name())
		}
		lock.Close()
	}
	return errors.Join(errs...)
}

// removePlace removes the groups that the records in dir name, and dir. The
// caller holds the lock. The processes in those groups end by themselves: the
// program that held their lifelines is dead.
func removePlace(dir string) error {
	records, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range records {
		b, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var rec record
		if json.Unmarshal(b, &rec) == nil { // half a record: nothing was made
			for _, group := range rec.Cgroups {
				// A record is a file; it must not choose what is removed.
				if !strings.HasPrefix(filepath.Base(group), cgroupPrefix) {
					continue
				}
				if err := removeGroup(group); err != nil {
					errs = append(errs, err)
				}
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	// Under a name that sweepers leave alone: one that came to the directory
	// after its lock was removed would make another there.
	away := filepath.Join(filepath.Dir(dir), unfinished+strings.ToLower(rand.Text()[:10]))
	now := time.Now()
	if os.Chtimes(dir, now, now) == nil && os.Rename(dir, away) == nil {
		dir = away
	}
	// Not RemoveAll from the start: if a cell still has its tmpfs mounted, it
	// is in a namespace of its own and not seen from here.
	return os.RemoveAll(dir)
}
