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

	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/sandbox/instancedir"
)

// instance is this program's directory among the runtime files, in which
// supervisors mount and each run has a record. Runs without a file system of
// their own have their directories elsewhere, where other users can pass.
type instance struct {
	*instancedir.Dir
	workDir string     // where shared is made
	making  sync.Mutex // held while shared is made
	shared  string     // for runs without a file system of their own; "" until needed
}

// record describes what may outlive the program of a run.
type record struct {
	UID int `json:"uid,omitempty"` // a user of the run's own
}

const (
	sharedPrefix = "sallyport-process-"
	sharedNote   = "shared" // a file with the path of shared
)

// sharedDirs are writable by every user. What runs leave there is removed.
var sharedDirs = []string{"/tmp", "/dev/shm"}

func newInstance(runtimeDir, workDir string, log *slog.Logger) *instance {
	return &instance{Dir: instancedir.New(runtimeDir, "root", removeRecorded, log), workDir: workDir}
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
	for sub, mode := range map[string]os.FileMode{"workspace": 0o700, "tmp": 0o700, "packages": 0o700, "files": 0o755} {
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
	// Others can traverse it but not list it.
	if err := errors.Join(os.Chmod(dir, 0o711), in.Root.WriteFile(sharedNote, []byte(dir), 0o600)); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	in.shared = dir
	return nil
}

// sharedDir returns that directory, or "" if there is none.
func (in *instance) sharedDir() string {
	in.making.Lock()
	defer in.making.Unlock()
	return in.shared
}

// forget removes what a run left. Its processes have ended.
func (in *instance) forget(run string) error {
	shared, err := openShared(in.sharedDir())
	if err != nil {
		return err
	}
	defer shared.Close()
	var r record
	if b, err := in.Root.ReadFile(run + ".json"); err == nil {
		_ = json.Unmarshal(b, &r) // half a record: nothing was made
	}
	if err := removeRun(shared, run, r); err != nil {
		return err
	}
	return in.Forget(run)
}

// sharing is an open shared directory; a nil root has nothing in it.
type sharing struct{ root *os.Root }

func (s sharing) Close() {
	if s.root != nil {
		_ = s.root.Close()
	}
}

// openShared opens the directory for runs without a file system of their own. Every
// user can make files in its parent: after it was removed, another user may have
// made something in its place, which must not be touched.
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

// removeRun kills what may be left of a run's user and removes the run's files.
func removeRun(shared sharing, run string, r record) error {
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

// removeRecorded removes what the records in an instance directory describe.
func removeRecorded(in *os.Root) error {
	dir := ""
	if b, err := in.ReadFile(sharedNote); err == nil && strings.HasPrefix(filepath.Base(string(b)), sharedPrefix) {
		dir = string(b)
	}
	shared, err := openShared(dir)
	if err != nil {
		return err
	}
	defer shared.Close()
	err = instancedir.Records(in, func(run string, r record) error { return removeRun(shared, run, r) })
	if shared.root == nil {
		return err
	}
	// Its contents first, through the handle: then nothing but an empty directory
	// can be at its path.
	err = errors.Join(err, private.Empty(shared.root))
	if e := os.Remove(dir); !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}
