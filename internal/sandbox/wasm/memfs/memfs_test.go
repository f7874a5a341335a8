package memfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// meter is a Budget that counts.
type meter struct{ used, limit int64 }

func (m *meter) Take(n int64) bool {
	if m.limit > 0 && m.used+n > m.limit {
		return false
	}
	m.used += n
	return true
}

func (m *meter) Give(n int64) { m.used -= n }

func newBase(t testing.TB) *Base {
	t.Helper()
	b := NewBase()
	for _, err := range []error{
		b.AddFile("/usr/lib/library.zip", "library", 0o644),
		b.AddFS("/opt/program", fstest.MapFS{
			"main.py":     {Data: []byte("main"), ModTime: time.Unix(1e9, 0)},
			"pkg/init.py": {Data: []byte("pkg")},
		}),
		b.AddLink("/lib", "usr/lib"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func newFS(t testing.TB, cfg Config) *FS {
	t.Helper()
	if cfg.Workspace == 0 {
		cfg.Workspace = 1 << 20
	}
	f, err := New(newBase(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// write makes a file with content.
func write(t testing.TB, f *FS, name, data string) {
	t.Helper()
	h, err := f.Open(f.Root(), name, Mode{Write: true, Create: true, Truncate: true})
	if err != nil {
		t.Fatalf("open %s: %v", name, err)
	}
	defer h.Close()
	if n, _, err := h.WriteAt([]byte(data), 0); n != len(data) || err != nil {
		t.Fatalf("write %s: %d of %d bytes, %v", name, n, len(data), err)
	}
}

// read returns the content of a file.
func read(f *FS, name string) (string, error) {
	h, err := f.Open(f.Root(), name, Mode{Read: true})
	if err != nil {
		return "", err
	}
	defer h.Close()
	b, err := io.ReadAll(&reader{file: h, left: h.Stat().Size})
	return string(b), err
}

func TestReadOnlyPart(t *testing.T) {
	f := newFS(t, Config{Files: map[string]string{"/run/sallyport/start.json": "{}", "/etc/passwd": "me"}})
	for name, want := range map[string]string{
		"/usr/lib/library.zip": "library", "lib/library.zip": "library", "/opt/program/pkg/init.py": "pkg",
		"/opt/program/../program/./main.py": "main", "/run/sallyport/start.json": "{}", "//etc///passwd": "me",
		"/../../etc/passwd": "me", "/opt/program/pkg/../../../etc/passwd": "me",
	} {
		if got, err := read(f, name); got != want || err != nil {
			t.Errorf("read %s: %q, %v, want %q", name, got, err, want)
		}
	}
	root := f.Root()
	for _, name := range []string{"/usr/lib/library.zip", "/usr/lib/new", "/new", "/run/sallyport/new", "/run/sallyport/start.json", "/dev/new", "/lib"} {
		if _, err := f.Open(root, name, Mode{Write: true, Create: true}); !errors.Is(err, ErrReadOnly) && !errors.Is(err, ErrIsDir) {
			t.Errorf("write %s: %v, want %v", name, err, ErrReadOnly)
		}
		if err := f.Unlink(root, name); err == nil {
			t.Errorf("unlink %s succeeded", name)
		}
		if err := f.SetTimes(root, name, true, Times{SetAtime: true}); err == nil {
			t.Errorf("set times of %s succeeded", name)
		}
	}
	for _, name := range []string{"/usr", "/workspace", "/", "/dev/..", "/opt/program/."} {
		if err := f.Rmdir(root, name); err == nil {
			t.Errorf("rmdir %s succeeded", name)
		}
	}
	info, err := f.Stat(root, "/opt/program/main.py", true)
	if err != nil || info.Mtime != 1e18 || info.Size != 4 {
		t.Errorf("got %+v, %v, want the time and the size of the program's file", info, err)
	}
}

// TestBaseIsShared: what one file system adds to a directory of the base, another does not
// have.
func TestBaseIsShared(t *testing.T) {
	b := newBase(t)
	one, err := New(b, Config{Files: map[string]string{"/usr/lib/more": "1", "/usr/x/y": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	two, err := New(b, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"/usr/lib/more": true, "/usr/x/y": true, "/usr/lib/../x/../lib/more": true, "/opt/program/../../usr/x/y": true} {
		if _, err := one.Stat(one.Root(), name, true); (err == nil) != want {
			t.Errorf("the first: %s: %v", name, err)
		}
		if _, err := two.Stat(two.Root(), name, true); !errors.Is(err, ErrNotExist) {
			t.Errorf("the second: %s: %v, want %v", name, err, ErrNotExist)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, name := range []string{"", "relative", "/", "/a/../b", "/a//b", "/a/", "/workspace", "/workspace/x", "/usr/lib/library.zip", "/usr/lib/library.zip/x", "/a\x00b", "/" + strings.Repeat("n", 256), "/dev/null/x"} {
		if _, err := New(newBase(t), Config{Files: map[string]string{name: "x"}}); err == nil {
			t.Errorf("a file at %.20q was accepted", name)
		}
	}
	b := newBase(t)
	for _, name := range []string{"", "x", "/", "/usr", "/usr/lib/library.zip", "/opt/program/main.py/x", "/lib/x"} {
		if err := b.AddFile(name, "x", 0o644); err == nil {
			t.Errorf("the base took a file at %q", name)
		}
	}
}

func TestDevices(t *testing.T) {
	f := newFS(t, Config{Rand: strings.NewReader(strings.Repeat("r", 10))})
	for name, want := range map[string]string{"/dev/null": "", "/dev/zero": "\x00\x00\x00\x00", "/dev/urandom": "rrrr", "/dev/random": "rrrr"} {
		h, err := f.Open(f.Root(), name, Mode{Read: true, Write: true, Truncate: true})
		if err != nil {
			t.Fatal(err)
		}
		p := []byte("full")
		if n, err := h.ReadAt(p, 1<<40); string(p[:n]) != want || err != nil {
			t.Errorf("read %s: %q, %v, want %q", name, p[:n], err, want)
		}
		if n, _, err := h.WriteAt(p, 0); n != 4 || err != nil {
			t.Errorf("write %s: %d, %v", name, n, err)
		}
	}
	h, _ := f.Open(f.Root(), "/dev/random", Mode{Read: true})
	if n, err := h.ReadAt(make([]byte, 8), 0); err == nil {
		t.Errorf("read %d random bytes where there are 2", n)
	}
}

func TestLinks(t *testing.T) {
	f := newFS(t, Config{})
	root := f.Root()
	write(t, f, "/workspace/file", "content")
	for name, target := range map[string]string{
		"/workspace/to":   "file",
		"/workspace/abs":  "/workspace/to",
		"/workspace/up":   "../../../../workspace/abs",
		"/workspace/me":   "me",
		"/workspace/a":    "b",
		"/workspace/b":    "a",
		"/workspace/none": "nothing",
		"/workspace/dir":  "/workspace",
		"/workspace/deep": strings.Repeat("dir/", 60) + "file",
	} {
		if err := f.Symlink(target, root, name); err != nil {
			t.Fatalf("symlink %s: %v", name, err)
		}
	}
	for name, want := range map[string]error{
		"up": nil, "me": ErrLoop, "a": ErrLoop, "none": ErrNotExist, "dir/dir/file": nil, "deep": ErrLoop,
		strings.Repeat("dir/", 40) + "file": nil, strings.Repeat("dir/", 41) + "file": ErrLoop,
		"file/": ErrNotDir, "to/": ErrNotDir, "file/x": ErrNotDir,
		strings.Repeat("./", 2048) + "file": ErrNameTooLong, strings.Repeat("n", 256): ErrNameTooLong, "x\x00y": ErrInvalid,
	} {
		if got, err := read(f, "/workspace/"+name); !errors.Is(err, want) || err == nil && got != "content" {
			t.Errorf("read %.30s: %q, %v, want %v", name, got, err, want)
		}
	}
	if _, err := f.Open(root, "/workspace/to", Mode{Read: true, NoFollow: true}); !errors.Is(err, ErrLoop) {
		t.Errorf("open a link without following: %v, want %v", err, ErrLoop)
	}
	if _, err := f.Open(root, "/workspace/none", Mode{Write: true, Create: true, Exclusive: true}); !errors.Is(err, ErrExist) {
		t.Errorf("create exclusively at a link: %v, want %v", err, ErrExist)
	}
	write(t, f, "/workspace/none", "through")
	if got, err := read(f, "/workspace/nothing"); got != "through" || err != nil {
		t.Errorf("a write through a link made %q, %v", got, err)
	}
}

// TestAccounting: everything that is charged is given back.
func TestAccounting(t *testing.T) {
	m := &meter{}
	f := newFS(t, Config{Workspace: 8 << 20, Tmp: 1 << 20, Budget: m})
	root := f.Root()
	for i := range 50 {
		write(t, f, fmt.Sprintf("/workspace/%d", i), strings.Repeat("x", i*i*37))
		if err := f.Symlink("target", root, fmt.Sprintf("/tmp/%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	h, err := f.Open(root, "/workspace/49", Mode{Read: true, Write: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.WriteAt([]byte("far"), 5<<20); err != nil {
		t.Fatal(err)
	}
	if err := h.Truncate(70000); err != nil {
		t.Fatal(err)
	}
	write(t, f, "/workspace/1", "")
	if err := f.Rename(root, "/workspace/2", root, "/workspace/3"); err != nil {
		t.Fatal(err)
	}
	if err := f.Link(root, "/workspace/4", false, root, "/workspace/hard"); err != nil {
		t.Fatal(err)
	}
	if err := f.Put("deep/er/file", strings.NewReader("data"), 4, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.Put("5", strings.NewReader("data"), 4, 0o644); err != nil {
		t.Fatal(err)
	}
	if m.used != f.volumes[0].used+f.volumes[1].used || m.used < 50*50*37 {
		t.Errorf("the budget has %d bytes, the volumes %d and %d", m.used, f.volumes[0].used, f.volumes[1].used)
	}
	for _, dir := range []string{"/workspace", "/tmp"} {
		d, err := f.Open(root, dir, Mode{Read: true, Directory: true})
		if err != nil {
			t.Fatal(err)
		}
		list, err := d.List(2, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if e.Kind == Dir {
				err = errors.Join(f.Unlink(d, e.Name+"/er/file"), f.Rmdir(d, e.Name+"/er"), f.Rmdir(d, e.Name))
			} else {
				err = f.Unlink(d, e.Name)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if m.used == 0 {
		t.Error("an open file that has no name costs nothing")
	}
	h.Close()
	if m.used != 0 || f.entries != 0 || f.volumes[0].used != 0 {
		t.Errorf("%d bytes and %d entries are left, want none", m.used, f.entries)
	}
}

func TestQuota(t *testing.T) {
	m := &meter{limit: 3 << 20}
	f := newFS(t, Config{Workspace: 1 << 20, Tmp: 10 << 20, Entries: 20, Budget: m})
	root := f.Root()
	fill := func(name string) (wrote int64, err error) {
		h, err := f.Open(root, name, Mode{Write: true, Create: true, Append: true})
		if err != nil {
			return 0, err
		}
		defer h.Close()
		p := bytes.Repeat([]byte("x"), 10000)
		for err == nil && wrote < 100<<20 {
			var n int
			n, _, err = h.WriteAt(p, 0)
			wrote += int64(n)
		}
		return wrote, err
	}
	for _, tt := range []struct {
		name     string
		min, max int64
	}{
		{"/workspace/fill", 9 << 16, 1 << 20},
		{"/tmp/fill", 1 << 20, 5 << 19}, // what the budget leaves
		{"/packages/fill", 0, 0},
	} {
		wrote, err := fill(tt.name)
		if !errors.Is(err, ErrNoSpace) || wrote < tt.min || wrote > tt.max {
			t.Errorf("%s took %d bytes, want %d to %d: %v", tt.name, wrote, tt.min, tt.max, err)
		}
	}
	if err := f.Unlink(root, "/workspace/fill"); err != nil {
		t.Error(err)
	}
	write(t, f, "/workspace/again", strings.Repeat("x", 100000))
	h, err := f.Open(root, "/workspace/again", Mode{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Truncate(1<<20 + 1); !errors.Is(err, ErrTooBig) {
		t.Errorf("grow past the quota: %v, want %v", err, ErrTooBig)
	}
	if _, _, err := h.WriteAt([]byte("x"), 1<<62); !errors.Is(err, ErrNoSpace) {
		t.Errorf("write far past the quota: %v, want %v", err, ErrNoSpace)
	}
	if err := f.Put("big", strings.NewReader("x"), 2<<20, 0o644); !errors.Is(err, ErrNoSpace) {
		t.Errorf("put past the quota: %v, want %v", err, ErrNoSpace)
	}
	for i := 0; err == nil && i < 100; i++ {
		err = f.Mkdir(root, fmt.Sprintf("/workspace/%d", i))
	}
	if !errors.Is(err, ErrNoSpace) || f.entries != 20 {
		t.Errorf("%d entries, %v, want 20 and %v", f.entries, err, ErrNoSpace)
	}
}

func TestSparse(t *testing.T) {
	f := newFS(t, Config{Workspace: 64 << 20})
	h, err := f.Open(f.Root(), "/workspace/s", Mode{Read: true, Write: true, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	step := func(what string, do func()) {
		do()
		got := make([]byte, len(want)+10)
		if n, err := h.ReadAt(got, 0); n != len(want) || err != nil || !bytes.Equal(got[:n], want) {
			t.Fatalf("%s: read %d of %d bytes, %v, equal: %t", what, n, len(want), err, bytes.Equal(got[:n], want))
		}
	}
	put := func(p string, off int) {
		if n, end, err := h.WriteAt([]byte(p), int64(off)); n != len(p) || end != int64(off+n) || err != nil {
			t.Fatalf("write at %d: %d, %d, %v", off, n, end, err)
		}
		if len(want) < off+len(p) {
			want = append(want, make([]byte, off+len(p)-len(want))...)
		}
		copy(want[off:], p)
	}
	cut := func(size int) {
		if err := h.Truncate(int64(size)); err != nil {
			t.Fatal(err)
		}
		if size < len(want) {
			want = slices.Clone(want[:size])
		}
		want = append(want, make([]byte, size-len(want))...)
	}
	step("a hole", func() { put("end", 3*chunkSize-1) })
	step("in the hole", func() { put(strings.Repeat("abc", chunkSize/2), chunkSize/2) })
	step("shorter", func() { cut(chunkSize + 100) })
	step("longer", func() { cut(2 * chunkSize) })
	step("more", func() { put("more", 2*chunkSize+10) })
	step("at a border", func() { cut(chunkSize) })
	step("longer again", func() { cut(5*chunkSize + 7) })
	step("empty", func() { cut(0) })
	step("longer from nothing", func() { cut(1 << 20) })
	if used := f.volumes[0].used; used != entryCost+int64(len("s")) {
		t.Errorf("a file that is one hole costs %d bytes, want %d", used, entryCost+len("s"))
	}
}

// TestListWhileChanging: a listing shows what stays exactly once.
func TestListWhileChanging(t *testing.T) {
	f := newFS(t, Config{})
	root := f.Root()
	for i := range 100 {
		write(t, f, fmt.Sprintf("/workspace/%03d", i), "")
	}
	dir, err := f.Open(root, "/workspace", Mode{Read: true})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for cookie, turn := uint64(0), 0; ; turn++ {
		list, err := dir.List(cookie, 3)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			break
		}
		for _, e := range list {
			seen[e.Name]++
			cookie = e.Next
		}
		if turn < 25 { // remove some before and some after the cookie
			for _, i := range []int{turn, 99 - turn} {
				if err := f.Unlink(root, fmt.Sprintf("/workspace/%03d", i)); err != nil {
					t.Fatal(err)
				}
			}
			write(t, f, fmt.Sprintf("/workspace/new%d", turn), "")
		}
	}
	for i := 25; i < 75; i++ {
		if n := seen[fmt.Sprintf("%03d", i)]; n != 1 {
			t.Errorf("%03d was listed %d times, want once", i, n)
		}
	}
	if seen["."] != 1 || seen[".."] != 1 {
		t.Errorf("the directory itself was listed %d times, its parent %d times", seen["."], seen[".."])
	}
}

func TestRemovedDirectory(t *testing.T) {
	f := newFS(t, Config{})
	if err := f.Mkdir(f.Root(), "/workspace/d"); err != nil {
		t.Fatal(err)
	}
	dir, err := f.Open(f.Root(), "/workspace/d", Mode{Read: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Rmdir(f.Root(), "workspace/d/"); err != nil {
		t.Fatal(err)
	}
	if err := f.Mkdir(dir, "x"); !errors.Is(err, ErrNotExist) {
		t.Errorf("mkdir in a removed directory: %v, want %v", err, ErrNotExist)
	}
	if _, err := f.Stat(dir, "..", true); !errors.Is(err, ErrNotExist) {
		t.Errorf("the parent of a removed directory: %v, want %v", err, ErrNotExist)
	}
	if list, err := dir.List(0, 10); len(list) != 2 || err != nil {
		t.Errorf("a removed directory has %v, %v", list, err)
	}
}

// TestMemory: what entries take of the memory is about what they are charged.
func TestMemory(t *testing.T) {
	f := newFS(t, Config{Workspace: 64 << 20, Tmp: 64 << 20})
	root := f.Root()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	const turns = 1000
	for i := range turns {
		dir := fmt.Sprintf("/workspace/%s%d", strings.Repeat("./", 1900), i)
		if err := f.Mkdir(root, dir); err != nil {
			t.Fatal(err)
		}
		for j := range 20 { // leaves only what a removed entry leaves
			if err := errors.Join(f.Mkdir(root, fmt.Sprintf("%s/%d", dir, j)), f.Rmdir(root, fmt.Sprintf("%s/%d", dir, j))); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Symlink("x", root, fmt.Sprintf("/tmp/%s%d", strings.Repeat("n", 200), i)); err != nil {
			t.Fatal(err)
		}
	}
	used := f.volumes[0].used + f.volumes[1].used
	if got := heap() - before; got > 2*used {
		t.Errorf("%d entries take %d bytes and are charged %d", 2*turns, got, used)
	}
	runtime.KeepAlive(f)
}

// tree shows a directory as an fs.FS.
type tree struct {
	fs  *FS
	dir string
}

type openFile struct {
	tree
	name string
	reader
	cookie uint64
}

type fileInfo struct {
	Info
	name string
}

func (i fileInfo) Name() string       { return path.Base(i.name) }
func (i fileInfo) Size() int64        { return i.Info.Size }
func (i fileInfo) ModTime() time.Time { return time.Unix(0, i.Mtime) }
func (i fileInfo) IsDir() bool        { return i.Kind == Dir }
func (i fileInfo) Sys() any           { return nil }
func (i fileInfo) Mode() fs.FileMode {
	if i.Kind == Dir {
		return fs.ModeDir | fs.FileMode(i.Perm)
	}
	return fs.FileMode(i.Perm)
}

func (t tree) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	h, err := t.fs.Open(t.fs.Root(), path.Join(t.dir, name), Mode{Read: true})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &openFile{t, name, reader{file: h, left: h.Stat().Size}, firstCookie}, nil
}

func (o *openFile) Stat() (fs.FileInfo, error) { return fileInfo{o.file.Stat(), o.name}, nil }

func (o *openFile) ReadDir(n int) ([]fs.DirEntry, error) {
	limit := n
	if n <= 0 {
		limit = 1 << 20
	}
	list, err := o.file.List(o.cookie, limit)
	var entries []fs.DirEntry
	for _, e := range list {
		info, err := o.fs.Stat(o.file, e.Name, false)
		if err != nil {
			return nil, err
		}
		entries = append(entries, fs.FileInfoToDirEntry(fileInfo{info, e.Name}))
		o.cookie = e.Next
	}
	if err == nil && n > 0 && len(list) == 0 {
		err = io.EOF
	}
	return entries, err
}

func TestAsFS(t *testing.T) {
	f := newFS(t, Config{})
	for _, name := range []string{"a", "b/c", "b/d/e", "long"} {
		if err := f.Put(name, strings.NewReader(strings.Repeat(name, 30000)), int64(len(name)*30000), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := fstest.TestFS(tree{f, "/workspace"}, "a", "b/c", "b/d/e", "long"); err != nil {
		t.Error(err)
	}
	if err := fstest.TestFS(tree{f, "/opt/program"}, "main.py", "pkg/init.py"); err != nil {
		t.Error(err)
	}
}
