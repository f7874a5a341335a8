package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/sallyport/sallyport/internal/image/flatten"
)

// packed compresses an archive whose last member is size zero bytes.
func packed(t *testing.T, size int64, last string, members ...member) string {
	t.Helper()
	plain := pack2(t, append(members, member{name: last, content: strings.Repeat("\x00", int(size))})...)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(plain)
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return write(t, b.Bytes())
}

// onDisk is the size of all files below a directory.
func onDisk(t *testing.T, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			info, statErr := d.Info()
			if err = statErr; err == nil {
				total += info.Size()
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// TestReadWritesNoMoreThanTheLimit: an archive that unpacks to more than an image
// may take is refused when so much was written.
func TestReadWritesNoMoreThanTheLimit(t *testing.T) {
	const limit = 1 << 20
	one := layerText(t, "a", "1")
	config := configText(one)
	blob := "blobs/sha256/" + strings.Repeat("0", 64)
	manifest := member{name: "manifest.json", content: `[{"Config":"c.json","RepoTags":["x:1"],"Layers":["l.tar"]}]`}
	many := []member{manifest}
	for i := range 64 {
		many = append(many, member{name: fmt.Sprint(i), content: strings.Repeat("x", limit/32)})
	}
	for name, file := range map[string]string{
		"a layer of docker save":  packed(t, 8*limit, "l.tar", manifest, member{name: "c.json", content: config}),
		"a file nobody refers to": packed(t, 8*limit, "unknown", manifest, member{name: "c.json", content: config}, member{name: "l.tar", content: one}),
		"a blob of a layout":      packed(t, 8*limit, blob, member{name: "oci-layout", content: "{}"}, member{name: "index.json", content: "{}"}),
		"many files":              packed(t, 1, "last", many...),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Read(t.Context(), file, dir, flatten.Limits{Bytes: limit})
			if !errors.Is(err, flatten.ErrLayer) || !strings.Contains(err.Error(), "images.maxSize") {
				t.Errorf("got %v, want that images.maxSize does not allow it", err)
			}
			if got := onDisk(t, dir); got > limit {
				t.Errorf("%d bytes were written, and may be %d", got, int64(limit))
			}
			// The control: where it is allowed it is written.
			roomy := t.TempDir()
			if _, err := Read(t.Context(), file, roomy, flatten.Limits{Bytes: 64 * limit}); err != nil && strings.Contains(err.Error(), "images.maxSize") {
				t.Error(err)
			}
			if got := onDisk(t, roomy); got <= limit {
				t.Errorf("the control wrote %d bytes, want more than %d", got, int64(limit))
			}
		})
	}
}

// TestReadEnds: what is not written is not read without end either.
func TestReadEnds(t *testing.T) {
	limits := flatten.Limits{Bytes: 1 << 20}
	file := packed(t, 4*limits.Plain(), "zeros", member{name: "etc/x", content: "a root file system"})
	if _, err := Read(t.Context(), file, t.TempDir(), limits); !errors.Is(err, flatten.ErrLayer) || !strings.Contains(err.Error(), "more than the limit") {
		t.Errorf("got %v, want that it unpacks to more than the limit", err)
	}
}

func TestReadBoundsNamesAndLayers(t *testing.T) {
	one := layerText(t, "a", "1")
	config := configText(one)
	tags := strings.Repeat(`"x:1",`, 2000) + `"x:1"`
	layers := strings.Repeat(`"l.tar",`, 2000) + `"l.tar"`
	for want, manifest := range map[string]string{
		"2001 names":  `[{"Config":"c.json","RepoTags":[` + tags + `],"Layers":["l.tar"]}]`,
		"2001 layers": `[{"Config":"c.json","Layers":[` + layers + `]}]`,
	} {
		file := write(t, pack2(t, member{name: "c.json", content: config}, member{name: "l.tar", content: one}, member{name: "manifest.json", content: manifest}))
		if _, err := Read(t.Context(), file, t.TempDir(), flatten.Limits{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestRoom: a reader of a stream without end, as standard input is, ends.
func TestRoom(t *testing.T) {
	n, err := io.Copy(io.Discard, flatten.Limits{Bytes: 1 << 20}.Room().Reader(io.LimitReader(zeros{}, 1<<30)))
	if !errors.Is(err, flatten.ErrLayer) || n > 1<<20 {
		t.Errorf("got %d bytes, %v; want at most 1 MiB and an error", n, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
