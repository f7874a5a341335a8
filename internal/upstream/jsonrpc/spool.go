package jsonrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sallyport/sallyport/internal/budget"
)

const (
	// uncharged is the buffer size that every connection may have.
	uncharged = 256 << 10
	// inMemory bounds the lines that are read into memory. It also bounds what
	// growing the buffer copies: of a longer line, the size is known before its
	// memory is allocated.
	inMemory = 16 << 20
)

// spooled is a line in an unnamed file.
type spooled struct {
	file *os.File
	size int64
}

// newSpool creates the file. If it cannot be removed while it is open, Close
// removes it.
func newSpool(dir string) (*spooled, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	f, err := os.CreateTemp(dir, ".sallyport-message-*")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name())
	return &spooled{file: f}, nil
}

func (s *spooled) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	s.size += int64(n)
	return n, err
}

func (s *spooled) Close() {
	if s == nil {
		return
	}
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}

// load reads the line when the call's budget has room for it.
func (s *spooled) load(ctx context.Context, lease *budget.Lease) ([]byte, error) {
	if err := lease.Acquire(ctx, s.size); err != nil {
		if errors.Is(err, budget.ErrTooLarge) {
			err = fmt.Errorf("%w: %w", ErrTooLarge, err)
		}
		return nil, err
	}
	data := make([]byte, s.size)
	if _, err := s.file.ReadAt(data, 0); err != nil {
		return nil, fmt.Errorf("reading the answer from its temporary file: %w", err)
	}
	return data, nil
}

// spill moves the line that is being read into a file and reads it to its end.
// A line that is too long, or for which there is no disk space, is overlong.
func (l *lineReader) spill() (line, error) {
	out, err := newSpool(l.spoolDir)
	if err != nil {
		return l.skip()
	}
	var charged int64
	defer func() { l.disk.Release(charged) }()
	head := append([]byte(nil), l.buf[l.start:min(l.end, l.start+keptHead)]...)
	var tail []byte
	keep := func(part []byte) bool {
		tail = append(tail, part[max(0, len(part)-keptTail):]...)
		tail = append(tail[:0], tail[max(0, len(tail)-keptTail):]...)
		for ; charged < out.size+int64(len(part)); charged += inMemory {
			if !l.disk.TryAcquire(inMemory) {
				return false
			}
		}
		_, err := out.Write(part)
		return err == nil && out.size <= int64(l.max)
	}
	fits := keep(l.buf[l.start:l.end])
	l.lines.Release(l.charged)
	l.charged = 0
	l.buf = make([]byte, uncharged)
	for fits {
		l.start, l.searched, l.end = 0, 0, 0
		err := l.read()
		part, ended := l.buf[:l.end], err != nil
		if at := bytes.IndexByte(part, '\n'); at >= 0 {
			part, ended = part[:at], true
			l.start, l.searched = at+1, at+1
		}
		fits = keep(part)
		if ended && fits {
			return line{data: head, tail: tail, owned: true, spooled: out, length: out.size, unended: err != nil}, nil
		}
		if ended {
			out.Close()
			return line{data: head, tail: tail, owned: true, overlong: true, length: out.size}, nil
		}
	}
	length := out.size
	out.Close()
	l.start, l.searched, l.end = 0, 0, 0
	rest, err := l.skip()
	rest.data, rest.length = head, rest.length+length
	return rest, err
}
