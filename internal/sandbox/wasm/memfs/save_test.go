package memfs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"runtime"
	"strings"
	"testing"
	"time"
)

// dump describes everything that a program sees of the writable trees.
func dump(t testing.TB, f *FS) string {
	t.Helper()
	var b strings.Builder
	for dirs := []string{"/workspace", "/tmp", "/packages"}; len(dirs) > 0; dirs = dirs[1:] {
		h, err := f.Open(f.Root(), dirs[0], Mode{Read: true})
		if err != nil {
			t.Fatal(err)
		}
		list, err := h.List(0, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		h.Close()
		for _, e := range list {
			name := dirs[0] + "/" + e.Name
			info, err := f.Stat(f.Root(), name, false)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s %d %+v", name, e.Next, info)
			switch {
			case e.Kind == Dir && e.Name != "." && e.Name != "..":
				dirs = append(dirs, name)
			case e.Kind == Symlink:
				target, err := f.Readlink(f.Root(), name)
				fmt.Fprintf(&b, " %q %v", target, err)
			case e.Kind == Regular:
				data, err := read(f, name)
				fmt.Fprintf(&b, " %q %v", data, err)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// fixed is a clock that stands still, so that reading a file does not change it.
func fixed() time.Time { return time.Unix(1700000000, 0) }

func sample(t testing.TB) (*FS, []*File) {
	t.Helper()
	f := newFS(t, Config{Tmp: 1 << 20, Now: fixed})
	root := f.Root()
	write(t, f, "/workspace/file", strings.Repeat("abc", 60000))
	write(t, f, "/tmp/gone", "unlinked")
	write(t, f, "/tmp/removed", "")
	h, err := f.Open(root, "/workspace/sparse", Mode{Read: true, Write: true, Append: true, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Truncate(300000); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.WriteAt([]byte("end"), 0); err != nil {
		t.Fatal(err)
	}
	gone, err := f.Open(root, "/tmp/gone", Mode{Read: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		f.Mkdir(root, "/workspace/d"), f.Mkdir(root, "/workspace/d/e"), f.Mkdir(root, "/tmp/lost"),
		f.Symlink("../file", root, "/workspace/d/link"),
		f.Link(root, "/workspace/file", false, root, "/workspace/d/e/hard"),
		f.Unlink(root, "/tmp/removed"), f.Unlink(root, "/tmp/gone"),
		f.SetTimes(root, "/workspace/d", true, Times{Atime: 1, Mtime: 2, SetAtime: true, SetMtime: true}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	files := []*File{root, h, gone, gone}
	for _, name := range []string{"/usr/lib/library.zip", "/workspace", "/workspace/file", "/dev/null", "/usr", "/tmp/lost"} {
		file, err := f.Open(root, name, Mode{Read: true})
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	if err := f.Rmdir(root, "/tmp/lost"); err != nil {
		t.Fatal(err)
	}
	return f, files
}

func TestSaveAndLoad(t *testing.T) {
	f, files := sample(t)
	var saved bytes.Buffer
	if err := f.Save(&saved, files); err != nil {
		t.Fatal(err)
	}
	saved.WriteString("what follows")
	r := bufio.NewReaderSize(&saved, chunkSize)
	m := &meter{}
	got, open, err := Load(newBase(t), Config{Workspace: 1 << 20, Tmp: 1 << 20, Budget: m, Now: fixed}, r)
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(r); string(rest) != "what follows" || err != nil {
		t.Errorf("%q is left after Load, %v, want what follows", rest, err)
	}
	if got, want := dump(t, got), dump(t, f); got != want {
		t.Errorf("loaded:\n%.2000s\nsaved:\n%.2000s", got, want)
	}
	if len(open) != len(files) {
		t.Fatalf("%d files are open, want %d", len(open), len(files))
	}
	for i := range files {
		if got, want := open[i].Stat(), files[i].Stat(); got != want || open[i].Mode() != files[i].Mode() {
			t.Errorf("file %d: %+v, %+v, want %+v, %+v", i, got, open[i].Mode(), want, files[i].Mode())
		}
	}
	p := make([]byte, 20)
	if n, err := open[2].ReadAt(p, 0); string(p[:n]) != "unlinked" || err != nil {
		t.Errorf("the file without a name has %q, %v", p[:n], err)
	}
	before := m.used
	open[2].Close()
	if m.used != before {
		t.Error("a file was released while it is open a second time")
	}
	open[3].Close()
	if m.used != before-minChunk-indexCost {
		t.Errorf("the file without a name gave %d bytes back, want %d", before-m.used, minChunk+indexCost)
	}
	for i, v := range got.volumes {
		if want := f.volumes[i].used; v.used > want {
			t.Errorf("volume %d uses %d bytes after Load, want at most %d", i, v.used, want)
		}
	}
	write(t, got, "/workspace/new", "new")
	if info, _ := got.Stat(got.Root(), "/workspace/new", true); info.Ino < f.nextIno {
		t.Errorf("a new file has the number %d, want one of at least %d", info.Ino, f.nextIno)
	}
}

func TestLoadRefuses(t *testing.T) {
	f, files := sample(t)
	var saved bytes.Buffer
	if err := f.Save(&saved, files); err != nil {
		t.Fatal(err)
	}
	m := &meter{}
	load := func(base *Base, workspace int64, data []byte) error {
		_, _, err := Load(base, Config{Workspace: workspace, Tmp: 1 << 20, Budget: m}, bytes.NewReader(data))
		if err != nil && m.used != 0 {
			t.Errorf("Load failed with %v and keeps %d bytes", err, m.used)
		}
		return err
	}
	base := newBase(t)
	if err := load(base, 100000, saved.Bytes()); !errors.Is(err, ErrNoSpace) && !errors.Is(err, errCorrupt) {
		t.Errorf("with a smaller quota: %v", err)
	}
	for n := 0; n < saved.Len(); n += 1 + n/50 {
		if err := load(base, 1<<20, saved.Bytes()[:n]); !errors.Is(err, errCorrupt) {
			t.Errorf("%d of %d bytes: %v, want %v", n, saved.Len(), err, errCorrupt)
		}
	}
	if err := base.AddFile("/more", "", 0o644); err != nil {
		t.Fatal(err)
	}
	if err := load(base, 1<<20, saved.Bytes()); err == nil {
		t.Error("it was loaded over another base")
	}
}

// TestSaveFails: an error of the writer is reported.
func TestSaveFails(t *testing.T) {
	f, files := sample(t)
	r, w := io.Pipe()
	r.CloseWithError(errors.New("the disk is full"))
	if err := f.Save(w, files); err == nil || err.Error() != "the disk is full" {
		t.Errorf("got %v, want the writer's error", err)
	}
}

func FuzzLoad(f *testing.F) {
	tree, files := sample(f)
	var saved bytes.Buffer
	if err := tree.Save(&saved, files); err != nil {
		f.Fatal(err)
	}
	f.Add(saved.Bytes())
	small := newFS(f, Config{})
	saved.Reset()
	if err := small.Save(&saved, []*File{small.Root()}); err != nil {
		f.Fatal(err)
	}
	f.Add(saved.Bytes())
	base := newBase(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		checkLoad(t, base, data)
	})
}

// checkLoad loads what may be anything. What is accepted has to be in order.
func checkLoad(t testing.TB, base *Base, data []byte) {
	m := &meter{limit: 1 << 20}
	cfg := Config{Workspace: 512 << 10, Tmp: 512 << 10, Packages: 512 << 10, Entries: 1000, Budget: m, Now: fixed}
	got, files, err := Load(base, cfg, bytes.NewReader(data))
	if err != nil {
		if m.used != 0 {
			t.Errorf("Load failed with %v and keeps %d bytes", err, m.used)
		}
		return
	}
	dump(t, got) // reading changes the times of access
	first := dump(t, got)
	var saved bytes.Buffer
	if err := got.Save(&saved, files); err != nil {
		t.Fatal(err)
	}
	again, _, err := Load(base, cfg, &saved)
	if err != nil && !errors.Is(err, ErrNoSpace) { // the budget is in use
		t.Fatalf("what was loaded cannot be loaded again: %v", err)
	}
	if err == nil && dump(t, again) != first {
		t.Fatalf("what was loaded:\n%.2000s\nand loaded again:\n%.2000s", first, dump(t, again))
	}
}

// TestLoadDamaged changes bytes of a saved file system.
func TestLoadDamaged(t *testing.T) {
	f := newFS(t, Config{Tmp: 1 << 20, Now: fixed})
	root := f.Root()
	write(t, f, "/workspace/file", "content")
	for _, err := range []error{
		f.Mkdir(root, "/workspace/d"), f.Symlink("file", root, "/workspace/d/link"),
		f.Link(root, "/workspace/file", false, root, "/workspace/d/hard"), f.Mkdir(root, "/tmp/d"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir, err := f.Open(root, "/workspace/d", Mode{Read: true})
	if err != nil {
		t.Fatal(err)
	}
	var saved bytes.Buffer
	if err := f.Save(&saved, []*File{root, dir}); err != nil {
		t.Fatal(err)
	}
	base, random := newBase(t), rand.New(rand.NewSource(1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const turns = 20000
	for range turns {
		data := bytes.Clone(saved.Bytes())
		for range 1 + random.Intn(3) {
			data[random.Intn(len(data)-40)+40] = byte(random.Intn(256))
		}
		checkLoad(t, base, data)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / turns; each > 2<<20 {
		t.Errorf("a load takes %d bytes on average, want at most 2 MiB", each)
	}
}
