//go:build linux

package machine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// A snapshot is a header in JSON after its length in four bytes; the pages that differ
// from the image's, in runs: the number of the first page and how many there are, in
// four bytes each, and the pages; eight bytes of zeros; and the session's files and
// descriptors, as package wasi writes them. All numbers are little-endian.
type snapshotHeader struct {
	Form    string        `json:"form"`
	Image   string        `json:"image"` // its ID
	Size    int64         `json:"size"`  // of the linear memory
	Globals []uint64      `json:"globals"`
	Started bool          `json:"started"`
	Wait    time.Duration `json:"wait"` // until the program wants to be called; negative: only for a frame
	CPU     time.Duration `json:"cpu"`
}

const (
	snapshotForm = "sallyport-wasm-session-1"
	maxHeader    = 64 << 10
)

// ErrSnapshot says that data is no snapshot that can be restored here.
var ErrSnapshot = errors.New("no snapshot of a session")

// Snapshot writes the session's state. It waits until the program has nothing to do. A
// paused session stays paused. With keep false the session has ended when Snapshot
// returns nil, and has done nothing since its state was written; after an error, such as
// that of a ctx that is done, it goes on. If w is an io.Closer, it is closed before the
// session goes on or ends, and has a say in whether Snapshot fails.
func (s *Session) Snapshot(ctx context.Context, w io.Writer, keep bool) error {
	err := s.parkedDo(ctx, func() error {
		if err := s.save(stateWriter{ctx, s, w}); err != nil {
			return err
		}
		if c, ok := w.(io.Closer); ok {
			if err := c.Close(); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if !keep {
			s.Kill(sandbox.Destroyed) // while nothing can run
		}
		return nil
	})
	if err != nil || keep {
		return err
	}
	<-s.done
	return nil
}

// A stateWriter fails when no one waits for the state any more, or the session is to end.
type stateWriter struct {
	ctx context.Context
	s   *Session
	w   io.Writer
}

// statePart is how much a stateWriter writes before it looks again.
const statePart = 1 << 20

func (w stateWriter) Write(p []byte) (n int, err error) {
	for {
		if err := w.ctx.Err(); err != nil {
			return n, err
		}
		if w.s.events.Load()&killedEvent != 0 {
			return n, errEnded
		}
		m, err := w.w.Write(p[n:min(n+statePart, len(p))])
		n += m
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// save writes the state of a session that is parked.
func (s *Session) save(w io.Writer) error {
	data := s.linear()
	wait := time.Duration(-1)
	if !s.next.IsZero() {
		wait = max(time.Until(s.next), 0)
	}
	header, err := json.Marshal(snapshotHeader{
		Form: snapshotForm, Image: s.image.ID(), Size: int64(len(data)), Globals: s.globals(),
		Started: s.started, Wait: wait, CPU: s.clock.total(),
	})
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(w, 1<<20)
	if err := writeAll(b, binary.LittleEndian.AppendUint32(nil, uint32(len(header))), header); err != nil {
		return err
	}
	if err := writePages(b, data, s.image.shared); err != nil {
		return err
	}
	if err := s.system.save(b); err != nil {
		return err
	}
	return b.Flush()
}

// writeAll writes pieces.
func writeAll(w io.Writer, pieces ...[]byte) error {
	for _, p := range pieces {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// writePages writes the pages of data that differ from those of image, which has zeros
// where it ends.
func writePages(w io.Writer, data, image []byte) error {
	zeros := make([]byte, pageSize)
	same := func(at int) bool {
		if at < len(image) {
			return bytes.Equal(data[at:at+pageSize], image[at:at+pageSize])
		}
		return bytes.Equal(data[at:at+pageSize], zeros)
	}
	for at := 0; at < len(data); {
		end := at
		for end < len(data) && !same(end) {
			end += pageSize
		}
		if end > at {
			head := binary.LittleEndian.AppendUint32(nil, uint32(at/pageSize))
			head = binary.LittleEndian.AppendUint32(head, uint32((end-at)/pageSize))
			if err := writeAll(w, head, data[at:end]); err != nil {
				return err
			}
		}
		at = end + pageSize
	}
	return writeAll(w, make([]byte, 8))
}

// readPages reads what writePages has written.
func readPages(r io.Reader, data []byte) error {
	var head [8]byte
	pages := uint64(len(data) / pageSize)
	for least := uint64(0); ; {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return fmt.Errorf("%w: %w", ErrSnapshot, err)
		}
		first, count := uint64(binary.LittleEndian.Uint32(head[:4])), uint64(binary.LittleEndian.Uint32(head[4:]))
		if first == 0 && count == 0 {
			return nil
		}
		if count == 0 || first < least || first+count > pages {
			return fmt.Errorf("%w: pages that do not follow each other", ErrSnapshot)
		}
		if _, err := io.ReadFull(r, data[first*pageSize:][:count*pageSize]); err != nil {
			return fmt.Errorf("%w: %w", ErrSnapshot, err)
		}
		least = first + count
	}
}

// readSnapshotHeader reads the header of a snapshot.
func readSnapshotHeader(r io.Reader) (h snapshotHeader, err error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return h, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > maxHeader {
		return h, ErrSnapshot
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return h, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return h, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	if h.Form != snapshotForm || h.Size <= 0 || h.Size > maxMemory || h.Size%wasmPage != 0 || len(h.Globals) > maxGlobals || h.CPU < 0 || h.CPU > math.MaxInt64/2 {
		return h, ErrSnapshot
	}
	return h, nil
}

// Restore starts a session that goes on where a snapshot was taken. The limits are
// those with which it was started. The reader is not used after Restore has returned.
func (img *Image) Restore(ctx context.Context, c SessionConfig, r io.Reader) (*Session, error) {
	return img.begin(c, func(s *Session) error {
		in := bufio.NewReaderSize(contextReader{ctx, r}, 1<<20)
		h, err := readSnapshotHeader(in)
		if err != nil {
			return err
		}
		if h.Image != img.ID() {
			return fmt.Errorf("%w: it belongs to another interpreter or program", ErrSnapshot)
		}
		if h.Size < img.header.Size || len(h.Globals) != len(img.header.Globals) {
			return ErrSnapshot
		}
		if err := s.adopt(img.header.Globals); err != nil {
			return err
		}
		if err := s.enlarge(h.Size, h.Globals); err != nil {
			return err
		}
		if err := readPages(in, s.linear()); err != nil {
			return err
		}
		if err := s.restoreSystem(ctx, c, in); err != nil {
			return err
		}
		s.clock.add(h.CPU)
		s.started = h.Started
		s.resumed = h.Started
		if h.Wait >= 0 {
			s.next = time.Now().Add(h.Wait)
		}
		return nil
	})
}

// A contextReader fails when its context is done.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
