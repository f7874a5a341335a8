// Package execution is one execution over a connection: a command runs code in a
// hub as it would in its own process. A Client sends the request and gives and takes
// what the code reads and writes; a Host runs it.
//
// Both send output frames of package wire, with kinds of their own. The client
// begins with the request: JSON, the code and the contents of files, cut into
// frames. Output comes as the code writes it, and waits for a client that does not
// read. Standard input and the files that the code leaves go in single steps, each
// of which the other side answers: neither side holds more than a frame of them. The
// last frames are the result.
package execution

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

// What a client sends.
const (
	kindRequest  wire.Kind = 'r' // a part of the request; an empty one ends it
	kindCancel   wire.Kind = 'c'
	kindInput    wire.Kind = 'i' // standard input, as the host asked
	kindInputEnd wire.Kind = 'n' // there is no more: the error, or nothing at its end
	kindTaken    wire.Kind = 'a' // answers kindFile and kindWhole: the error, or nothing
)

// What a host sends, besides the output as wire.KindStdout and wire.KindStderr.
const (
	kindStatus  wire.Kind = 's' // what the execution does; empty: nothing to say
	kindLog     wire.Kind = 'l' // a line for the client's log
	kindAsks    wire.Kind = 'q' // the code waits for an answer of a person: what for
	kindWant    wire.Kind = 'i' // asks for at most so many bytes of standard input
	kindFile    wire.Kind = 'f' // begins a file: its path
	kindData    wire.Kind = 'd' // the file's content
	kindWhole   wire.Kind = 'w' // the file is complete
	kindDropped wire.Kind = 'x' // the file is not, and will not be
	kindResult  wire.Kind = 'r' // a part of the result; an empty one ends it
)

const (
	// part is how long a frame is at most that has a part of something longer.
	part = 63 << 10
	// maxText bounds statuses, lines, names and errors.
	maxText = 32 << 10
	// maxHead bounds the JSON of a request, maxCode its code, maxFiles the contents
	// of its files.
	maxHead  = 32 << 20
	maxCode  = 8 << 20
	maxFiles = 96 << 20
	// maxResult bounds the JSON of a result.
	maxResult = 256 << 20
)

// errFrame: the other side does not follow the protocol.
var errFrame = errors.New("an unexpected frame")

// head is a request, but for the code and the contents of files, which follow it.
type head struct {
	Code     int             `json:"code"` // bytes
	Filename string          `json:"filename,omitempty"`
	Script   bool            `json:"script,omitempty"`
	Args     []string        `json:"args,omitempty"`
	Servers  []string        `json:"servers,omitempty"`
	Session  string          `json:"session,omitempty"`
	Env      string          `json:"env,omitempty"` // the environment's name or ID
	Mounts   []sandbox.Mount `json:"mounts,omitempty"`
	Request  string          `json:"request,omitempty"` // the execution's ID; empty: the host makes one
	Timeout  int64           `json:"timeout,omitempty"` // nanoseconds
	Measure  bool            `json:"measure,omitempty"`
	Files    []file          `json:"files,omitempty"`
	// What the client takes part in.
	Input  bool `json:"input,omitempty"`
	Output bool `json:"output,omitempty"`
	Status bool `json:"status,omitempty"`
	Take   bool `json:"take,omitempty"`
	Asks   bool `json:"asks,omitempty"`
}

type file struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"`
	Size int    `json:"size"`
}

// answer is a result with what its own JSON leaves out and a command reads.
type answer struct {
	Result      *broker.Result `json:"result"`
	Details     string         `json:"details,omitempty"`
	OutOfMemory bool           `json:"outOfMemory,omitempty"`
	NotTaken    bool           `json:"notTaken,omitempty"`
}

// sender sends frames, whole, from any goroutine.
type sender struct {
	mu    sync.Mutex
	to    io.Writer
	frame []byte
	err   error // of the first write that failed
	ended bool  // nothing more is sent
}

// send sends one frame.
func (s *sender) send(kind wire.Kind, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(kind, payload)
}

// text sends one frame with at most maxText bytes of text.
func (s *sender) text(kind wire.Kind, text string) error {
	return s.send(kind, []byte(text[:min(len(text), maxText)]))
}

// parts sends data in as many frames as it takes.
func (s *sender) parts(kind wire.Kind, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut(kind, data)
}

// message sends pieces of data as one message, which an empty frame ends.
func (s *sender) message(kind wire.Kind, pieces ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range pieces {
		if err := s.cut(kind, p); err != nil {
			return err
		}
	}
	return s.write(kind, nil)
}

// last is message, after which nothing is sent.
func (s *sender) last(kind wire.Kind, data []byte) error {
	err := s.message(kind, data)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return err
}

// cut and write are called with the lock.
func (s *sender) cut(kind wire.Kind, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), part)
		if err := s.write(kind, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (s *sender) write(kind wire.Kind, payload []byte) error {
	if s.err == nil && !s.ended {
		s.frame = wire.AppendOutput(s.frame[:0], kind, payload)
		_, s.err = s.to.Write(s.frame)
	}
	return s.err
}

// message is an io.Reader of the frames of one message.
type message struct {
	from *wire.Reader
	kind wire.Kind
	rest []byte
	over bool
}

func (m *message) Read(p []byte) (int, error) {
	for len(m.rest) == 0 {
		if m.over {
			return 0, io.EOF
		}
		kind, payload, err := m.from.Output()
		switch {
		case errors.Is(err, io.EOF):
			return 0, io.ErrUnexpectedEOF
		case err != nil:
			return 0, err
		case kind != m.kind:
			return 0, fmt.Errorf("%w: %q within a message", errFrame, kind)
		}
		m.rest, m.over = payload, len(payload) == 0
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// decode reads JSON of at most limit bytes, and returns what follows it.
func decode(from io.Reader, limit int64, into any) (rest io.Reader, err error) {
	d := json.NewDecoder(&io.LimitedReader{R: from, N: limit})
	if err := d.Decode(into); err != nil {
		return nil, err
	}
	return io.MultiReader(d.Buffered(), from), nil
}

// end returns an error unless a message is at its end.
func end(m io.Reader) error {
	if _, err := m.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return errors.Join(errFrame, err)
	}
	return nil
}

// failed is the text of an error for the other side, which is not empty.
func failed(err error) string {
	if text := err.Error(); text != "" {
		return text
	}
	return "failed"
}
