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

	"sallyport/internal/private"
	"sallyport/internal/sandbox/place"
)

// instance is one program's place among the runtime files: a directory with a
// lock that the program holds for as long as it lives, an empty directory for
// stages to mount on, and a record of each run. Runs without a file system of
// their own have their directories elsewhere, where other users can pass. A
// place whose lock can be had belongs to a program that is dead, and is swept.
type instance struct {
	*place.Place
	workDir string     // where shared is made
	making  sync.Mutex // guards the making of shared
	shared  string     // for runs without a file system of their own; "" until needed
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
	p, err := place.Open(runtimeDir, "root", removePlace, log)
	if err != nil {
		return nil, err
	}
	return &instance{Place: p, workDir: workDir}, nil
}

func (in *instance) mountpoint() string { return filepath.Join(in.Dir, "root") }

func (in *instance) record(run string, r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return in.Root.WriteFile(run+".json", b, 0o600)
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
	dir, err := os.MkdirTemp(in.workDir, sharedPrefix)
	if err != nil {
		return err
	}
	// Others pass, and see nothing.
	if err := errors.Join(os.Chmod(dir, 0o711), in.Root.WriteFile(sharedNote, []byte(dir), 0o600)); err != nil {
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
	shared, err := openShared(in.sharedDir())
	if err != nil {
		return err
	}
	defer shared.Close()
	if err = removeRun(in.Root, shared, run); err == nil {
		err = in.Root.Remove(run + ".json")
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// sharing is an open shared directory; a nil root has nothing in it.
type sharing struct{ root *os.Root }

func (s sharing) Close() {
	if s.root != nil {
		_ = s.root.Close()
	}
}

// openShared opens the directory for runs without a file system of their own.
// It lies where everybody can make files: once it was removed, another user may
// have put something in its place, which is not touched.
func openShared(dir string) (sharing, error) {
	if dir == "" {
		return sharing{}, nil
	}
	root, err := private.Passable(dir)
	var rejected *private.Rejected
	if errors.As(err, &rejected) || errors.Is(err, fs.ErrNotExist) {
		return sharing{}, nil
	}
	return sharing{root}, err
}

// removeRun ends what may be left of a run's user and removes its files.
func removeRun(place *os.Root, shared sharing, run string) error {
	var r record
	if b, err := place.ReadFile(run + ".json"); err == nil {
		_ = json.Unmarshal(b, &r) // half a record: nothing was made
	}
	if r.UID > firstUser && os.Geteuid() == 0 {
		killUser(r.UID)
		for _, d := range sharedDirs {
			removeOf(d, r.UID)
		}
	}
	if shared.root == nil {
		return nil
	}
	return shared.root.RemoveAll(run)
}

// removeOf removes the entries of a directory that belong to the user.
func removeOf(dir string, uid int) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil {
			continue
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid {
			_ = root.RemoveAll(e.Name())
		}
	}
}

func (in *instance) close() error { return in.Place.Close(removePlace) }

// sweep removes what programs left that are dead now.
func sweep(runtimeDir string, log *slog.Logger) error {
	return place.Sweep(runtimeDir, removePlace, log)
}

// removePlace removes what the records in a place tell of.
func removePlace(place *os.Root) error {
	records, err := fs.Glob(place.FS(), "*.json")
	if err != nil {
		return err
	}
	dir := ""
	if b, err := place.ReadFile(sharedNote); err == nil && strings.HasPrefix(filepath.Base(string(b)), sharedPrefix) {
		dir = string(b)
	}
	shared, err := openShared(dir)
	if err != nil {
		return err
	}
	defer shared.Close()
	var errs []error
	for _, file := range records {
		errs = append(errs, removeRun(place, shared, strings.TrimSuffix(file, ".json")))
	}
	if shared.root != nil {
		// What is in it first, through the handle: then nothing but an empty
		// directory can be at its path.
		errs = append(errs, private.Empty(shared.root))
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
