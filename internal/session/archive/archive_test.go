package archive

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/wire"
)

// packed returns an archive with facts and entries.
func packed(t testing.TB, entries ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	facts := `{"format":1,"name":"work"}`
	for _, h := range append([]*tar.Header{{Name: FactsFile, Size: int64(len(facts)), Typeflag: tar.TypeReg, Mode: 0o644}}, entries...) {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		content := make([]byte, h.Size)
		if h.Name == FactsFile {
			copy(content, facts)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReaderRefuses(t *testing.T) {
	file := func(name string, size int64) *tar.Header {
		return &tar.Header{Name: name, Size: size, Typeflag: tar.TypeReg, Mode: 0o644}
	}
	tests := []struct {
		name string
		data []byte
	}{
		{"nothing", nil},
		{"no archive", []byte(strings.Repeat("x", 2000))},
		{"cut off", packed(t, file("workspace/a", 2000))[:2000]},
		{"upwards", packed(t, file("workspace/../../a", 1))},
		{"absolute", packed(t, file("/workspace/a", 1))},
		{"escapes", packed(t, file("workspace/\x1b[2J", 1))},
		{"twice", packed(t, file("workspace/a", 1), file("workspace/a", 1))},
		{"a link", packed(t, &tar.Header{Name: "workspace/l", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink})},
		{"a hard link", packed(t, &tar.Header{Name: "workspace/l", Linkname: "/etc/passwd", Typeflag: tar.TypeLink})},
		{"a device", packed(t, &tar.Header{Name: "workspace/d", Typeflag: tar.TypeBlock})},
		{"too large", packed(t, file("workspace/a", 600), file("workspace/b", 600))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := NewReader(bytes.NewReader(tt.data), 1000)
			for err == nil {
				var i *Item
				if i, err = a.Next(); i == nil && err == nil {
					t.Fatal("it was accepted")
				}
				if err == nil {
					_, err = io.Copy(io.Discard, i.Content)
				}
			}
		})
	}
}

// FuzzReader: whatever an archive has, what comes out of it is a plain file or
// directory below its own.
func FuzzReader(f *testing.F) {
	f.Add(packed(f))
	f.Add(packed(f, &tar.Header{Name: "workspace/d/", Typeflag: tar.TypeDir, Mode: 0o755}, &tar.Header{Name: "workspace/d/f", Size: 3, Typeflag: tar.TypeReg, Mode: 0o4755}))
	f.Add(packed(f, &tar.Header{Name: "workspace/l", Linkname: "..", Typeflag: tar.TypeSymlink}))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := NewReader(bytes.NewReader(data), 1<<20)
		var total int64
		for err == nil {
			var i *Item
			if i, err = a.Next(); i == nil || err != nil {
				return
			}
			if !validPath(i.Name) || strings.HasPrefix(i.Name, "/") || strings.Contains(i.Name, "..") && !validPath(i.Name) || i.Mode > 0o777 {
				t.Fatalf("%+v", i)
			}
			var n int64
			n, err = io.Copy(io.Discard, i.Content)
			if strings.HasPrefix(i.Name, Workspace) {
				total += n
			}
			if total > 1<<20 {
				t.Fatalf("%d bytes", total)
			}
		}
	})
}

// TestWriterLeavesNothing: the file in which what a guest sends waits has no name,
// so that it goes with a program that is killed.
func TestWriterLeavesNothing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows removes no file that is open")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	a, err := NewWriter(io.Discard, Facts{}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Add(wire.TaskFile{Path: "a", Data: make([]byte, wire.MinTaskPart), More: true}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("while a file arrives there are %v in the temporary directory (%v), want none", left, err)
	}
}
