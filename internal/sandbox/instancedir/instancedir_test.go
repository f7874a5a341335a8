//go:build linux

package instancedir

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/private"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func nothing(*os.Root) error { return nil }

func TestRejectedRuntimeDir(t *testing.T) {
	shared := t.TempDir()
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	dirs := []string{shared}
	if os.Geteuid() == 0 {
		foreign := t.TempDir()
		if err := os.Chown(foreign, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, foreign)
	}
	for _, dir := range dirs {
		victim := filepath.Join(dir, newName())
		if err := os.Mkdir(victim, 0o700); err != nil {
			t.Fatal(err)
		}
		var rejected *private.Rejected
		if err := New(dir, "root", nothing, quiet).Open(); !errors.As(err, &rejected) {
			t.Errorf("Open: got %v, want a rejection", err)
		}
		if err := New(dir, "root", nothing, quiet).Sweep(); !errors.As(err, &rejected) {
			t.Errorf("Sweep: got %v, want a rejection", err)
		}
		if _, err := os.Lstat(victim); err != nil {
			t.Errorf("something was removed below a rejected directory: %v", err)
		}
	}
}

// TestSweepLeavesOtherNames: other directories are not touched.
func TestSweepLeavesOtherNames(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"documents", "Abcdefghij", newName()} {
		if err := os.MkdirAll(filepath.Join(dir, name, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := New(dir, "root", nothing, quiet).Sweep(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("left: got %v, %v; want the two other directories", left, err)
	}
}

// swapper is another user's process. It owns a directory, and exchanges it, over
// and over, with a link to the victim's.
const swapper = `import ctypes, os, sys
run, aside, victim = (os.fsencode(a) for a in sys.argv[1:])
os.symlink(victim, aside)
exchange = ctypes.CDLL(None).renameat2
print("swapping", flush=True)
while os.getppid() == int(os.environ["PARENT"]):
    if exchange(-100, run, -100, aside, 2):
        sys.exit("the exchange failed")
`

// TestSwappedForALink lets another user swap the runtime directory for a link to
// a directory that the sweeper owns while sweeps run. Removing by path, which the
// control does, follows the link.
func TestSwappedForALink(t *testing.T) {
	if testing.Short() {
		t.Skip("depends on speed: its control must win a race")
	}
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("it takes root to have two users, and a Python")
	}
	const attacker = 54321
	top, err := os.MkdirTemp("/tmp", "instancedir-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	sticky, victim := filepath.Join(top, "tmp"), filepath.Join(top, "home")
	run, aside := filepath.Join(sticky, "run"), filepath.Join(sticky, "aside")
	precious := filepath.Join(victim, "abcdefghij")
	err = errors.Join(os.Chmod(top, 0o755), os.Mkdir(sticky, 0o700), os.Chmod(sticky, 0o777|os.ModeSticky),
		os.MkdirAll(precious, 0o700), os.WriteFile(filepath.Join(precious, "file"), []byte("precious"), 0o600),
		os.Mkdir(run, 0o777), os.Mkdir(filepath.Join(run, "abcdefghij"), 0o777),
		os.Chown(run, attacker, attacker), os.Chown(filepath.Join(run, "abcdefghij"), attacker, attacker))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-I", "-S", "-c", swapper, run, aside, victim)
	cmd.Dir = "/"
	cmd.Env = []string{"PARENT=" + strconv.Itoa(os.Getpid())}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: attacker, Gid: attacker}}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	intact := func() bool {
		_, err := os.Lstat(filepath.Join(precious, "file"))
		return err == nil
	}

	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
		_ = New(run, "root", nothing, quiet).Sweep() // refuses, or finds nothing there
		if d := New(run, "root", nothing, quiet); d.Open() == nil {
			t.Fatalf("a directory was made in another user's directory: %s", d.Path)
		}
		if !intact() {
			t.Fatal("the sweeper removed what the link led to")
		}
	}
	// The control: a sweeper that checks nothing and removes by path.
	removed := false
	for until := time.Now().Add(30 * time.Second); !removed && time.Now().Before(until); {
		entries, _ := os.ReadDir(run)
		for _, e := range entries {
			_ = os.RemoveAll(filepath.Join(run, e.Name()))
		}
		removed = !intact()
	}
	if !removed {
		t.Error("the control failed: removing by path was never led to the victim's directory")
	}
	if left, err := os.ReadDir(top); err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestRecords: a record is found by whoever sweeps, half a record is skipped, and
// a directory whose removal fails is left with its records.
func TestRecords(t *testing.T) {
	type record struct{ Group string }
	runtimeDir := t.TempDir()
	var found []string
	failure := errors.New("busy")
	remove := func(dir *os.Root) error {
		return Records(dir, func(run string, r record) error {
			found = append(found, run+" "+r.Group)
			return failure
		})
	}
	dead := New(runtimeDir, "mount", remove, quiet)
	if err := dead.Open(); err != nil {
		t.Fatal(err)
	}
	for run, group := range map[string]string{"r1": "a", "r2": "b"} {
		if err := dead.Record(run, record{group}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // idempotent
		if err := dead.Forget("r2"); err != nil {
			t.Error(err)
		}
	}
	if err := dead.Root.WriteFile("r3"+recordSuffix, []byte(`{"Gro`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dead.Abandon(); err != nil {
		t.Fatal(err)
	}
	other := New(runtimeDir, "mount", remove, quiet)
	if err := other.Sweep(); !errors.Is(err, failure) {
		t.Errorf("Sweep: got %v, want %v", err, failure)
	}
	failure = nil
	if err := other.Sweep(); err != nil {
		t.Errorf("Sweep: got %v, want success", err)
	}
	if want := []string{"r1 a", "r1 a"}; !slices.Equal(found, want) {
		t.Errorf("records: got %v, want %v", found, want)
	}
	if _, err := os.Lstat(dead.Path); err == nil {
		t.Error("the dead program's directory was not removed")
	}
}

func TestOpenOnce(t *testing.T) {
	d := New(t.TempDir(), "mount", nothing, quiet)
	for range 2 {
		if err := d.Open(); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := os.ReadDir(filepath.Dir(d.Path)); err != nil || len(all) != 1 {
		t.Errorf("got %v, %v, want one directory", all, err)
	}
	if _, err := os.Stat(d.Mountpoint()); err != nil {
		t.Error(err)
	}
	for range 2 { // idempotent
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := d.Open(); !errors.Is(err, ErrClosed) {
		t.Errorf("Open after Close: got %v, want ErrClosed", err)
	}
	if _, err := os.Lstat(d.Path); err == nil {
		t.Error("Close left the directory")
	}
}
