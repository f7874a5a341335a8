//go:build linux && (amd64 || arm64)

package process

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"sallyport/internal/sandbox/place"
)

// instance is one program's place among the runtime files: a directory with a
// lock that the program holds for as long as it lives, an empty directory for
// stages to mount on, and a record of each run. Runs without a file system of
// their own have their directories elsewhere, where other users can pass. A
// place whose lock can be had belongs to a program that is dead, and is swept.
type instance struct {
	dir    string
	making sync.Mutex // guards the making of shared
	shared string     // for runs without a file system of their own; "" until needed
	place  string     // where shared is made
	lock   *os.File
}

// record is what of a run may outlive its program.
type record struct {
	UID int `json:"uid,omitempty"` // a user of the run's own
}

const (
	sharedPrefix = "sallyport-process-"
	sharedNote   = "shared" // a file that says where shared is
)

// sharedDirs are where every user may write. What runs leave there is removed.
var sharedDirs = []string{"/tmp", "/dev/shm"}

func openInstance(runtimeDir, workDir string, log *slog.Logger) (*instance, error) {
	_, dir, lock, err := place.Open(runtimeDir, "root", removePlace, log)
	if err != nil {
		return nil, err
	}
	return &instance{dir: dir, place: workDir, lock: lock}, nil
}

func (in *instance) mountpoint() string { return filepath.Join(in.dir, "root") }

func (in *instance) record(run string, r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(in.dir, run+".json"), b, 0o600)
}

// work makes the directories of a run without a file system of its own.
func (in *instance) work(run string, root bool) (string, error) {
	if err := in.share(); err != nil {
		return "", err
	}
	dir := filepath.Join(in.sharedDir(), run)
	mode := os.FileMode(0o700)
	if root {
		mode = 0o711
	}
	if err := os.Mkdir(dir, mode); err != nil {
		return "", err
	}
	for sub, mode := range map[string]os.FileMode{"workspace": 0o700, "tmp": 0o700, "files": 0o755} {
		if err := os.Mkdir(filepath.Join(dir, sub), mode); err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	return dir, nil
}

// share makes the directory for runs without a file system of their own.
func (in *instance) share() error {
	in.making.Lock()
	defer in.making.Unlock()
	if in.shared != "" {
		return nil
	}
	dir, err := os.MkdirTemp(in.place, sharedPrefix)
	if err != nil {
		return err
	}
	// Others pass, and see nothing.
	if err := errors.Join(os.Chmod(dir, 0o711), os.WriteFile(filepath.Join(in.dir, sharedNote), []byte(dir), 0o600)); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	in.shared = dir
	return nil
}

// sharedDir is that directory; empty where there is none.
func (in *instance) sharedDir() string {
	in.making.Lock()
	defer in.making.Unlock()
	return in.shared
}

// forget removes what a run had. Its processes have ended.
func (in *instance) forget(run string) error {
	err := removeRun(in.dir, in.sharedDir(), run)
	if err == nil {
		err = os.Remove(filepath.Join(in.dir, run+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// removeRun ends what may be left of a run's user and removes its files.
func removeRun(dir, shared, run string) error {
	var r record
	if b, err := os.ReadFile(filepath.Join(dir, run+".json")); err == nil {
		_ = json.Unmarshal(b, &r) // half a record: nothing was made
	}
	if r.UID > firstUser && os.Geteuid() == 0 {
		killUser(r.UID)
		for _, d := range sharedDirs {
			removeOf(d, r.UID)
		}
	}
	if shared == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(shared, run))
}

// removeOf removes the entries of a directory that belong to the user.
func removeOf(dir string, uid int) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil {
			continue
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

func (in *instance) close() error {
	err := removePlace(in.dir)
	return errors.Join(err, in.lock.Close())
}

// sweep removes what programs left that are dead now.
func sweep(runtimeDir string, log *slog.Logger) error {
	return place.Sweep(runtimeDir, removePlace, log)
}

// removePlace removes what the records in dir tell of, and dir. The caller
// holds the lock.
func removePlace(dir string) error {
	records, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	shared := ""
	if b, err := os.ReadFile(filepath.Join(dir, sharedNote)); err == nil && strings.HasPrefix(filepath.Base(string(b)), sharedPrefix) {
		shared = string(b)
	}
	var errs []error
	for _, file := range records {
		errs = append(errs, removeRun(dir, shared, strings.TrimSuffix(filepath.Base(file), ".json")))
	}
	if shared != "" {
		errs = append(errs, os.RemoveAll(shared))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return place.Discard(dir)
}
