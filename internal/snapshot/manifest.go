package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// manifest describes a snapshot. Its seal authenticates everything else.
type manifest struct {
	Name    string          `json:"name"`
	Binding string          `json:"binding"`
	Note    json.RawMessage `json:"note"`
	Salt    []byte          `json:"salt"` // of the key for the tags
	Files   []file          `json:"files"`
}

// sealed is a manifest on disk.
type sealed struct {
	Version  int             `json:"version"`
	Manifest json.RawMessage `json:"manifest"`
	Seal     string          `json:"seal"` // HMAC-SHA-256 of Manifest
}

// file describes a file of a snapshot, in chunks.
type file struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	Stored []int  `json:"stored,omitempty"` // size of each chunk, if they are packed
	Tags   []byte `json:"tags"`             // of each chunk, as it is stored
}

// sound reports whether the numbers are consistent.
func (f *file) sound() bool {
	n := chunks(f.Size)
	if f.Size < 0 || n > maxManifest || int64(len(f.Tags)) != n*tagSize {
		return false
	}
	if f.Stored == nil {
		return true
	}
	if int64(len(f.Stored)) != n {
		return false
	}
	for i, size := range f.Stored {
		if size <= 0 || size > f.plain(i) {
			return false
		}
	}
	return true
}

func (f *file) pieces() int { return len(f.Tags) / tagSize }

func (f *file) tag(chunk int) []byte { return f.Tags[chunk*tagSize:][:tagSize] }

// plain returns the length of a chunk, and stored its size on disk.
func (f *file) plain(chunk int) int { return length(f.Size, int64(chunk)) }

func (f *file) stored(chunk int) int {
	if f.Stored == nil {
		return f.plain(chunk)
	}
	return f.Stored[chunk]
}

// room returns the size of the file on disk.
func (f *file) room() int64 {
	if f.Stored == nil {
		return f.Size
	}
	var total int64
	for _, n := range f.Stored {
		total += int64(n)
	}
	return total
}

func (f *file) changed() error {
	return fmt.Errorf("%w: %s has other content than was written", ErrCorrupt, f.Name)
}

// describe packs a new file, if requested, and returns its entry. Index is its
// position in the manifest.
func describe(tags *tagger, index int, f *os.File, name string, form Form) (_ file, err error) {
	info, err := f.Stat()
	if err != nil {
		return file{}, err
	}
	out := file{Name: name, Size: info.Size()}
	if form == Packed && out.Size > 0 {
		if out.Stored, err = pack(f, out.Size); err != nil {
			return file{}, err
		}
	}
	out.Tags = make([]byte, chunks(out.Size)*tagSize)
	offsets := make([]int64, out.pieces())
	for i := 1; i < len(offsets); i++ {
		offsets[i] = offsets[i-1] + int64(out.stored(i-1))
	}
	err = each(context.Background(), out.pieces(), func(w *worker, i int) error {
		data, err := w.read(f, offsets[i], out.stored(i))
		if err == nil {
			tag := tags.tag(index, i, data)
			copy(out.tag(i), tag[:])
		}
		return err
	})
	return out, err
}
