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

// ErrLeftOut: the body of a frame was thrown away, as Reader.Admit wanted.
var ErrLeftOut = errors.New("the frame was left out")

// A Reader splits a stream into frames. It is not safe for concurrent use.
type Reader struct {
	// Admit, if not nil, is asked before the body of a frame of n bytes that
	// needs memory of its own is read. With an error the body is thrown away.
	Admit func(n int) error

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
// between two frames, io.ErrUnexpectedEOF within one, and ErrLeftOut, with the
// beginning of the body, for a frame that was not admitted: the next call goes
// on behind it.
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

// body reads n bytes. If nothing admits frames, a large one's memory grows with
// what really arrives, so that a length alone costs the sender more than it
// costs us.
func (r *Reader) body(n int) ([]byte, error) {
	if n <= keep {
		if r.buf == nil {
			r.buf = make([]byte, keep)
		}
		_, err := io.ReadFull(r.r, r.buf[:n])
		return r.buf[:n], err
	}
	if r.Admit != nil {
		if r.Admit(n) != nil {
			return r.leaveOut(n)
		}
		b := make([]byte, n)
		have, err := io.ReadFull(r.r, b)
		return b[:have], err
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

// leaveOut returns the beginning of a body of n bytes, and throws away the rest.
func (r *Reader) leaveOut(n int) ([]byte, error) {
	const head = 512
	if r.buf == nil {
		r.buf = make([]byte, keep)
	}
	if _, err := io.ReadFull(r.r, r.buf[:head]); err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, r.r, int64(n-head)); err != nil {
		return nil, err
	}
	return r.buf[:head], ErrLeftOut
}

// Stream is one of the two streams that a program writes to.
type Stream uint8

// The streams.
const (
	Stdout Stream = iota
	Stderr
	Streams // how many there are
)

// String returns "stdout" or "stderr".
func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
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
