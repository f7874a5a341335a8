//go:build linux

package session

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/snapshot"
	"github.com/sallyport/sallyport/internal/store"
)

// smallDisk mounts a disk of some 200 kB, which only root can. It returns sets
// that keep what they keep on it, and what fills it and makes room again.
func smallDisk(t *testing.T, e *saving) (open func() *testSet, dir string, fill func(), free func()) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("sallyport-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=200k,mode=0700"); err != nil {
		t.Skipf("no disk of our own can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	open = func() *testSet {
		return newTestSet(setup{Template: Template{Engine: e}, Options: Options{
			Idle: time.Minute, LogBytes: 1 << 20, Logs: filepath.Join(dir, "logs"), Restore: true,
			Snapshots: snapshot.At(filepath.Join(dir, "snapshots")), Records: store.At(filepath.Join(dir, "sessions")),
		}})
	}
	ballast := filepath.Join(dir, "ballast")
	fill = func() {
		t.Helper()
		err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600)
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
	}
	free = func() {
		t.Helper()
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
	return open, dir, fill, free
}

// refused runs code that must not begin, because of the disk.
func refused(t *testing.T, s *Session, want string) {
	t.Helper()
	_, err := s.Exec(t.Context(), s.Enter(), Request{Submission: Submission{Code: "get x", Timeout: time.Second}})
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "stateDir") || !strings.Contains(err.Error(), "without a name") {
		t.Errorf("%v", err)
	}
}

func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, dir, fill, free := smallDisk(t, e)
		set := open()
		work, own := get(t, set, "work"), get(t, set, DefaultName)
		exec(t, work, "set x 1")
		time.Sleep(5 * time.Second) // a base is prepared, the log is written
		fill()

		// What is awake stays so, and says why; what needs no disk goes on.
		if err := set.Suspend(t.Context(), "work"); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "not suspended") {
			t.Error(err)
		}
		has(t, work, "1")
		time.Sleep(10 * time.Minute) // it tries, and fails, in the background, too
		has(t, work, "1")
		exec(t, own, "set x default")
		has(t, own, DefaultName)
		// A new name would be lost in silence.
		refused(t, get(t, set, "new"), "no space left")
		free()
		exec(t, get(t, set, "new"), "set x new")
		has(t, get(t, set, "new"), "new")

		// What sleeps wakes on a full disk, once, and is never an old one.
		if err := set.Suspend(t.Context(), "work"); err != nil {
			t.Error(err)
		}
		fill()
		has(t, work, "1")
		exec(t, work, "set x 2")
		set.Close()
		free()
		set = open()
		out := exec(t, get(t, set, "work"), "get x")
		if out.Stdout.Head == "1" || out.Lost == "" {
			t.Errorf("the disk was full when it was to be saved: %+v", out)
		}
		set.Close()
		if left, _ := filepath.Glob(filepath.Join(dir, "*", ".tmp-*")); len(left) != 0 {
			t.Error(left)
		}
	})
}

func TestReadOnlyDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, dir, _, _ := smallDisk(t, e)
		remount := func(flags uintptr) {
			t.Helper()
			if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|flags, ""); err != nil {
				t.Fatal(err)
			}
		}
		set := open()
		suspended, running := get(t, set, "suspended"), get(t, set, "running")
		exec(t, suspended, "set x 1")
		exec(t, running, "set x 2")
		if err := set.Suspend(t.Context(), "suspended"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		remount(unix.MS_RDONLY)
		refused(t, suspended, "read-only file system")
		refused(t, get(t, set, "new"), "read-only file system")
		has(t, running, "2")
		if err := set.Suspend(t.Context(), "running"); !errors.Is(err, syscall.EROFS) {
			t.Error(err)
		}
		has(t, running, "2")
		exec(t, get(t, set, DefaultName), "set x default")
		has(t, get(t, set, DefaultName), DefaultName)
		if list, err := offline(dir).List(); len(list) != 2 || err != nil {
			t.Error(list, err)
		}
		other := open() // one that begins on such a disk
		exec(t, get(t, other, DefaultName), "set x default")
		has(t, get(t, other, DefaultName), DefaultName)
		other.Close()
		remount(0)
		has(t, suspended, "1")
		has(t, running, "2")
		set.Close()
		set = open()
		defer set.Close()
		has(t, get(t, set, "suspended"), "1")
		has(t, get(t, set, "running"), "2")
	})
}

// As the ordinary user, for whom nothing is mounted: a directory that is not
// writable.
func TestForbiddenStateDirectory(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, dir := sets(t, nil)
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		set := open(e)
		refused(t, get(t, set, "work"), "permission denied")
		exec(t, get(t, set, DefaultName), "set x default")
		has(t, get(t, set, DefaultName), DefaultName)
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		exec(t, get(t, set, "work"), "set x 1")
		has(t, get(t, set, "work"), "1")
		set.Close()
	})
}
