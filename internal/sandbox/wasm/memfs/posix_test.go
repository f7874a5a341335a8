//go:build linux

package memfs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// numbers are the errors of the machine's own file system.
var numbers = map[syscall.Errno]Errno{
	syscall.EEXIST: ErrExist, syscall.EINVAL: ErrInvalid, syscall.EISDIR: ErrIsDir, syscall.ELOOP: ErrLoop,
	syscall.ENOENT: ErrNotExist, syscall.ENOTDIR: ErrNotDir, syscall.ENOTEMPTY: ErrNotEmpty, syscall.EPERM: ErrPermission,
	syscall.EBUSY: ErrBusy, syscall.ENAMETOOLONG: ErrNameTooLong,
}

// outcome shows the error of either file system.
func outcome(err error) string {
	if err == nil {
		return "success"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		if number, ok := numbers[errno]; ok {
			return number.Error()
		}
	}
	if errno, ok := errors.AsType[Errno](err); ok {
		return errno.Error()
	}
	return "another error: " + err.Error()
}

// TestLikeTheMachine does the same with a directory of the machine and with one in
// memory.
func TestLikeTheMachine(t *testing.T) {
	for seed := range int64(20) {
		random := rand.New(rand.NewSource(seed))
		f := newFS(t, Config{Workspace: 64 << 20})
		// A link may lead out of the directory: both have one above it.
		machine := filepath.Join(t.TempDir(), "dir")
		if err := errors.Join(os.Mkdir(machine, 0o755), f.Mkdir(f.Root(), "/workspace/dir")); err != nil {
			t.Fatal(err)
		}
		name := func() string {
			parts := make([]string, 1+random.Intn(3))
			for i := range parts {
				parts[i] = string("abcd"[random.Intn(4)])
			}
			return strings.Join(parts, "/")
		}
		var log []string
		for range 400 {
			what, got, want := both(random, f, machine, name)
			log = append(log, what)
			if got != want {
				t.Fatalf("seed %d:\n%s\ngot %s, want %s", seed, strings.Join(log, "\n"), got, want)
			}
		}
	}
}

// both does something in both file systems, and says what and what came of it.
func both(random *rand.Rand, f *FS, machine string, name func() string) (what, got, want string) {
	a, b := name(), name()
	slash := ""
	if random.Intn(6) == 0 {
		slash = "/"
	}
	mem := func(s string) string { return "/workspace/dir/" + s }
	real := func(s string) string { return machine + "/" + s }
	root := f.Root()
	switch op := random.Intn(11); op {
	case 0, 1:
		return "mkdir " + a + slash, outcome(f.Mkdir(root, mem(a+slash))), outcome(syscall.Mkdir(real(a+slash), 0o755))
	case 2:
		return "rmdir " + a + slash, outcome(f.Rmdir(root, mem(a+slash))), outcome(syscall.Rmdir(real(a + slash)))
	case 3:
		return "unlink " + a + slash, outcome(f.Unlink(root, mem(a+slash))), outcome(syscall.Unlink(real(a + slash)))
	case 4:
		return "rename " + a + slash + " " + b, outcome(f.Rename(root, mem(a+slash), root, mem(b))), outcome(syscall.Rename(real(a+slash), real(b)))
	case 5:
		target := strings.Repeat("../", random.Intn(2)) + name()
		return "symlink " + target + " " + a, outcome(f.Symlink(target, root, mem(a))), outcome(syscall.Symlink(target, real(a)))
	case 6:
		return "link " + a + " " + b, outcome(f.Link(root, mem(a), false, root, mem(b))), outcome(syscall.Link(real(a), real(b)))
	case 7, 8:
		flags, mode := syscall.O_WRONLY, Mode{Write: true}
		for _, o := range []struct {
			flag int
			set  *bool
		}{{syscall.O_CREAT, &mode.Create}, {syscall.O_EXCL, &mode.Exclusive}, {syscall.O_TRUNC, &mode.Truncate}, {syscall.O_NOFOLLOW, &mode.NoFollow}} {
			if *o.set = random.Intn(2) == 0; *o.set {
				flags |= o.flag
			}
		}
		if !mode.Create && mode.Exclusive {
			flags, mode.Exclusive = flags&^syscall.O_EXCL, false // undefined
		}
		data, off := bytes.Repeat([]byte("x"), random.Intn(200)), int64(random.Intn(100000))
		h, err := f.Open(root, mem(a), mode)
		if err == nil {
			_, _, err = h.WriteAt(data, off)
			h.Close()
		}
		fd, wantErr := syscall.Open(real(a), flags|syscall.O_CLOEXEC, 0o644)
		if wantErr == nil {
			_, wantErr = syscall.Pwrite(fd, data, off)
			syscall.Close(fd)
		}
		return fmt.Sprintf("write %s %+v %d at %d", a, mode, len(data), off), outcome(err), outcome(wantErr)
	case 9:
		info, err := f.Stat(root, mem(a+slash), false)
		st, wantErr := os.Lstat(real(a + slash))
		got, want = outcome(err), outcome(wantErr)
		if err == nil && wantErr == nil {
			got += fmt.Sprint(info.Kind == Dir, info.Kind == Symlink)
			want += fmt.Sprint(st.IsDir(), st.Mode().Type() == os.ModeSymlink)
			if info.Kind == Regular {
				got += fmt.Sprint(info.Nlink, info.Size)
				want += fmt.Sprint(st.Sys().(*syscall.Stat_t).Nlink, st.Size())
			}
		}
		return "stat " + a + slash, got, want
	}
	data, err := read(f, mem(a))
	wantData, wantErr := os.ReadFile(real(a))
	if err == nil && wantErr == nil {
		return "read " + a, fmt.Sprintf("%q", data), fmt.Sprintf("%q", wantData)
	}
	resolved, _ := filepath.EvalSymlinks(real(a))
	if info, err := os.Stat(resolved); err == nil && info.IsDir() {
		return "read " + a, "a directory", "a directory"
	}
	return "read " + a, outcome(err), outcome(wantErr)
}

// FuzzPaths walks any path, with any link on the way.
func FuzzPaths(f *testing.F) {
	for _, s := range [][2]string{{"a/b", "c"}, {"../..", "/"}, {"l/l/l", "l"}, {"/dev/../l/x", "../workspace/"}, {strings.Repeat("l/", 50), "."}} {
		f.Add(s[0], s[1])
	}
	base := newBase(f)
	f.Fuzz(func(t *testing.T, name, target string) {
		m := &meter{limit: 1 << 20}
		tree, err := New(base, Config{Workspace: 1 << 20, Tmp: 1 << 20, Budget: m})
		if err != nil {
			t.Fatal(err)
		}
		root := tree.Root()
		_ = tree.Symlink(target, root, "/workspace/l")
		dir, err := tree.Open(root, "/workspace", Mode{Read: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []*File{root, dir} {
			_ = tree.Mkdir(at, name)
			if h, err := tree.Open(at, name, Mode{Read: true, Write: true, Create: true}); err == nil {
				h.Close()
			}
			_, _ = tree.Stat(at, name, true)
			_, _ = tree.Readlink(at, name)
			_ = tree.Link(at, name, true, dir, target)
			_ = tree.Rename(at, name, dir, target)
			_ = tree.Rename(dir, target, at, name)
			_ = tree.Unlink(at, name)
			_ = tree.Rmdir(at, name)
		}
		_ = tree.Put(name, strings.NewReader("x"), 1, 0o644)
		if r, err := tree.Get(name); err == nil {
			r.Close()
		}
		used := int64(0)
		for _, v := range tree.volumes {
			used += v.used
		}
		if m.used != used || tree.entries < 0 || used < int64(tree.entries)*entryCost {
			t.Errorf("%d entries, the budget has %d bytes, the volumes %d", tree.entries, m.used, used)
		}
		if len(base.nodes) != len(newBase(t).nodes) {
			t.Error("the base has changed")
		}
	})
}

// TestEntryCost: an entry costs its name, and a directory more than a file, whatever
// happens to it.
func TestEntryCost(t *testing.T) {
	long := strings.Repeat("n", maxName)
	f := newFS(t, Config{Workspace: 3 * (entryCost + dirCost)})
	root := f.Root()
	in := func(name string) string { return "/workspace/" + name }
	for _, step := range []struct {
		what string
		do   func() error
		want int64
		err  error
	}{
		{"a directory", func() error { return f.Mkdir(root, in(long)) }, entryCost + dirCost + maxName, nil},
		{"a shorter name", func() error { return f.Rename(root, in(long), root, in("d")) }, entryCost + dirCost + 1, nil},
		{"a longer name", func() error { return f.Rename(root, in("d"), root, in(long)) }, entryCost + dirCost + maxName, nil},
		{"another", func() error { return f.Mkdir(root, in("e")) }, 2*(entryCost+dirCost) + maxName + 1, nil},
		{"in its place", func() error { return f.Rename(root, in("e"), root, in(long)) }, entryCost + dirCost + maxName, nil},
		{"a link", func() error { return f.Symlink("xyz", root, in("l")) }, 2*entryCost + dirCost + maxName + 4, nil},
		{"links with other names", func() error {
			for i := range 2 {
				if err := f.Symlink("xyz", root, in(strings.Repeat("m", i+1))); err != nil {
					return err
				}
			}
			return nil
		}, 4*entryCost + dirCost + maxName + 13, nil},
		{"no room for a name", func() error { return f.Rename(root, in("l"), root, in(long[:maxName-1])) }, 4*entryCost + dirCost + maxName + 13, ErrNoSpace},
		{"removal", func() error {
			return errors.Join(f.Rmdir(root, in(long)), f.Unlink(root, in("l")), f.Unlink(root, in("m")), f.Unlink(root, in("mm")))
		}, 0, nil},
	} {
		err := step.do()
		if used := f.volumes[0].used; !errors.Is(err, step.err) || used != step.want {
			t.Errorf("%s: got %v and %d bytes, want %v and %d", step.what, err, used, step.err, step.want)
		}
	}
}

// TestFileNumbers: a file keeps its number under every name, and while it is open without
// one. No other file gets it: SQLite knows files by their numbers.
func TestFileNumbers(t *testing.T) {
	f := newFS(t, Config{Tmp: 1 << 20})
	root := f.Root()
	write(t, f, "/workspace/a", "first")
	write(t, f, "/workspace/b", "second")
	first, err := f.Open(root, "/workspace/a", Mode{Read: true})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	before := first.Stat()
	seen := map[uint64]string{before.Ino: "a"}
	other := func(name string) {
		t.Helper()
		info, err := f.Stat(root, name, true)
		if err != nil {
			t.Fatal(err)
		}
		if was := seen[info.Ino]; was != "" {
			t.Errorf("%s has the number %d, which is that of %s", name, info.Ino, was)
		}
		seen[info.Ino] = name
	}
	same := func(what string, got Info) {
		t.Helper()
		if got.Dev != before.Dev || got.Ino != before.Ino {
			t.Errorf("%s: got %d on %d, want %d on %d", what, got.Ino, got.Dev, before.Ino, before.Dev)
		}
	}
	other("/workspace/b")
	for _, err := range []error{
		f.Mkdir(root, "/workspace/d"),
		f.Rename(root, "/workspace/a", root, "/workspace/d/c"),
		f.Link(root, "/workspace/d/c", false, root, "/workspace/e"),
		f.Rename(root, "/workspace/d/c", root, "/workspace/b"), // in place of another
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"/workspace/b", "/workspace/e"} {
		info, err := f.Stat(root, name, true)
		if err != nil {
			t.Fatal(err)
		}
		same(name, info)
	}
	write(t, f, "/workspace/a", "third")
	other("/workspace/a")
	if err := errors.Join(f.Unlink(root, "/workspace/b"), f.Unlink(root, "/workspace/e")); err != nil {
		t.Fatal(err)
	}
	same("the open file without a name", first.Stat())
	for _, name := range []string{"/workspace/b", "/workspace/e", "/tmp/a"} {
		write(t, f, name, "fourth")
		other(name)
	}
	if err := f.Put("a", strings.NewReader("host"), 4, 0o644); err != nil { // as a new file
		t.Fatal(err)
	}
	other("/workspace/a")
	write(t, f, "/workspace/a", "guest") // as the same file
	info, err := f.Stat(root, "/workspace/a", true)
	if err != nil {
		t.Fatal(err)
	}
	if seen[info.Ino] != "/workspace/a" {
		t.Errorf("writing has changed the number to %d", info.Ino)
	}
}
