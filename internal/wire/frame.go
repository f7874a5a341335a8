package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Bounds of a frame's length, the four bytes of the length itself excluded.
const (
	MaxToGuest   = 128 << 20 // a control frame to the guest
	MaxFromGuest = 32 << 20  // a control frame from the guest
	MaxOutput    = 1 << 20   // an output frame

	headerSize = 4
	minControl = 2 // "{}"
	minOutput  = 1 // the kind
)

// ErrFrame is in the chain of every error about a malformed frame.
var ErrFrame = errors.New("malformed frame")

// A Reader splits a stream into frames. It is not safe for concurrent use.
type Reader struct {
	r   *bufio.Reader
	buf []byte // reused for frames up to keep bytes
}

// keep bounds the memory that a Reader holds on to between frames.
const keep = 64 << 10

// NewReader returns a reader of frames from r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, keep)}
}

// Control returns the body of the next control frame of at most max bytes. It
// is valid until the next call. The error is io.EOF at the end of the stream
// between two frames, io.ErrUnexpectedEOF within one.
func (r *Reader) Control(max int) ([]byte, error) {
	return r.next(minControl, max)
}

// Output returns the kind and the payload of the next output frame. The payload
// is valid until the next call. Errors are those of Control.
func (r *Reader) Output() (Kind, []byte, error) {
	b, err := r.next(minOutput, MaxOutput)
	if err != nil {
		return 0, nil, err
	}
	return Kind(b[0]), b[1:], nil
}

func (r *Reader) next(min, max int) ([]byte, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n < int64(min) || n > int64(max) {
		return nil, fmt.Errorf("%w: %d bytes, where %d to %d are allowed", ErrFrame, n, min, max)
	}
	b, err := r.body(int(n))
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// body reads n bytes. A large frame's memory grows with what really arrives, so
// that a length alone costs the sender more than it costs us.
func (r *Reader) body(n int) ([]byte, error) {
	if n <= keep {
		if r.buf == nil {
			r.buf = make([]byte, keep)
		}
		_, err := io.ReadFull(r.r, r.buf[:n])
		return r.buf[:n], err
	}
	b := make([]byte, min(n, 1<<20))
	for have := 0; ; {
		m, err := io.ReadFull(r.r, b[have:])
		have += m
		if err != nil || have == n {
			return b[:have], err
		}
		grown := make([]byte, min(n, 4*len(b)))
		copy(grown, b)
		b = grown
	}
}

// Kind is the kind of an output frame.
type Kind byte

// The kinds of output frames.
const (
	KindStdout Kind = 'o'
	KindStderr Kind = 'e'
	KindNonce  Kind = 'n'
	KindExit   Kind = 'x'
)

// AppendControl appends the control frame with the given body to b. The body's
// length is not checked against a bound.
func AppendControl(b, body []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

// AppendOutput appends an output frame to b.
func AppendOutput(b []byte, kind Kind, payload []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)+1))
	b = append(b, byte(kind))
	return append(b, payload...)
}
