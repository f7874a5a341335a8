package snapshot

import (
	"errors"
	"os"

	"github.com/klauspost/compress/s2"
)

// A Form is how a snapshot's files are stored on disk.
type Form int

// The forms.
const (
	Plain Form = iota
	// Packed is compressed, chunk by chunk, where that saves an eighth or more.
	// It takes a third to three quarters of the space, and is read at about the
	// speed of memory.
	Packed
)

// pack compresses a file in place and returns the lengths of its chunks. Writes
// never reach data that has not been read yet.
func pack(f *os.File, size int64) (stored []int, err error) {
	var w worker
	room := make([]byte, s2.MaxEncodedLen(chunkSize))
	to := int64(0)
	for chunk := range chunks(size) {
		plain, err := w.read(f, chunk*chunkSize, length(size, chunk))
		if err != nil {
			return nil, err
		}
		data := s2.Encode(room, plain)
		if len(data) > len(plain)-len(plain)/8 {
			data = plain
		}
		if _, err := f.WriteAt(data, to); err != nil {
			return nil, err
		}
		to += int64(len(data))
		stored = append(stored, len(data))
	}
	return stored, f.Truncate(to)
}

var errPacked = errors.New("the packed data is damaged")

// unpack returns the original chunk, which is stored itself if it already has
// that length. The slice belongs to the worker.
func (w *worker) unpack(stored []byte, size int) ([]byte, error) {
	if len(stored) == size {
		return stored, nil
	}
	if n, err := s2.DecodedLen(stored); err != nil || n != size {
		return nil, errPacked
	}
	if w.plain == nil {
		w.plain = make([]byte, chunkSize)
	}
	return s2.Decode(w.plain, stored)
}
