package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// countVariable makes the test executable add to a counter and end.
const countVariable = "STATE_TEST_COUNT_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(countVariable); dir != "" {
		for range 50 {
			if err := count(At(dir)); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
		return
	}
	os.Exit(m.Run())
}

func count(d Dir) error {
	unlock, err := d.Lock("counter")
	if err != nil {
		return err
	}
	defer unlock()
	n := 0
	data, err := d.Read("counter", 100)
	if err == nil {
		n, err = strconv.Atoi(string(data))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.Write("counter", []byte(strconv.Itoa(n+1)))
}

func TestFiles(t *testing.T) {
	d := At(filepath.Join(t.TempDir(), "not", "there")).Sub("yet")
	if names, err := d.List(); names != nil || err != nil {
		t.Fatal(names, err)
	}
	if _, err := d.Read("a", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		if err := d.Write("a", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if data, err := d.Read("a", 3); string(data) != text || err != nil {
			t.Fatal(string(data), err)
		}
	}
	if _, err := d.Read("a", 2); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	for path, want := range map[string]fs.FileMode{"": 0o700, "a": 0o600} {
		info, err := os.Stat(d.Path(path))
		if err != nil || info.Mode().Perm() != want {
			t.Error(path, info, err)
		}
	}
	if err := d.Remove("a"); err != nil {
		t.Error(err)
	}
	if err := d.Remove("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	d := At(t.TempDir())
	for _, name := range []string{"", ".", "..", "../a", "a/b", `a\b`, ".hidden", "a\x00"} {
		_, readErr := d.Read(name, 10)
		_, lockErr := d.Lock(name)
		for _, err := range []error{readErr, lockErr, d.Write(name, nil), d.Remove(name)} {
			if err == nil || !strings.Contains(err.Error(), "not a valid file name") {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	if err := At("").Sub("x").Write("a", nil); !errors.Is(err, ErrNoPlace) {
		t.Error(err)
	}
	if names, err := At("").List(); names != nil || err != nil {
		t.Error(names, err)
	}
}

func TestListLeavesOutWhatIsNoFile(t *testing.T) {
	d := At(t.TempDir())
	for _, name := range []string{"b", "a"} {
		if err := d.Write(name, nil); err != nil {
			t.Fatal(err)
		}
	}
	unlock, err := d.Lock("a")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	for _, name := range []string{temporary + "new", temporary + "old"} {
		if err := os.WriteFile(d.Path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * abandoned)
	if err := errors.Join(os.Chtimes(d.Path(temporary+"old"), long, long), os.Symlink("/etc/passwd", d.Path("link")), os.Mkdir(d.Path("dir"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if names, err := d.List(); strings.Join(names, " ") != "a b" || err != nil {
		t.Error(names, err)
	}
	if _, err := os.Stat(d.Path(temporary + "old")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("what a crash left is still there", err)
	}
	if _, err := os.Stat(d.Path(temporary + "new")); err != nil {
		t.Error("what is being written is gone", err)
	}
	if _, err := d.Read("link", 1<<20); err == nil {
		t.Error("followed a link")
	}
}

// TestLock: of several processes and goroutines none loses another's change.
func TestLock(t *testing.T) {
	d := At(t.TempDir())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 25 {
				if err := count(d); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), countVariable+"="+d.Path(""))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	if data, err := d.Read("counter", 100); string(data) != "300" || err != nil {
		t.Error(string(data), err)
	}
}

func TestTryLock(t *testing.T) {
	d := At(t.TempDir())
	unlock, ok, err := d.TryLock("a")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, ok, err := d.TryLock("a"); ok || err != nil {
		t.Error("had twice", ok, err)
	}
	if other, ok, err := d.TryLock("b"); !ok || err != nil {
		t.Error("another name", ok, err)
	} else {
		other()
	}
	unlock()
	if again, ok, err := d.TryLock("a"); !ok || err != nil {
		t.Error("not free again", ok, err)
	} else {
		again()
	}
	if _, ok, err := At("").TryLock("a"); ok || !errors.Is(err, ErrNoPlace) {
		t.Error(ok, err)
	}
}

// A lock that nobody holds is no file, and it is never held twice, though its
// file comes and goes.
func TestTryLockLeavesNothing(t *testing.T) {
	d := At(t.TempDir())
	var holders, got atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				unlock, ok, err := d.TryLock("a")
				if err != nil {
					t.Error(err)
				}
				if !ok {
					continue
				}
				if holders.Add(1) != 1 {
					t.Error("had twice")
				}
				got.Add(1)
				holders.Add(-1)
				unlock()
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(d.Path("")); len(left) != 0 || err != nil {
		t.Error(left, err)
	}
	if got.Load() == 0 {
		t.Error("nobody ever had it")
	}
}

func TestWriteUnsynced(t *testing.T) {
	d := At(filepath.Join(t.TempDir(), "not", "there"))
	for _, content := range []string{"one", "two"} {
		if err := d.WriteUnsynced("a", []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Read("a", 10); string(got) != content || err != nil {
			t.Errorf("%s %v", got, err)
		}
	}
	if names, err := d.List(); len(names) != 1 || err != nil {
		t.Error(names, err)
	}
}
