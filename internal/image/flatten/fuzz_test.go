package flatten

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var fuzzLimits = Limits{Bytes: 1 << 20, Entries: 200}

// unpackBetween unpacks layers into a directory and finds out whether anything
// was written beside it. It returns nil where the layers are refused.
func unpackBetween(t *testing.T, layers ...Layer) []string {
	top := t.TempDir()
	dir := filepath.Join(top, "in", "root")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	report, err := Unpack(t.Context(), dir, layers, fuzzLimits, nil)
	for _, at := range []string{top, filepath.Join(top, "in")} {
		if entries, err := os.ReadDir(at); err != nil || len(entries) != 1 {
			t.Fatalf("written outside: %v, %v", entries, err)
		}
	}
	if err != nil {
		if !errors.Is(err, ErrLayer) {
			t.Fatalf("not the layers' fault: %v", err)
		}
		return nil
	}
	list := listing(t, dir)
	if len(list) != report.Entries || report.Bytes > fuzzLimits.Bytes {
		t.Fatalf("%d entries, and %+v", len(list), report)
	}
	var packed bytes.Buffer
	if err := Pack(t.Context(), &packed, dir); err != nil {
		t.Fatal(err)
	}
	again := t.TempDir()
	if _, err := Unpack(t.Context(), again, []Layer{layerOf(packed.Bytes(), packed.Bytes())}, Limits{}, nil); err != nil {
		t.Fatal(err)
	}
	if got := listing(t, again); strings.Join(got, "\n") != strings.Join(list, "\n") {
		t.Fatalf("packed and unpacked it is another:\n%q\n%q", got, list)
	}
	return list
}

// entriesOf reads a layer from lines: a letter for the type, a name, a target.
func entriesOf(t *testing.T, text string) Layer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		if len(f) < 3 {
			continue
		}
		h := tar.Header{Name: f[1], Linkname: f[2], Mode: 0o644, Typeflag: tar.TypeReg}
		switch f[0] {
		case "d":
			h.Typeflag, h.Linkname = tar.TypeDir, ""
		case "s":
			h.Typeflag = tar.TypeSymlink
		case "l":
			h.Typeflag = tar.TypeLink
		case "n":
			h.Typeflag, h.Linkname = tar.TypeChar, ""
		default:
			h.Linkname, h.Size = "", int64(len(f[2]))
		}
		if err := w.WriteHeader(&h); err != nil {
			continue // not a name that an archive can have
		}
		if h.Size > 0 {
			_, _ = io.WriteString(w, f[2])
		}
	}
	if err := w.Close(); err != nil {
		t.Skip(err)
	}
	return layerOf(b.Bytes(), b.Bytes())
}

// FuzzUnpack: whatever two layers say, nothing is written outside of the
// directory, what is written can be read and removed, and packing and unpacking
// it gives the same again.
func FuzzUnpack(f *testing.F) {
	for _, seed := range [][2]string{
		{"f a 1\nd d -\ns s ../../d\nl l a", "f .wh.a -\nf d/.wh..wh..opq -\nf s/x x"},
		{"s d /\nf d/d/d/../x 1", "l y d/x\nf ../z 1"},
		{"n null -\nf d 1\nd d -", "f d/n 1\nn d -"},
		{"s a b\ns b a", "f a/x 1"},
		{"d x/y/z -\ns l x/y\nf l/z/f 1", "f .wh.x -\nf l/n 1\ns x l"},
		{"f /abs 1\nf ./dot 2\nl hard /abs", "f abs/below 1"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, lower, upper string) {
		if len(lower)+len(upper) > 4000 {
			return
		}
		unpackBetween(t, entriesOf(t, lower), entriesOf(t, upper))
	})
}

// FuzzArchive: whatever the bytes of a layer are.
func FuzzArchive(f *testing.F) {
	for _, h := range []tar.Header{fileEntry("a", "1"), symlinkEntry("s", "/"), linkEntry("l", "a"), fileEntry(strings.Repeat("long/", 50)+"x", "x")} {
		f.Add(archive(f, h))
	}
	if raw, err := os.ReadFile("testdata/sparse.tar"); err == nil {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		l := layerOf(raw, raw)
		if r, err := l.Open(); err == nil {
			if plain, err := decompress(r); err == nil {
				sum := sha256.New()
				_, _ = io.Copy(sum, io.LimitReader(plain, 4<<20))
				l.DiffID = "sha256:" + hex.EncodeToString(sum.Sum(nil))
				plain.Close()
			}
		}
		unpackBetween(t, l)
	})
}
