package memfs

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"
)

// tarOf returns an archive. Headers without a type are of regular files.
func tarOf(t testing.TB, headers ...tar.Header) *bytes.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte("x"), int(h.Size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b.Bytes())
}

// upTo returns what refuses more than so many bytes.
func upTo(limit int64) func(int64) error {
	return func(n int64) error {
		if limit -= n; limit < 0 {
			return ErrNoSpace
		}
		return nil
	}
}

func TestAddArchive(t *testing.T) {
	at := time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
	base := NewBase()
	err := base.AddArchive(t.Context(), "/lib/packages", tarOf(t, tar.Header{Name: "a/b.py", Size: 3, Mode: 0o4777, ModTime: at}, tar.Header{Name: "c", ModTime: at}), upTo(3*entryCost+dirCost+int64(len("a"+"b.py"+"c")+3)))
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(base, Config{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := f.found(f.root, "/lib/packages/a/b.py", true)
	if err != nil || n.text != "xxx" || n.perm != 0o555 || n.mtime != at.UnixNano() || n.vol != nil {
		t.Errorf("got %+v, %v, want a read-only file as it is in the archive", n, err)
	}
}

// TestHostileArchives: none of them is taken, and none does any harm.
func TestHostileArchives(t *testing.T) {
	whole, err := io.ReadAll(tarOf(t, tar.Header{Name: "a", Size: 2000}))
	if err != nil {
		t.Fatal(err)
	}
	file := func(names ...string) io.ReaderAt {
		var all []tar.Header
		for _, name := range names {
			all = append(all, tar.Header{Name: name})
		}
		return tarOf(t, all...)
	}
	for what, bad := range map[string]io.ReaderAt{
		"above":             file("../a"),
		"above, hidden":     file("a/../../b"),
		"elsewhere":         file("/usr/lib/python313.zip"),
		"not clean":         file("a//b"),
		"the folder itself": file("."),
		"no name":           file(""),
		"long name":         file(strings.Repeat("a", maxName+1)),
		"long path":         file(strings.Repeat("a/", maxPath) + "a"),
		"twice":             file("a", "a"),
		"below a file":      file("a", "a/b"),
		"a folder's place":  file("a/b", "a"),
		"link":              tarOf(t, tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc"}),
		"second name":       tarOf(t, tar.Header{Name: "a", Typeflag: tar.TypeLink, Linkname: "b"}),
		"device":            tarOf(t, tar.Header{Name: "a", Typeflag: tar.TypeChar}),
		"too deep":          file(strings.Repeat("a/", maxArchiveDepth) + "a"),
		"larger than it is": bytes.NewReader(announced(t, 1<<35)),
		"breaks off":        bytes.NewReader(whole[:1500]),
		"no archive":        strings.NewReader(strings.Repeat("no archive", 1000)),
	} {
		if err := NewBase().AddArchive(t.Context(), "/lib/packages", bad, upTo(1<<40)); err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
	if err := NewBase().AddArchive(t.Context(), "/dev/null", file("a"), upTo(1)); !errors.Is(err, ErrNotDir) || errors.Is(err, fs.ErrExist) {
		t.Errorf("in the place of a file: got %v, want %v", err, ErrNotDir)
	}
}

// announced returns an archive whose only header has the size, without the content.
func announced(t *testing.T, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: size}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestArchiveCost: content, files and directories are asked for, each before it exists.
func TestArchiveCost(t *testing.T) {
	archive := func() io.ReaderAt { return tarOf(t, tar.Header{Name: "a/b/c", Size: 10}, tar.Header{Name: "a/d"}) }
	const whole = 10 + 4*(entryCost+1) + 2*dirCost
	used := int64(0)
	count := func(n int64) error { used += n; return nil }
	if err := NewBase().AddArchive(t.Context(), "/lib/packages", archive(), count); err != nil || used != whole {
		t.Errorf("got %d bytes, %v, want %d", used, err, whole)
	}
	for _, limit := range []int64{0, 10, 10 + entryCost + dirCost + 1, whole - 1} {
		if err := NewBase().AddArchive(t.Context(), "/lib/packages", archive(), upTo(limit)); !errors.Is(err, ErrNoSpace) {
			t.Errorf("with %d bytes: got %v, want %v", limit, err, ErrNoSpace)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := NewBase().AddArchive(ctx, "/lib/packages", archive(), count); !errors.Is(err, context.Canceled) {
		t.Errorf("of nobody any more: got %v, want %v", err, context.Canceled)
	}
}

func FuzzAddArchive(f *testing.F) {
	for _, r := range []*bytes.Reader{tarOf(f, tar.Header{Name: "a/b.py", Size: 3}), tarOf(f, tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "b"})} {
		data, _ := io.ReadAll(r)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := NewBase()
		if b.AddArchive(t.Context(), "/lib/packages", bytes.NewReader(data), upTo(1<<20)) != nil {
			return
		}
		if _, err := New(b, Config{}); err != nil {
			t.Error(err)
		}
	})
}
