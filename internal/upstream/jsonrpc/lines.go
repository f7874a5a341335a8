package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/jsonscan"
)

const (
	// firstBuffer is the buffer that an idle connection holds.
	firstBuffer = 8 << 10
	// handOver is the length from which a line is handed over together with its
	// memory instead of being copied.
	handOver = 32 << 10
	// keptHead and keptTail are how much is kept of a line that is too long.
	keptHead, keptTail = 512, 512
	// maxUnended bounds a message without a line end.
	maxUnended = 256 << 10
)

// lineReader splits a stream into lines of at most max bytes.
type lineReader struct {
	r          io.Reader
	max        int
	buf        []byte
	start, end int // buf[start:end] is read but not yet returned
	searched   int // no newline in buf[start:searched]
	tries      int // how often whole has looked

	// Buffer space beyond uncharged is charged to lines. A line that does not
	// fit goes to a file in spoolDir, charged to disk.
	lines, disk *budget.Budget
	charged     int64
	spoolDir    string
}

// line is one line without its end.
type line struct {
	data []byte
	// owned is set if the receiver may keep data. Otherwise it is valid until
	// the next call.
	owned bool
	// overlong is set if the line was longer than allowed; data is its
	// beginning and tail its end, and the rest is gone.
	overlong bool
	tail     []byte
	length   int64
	// spooled holds the line if it is not in memory: data is its beginning and
	// tail its end.
	spooled *spooled
	// charged is the budget that the line holds, for the caller to release.
	charged int64
	// unended is set if the stream ended before the line did.
	unended bool
}

// errNoRoom reports that the line being read must not take more memory.
var errNoRoom = errors.New("no room in memory")

func newLineReader(r io.Reader, max int) *lineReader {
	return &lineReader{r: r, max: max}
}

// next returns the next line. The last line may lack its newline. At the end
// of the stream it returns io.EOF or the error of the underlying reader.
func (l *lineReader) next() (line, error) {
	for {
		if at := bytes.IndexByte(l.buf[l.searched:l.end], '\n'); at >= 0 {
			return l.take(l.searched+at, 1), nil
		}
		l.searched = l.end
		if size := l.whole(); size > 0 {
			first := l.take(l.start+size, 0)
			l.searched = l.end // what follows is not searched again for each message
			return first, nil
		}
		if l.end-l.start > l.max {
			return l.skip()
		}
		err := l.fill()
		if err == errNoRoom {
			return l.spill()
		}
		if err != nil {
			if l.end > l.start {
				last := l.take(l.end, 0)
				last.unended = true
				return last, nil
			}
			return line{}, err
		}
	}
}

// whole returns the length of the message that was read so far, or 0 if it may go
// on. Some peers write no newlines: language servers write headers instead, and
// others NULs, or nothing.
func (l *lineReader) whole() int {
	data := l.buf[l.start:l.end]
	tail := bytes.TrimRight(data[max(0, len(data)-2):], "\r\x00")
	if len(tail) == 0 || tail[len(tail)-1] != '}' || len(data) > maxUnended || l.tries == maxTries {
		return 0
	}
	l.tries++
	text := bytes.TrimLeft(data, " \t\r\x00")
	front := len(data) - len(text)
	if text[0] == '}' { // the last line of a message
		return front + 1
	}
	if size, ok := jsonscan.End(text); ok && text[0] == '{' {
		return front + size
	}
	return 0
}

// take returns buf[start:at] and skips the newline after it.
func (l *lineReader) take(at, newline int) line {
	l.tries = 0
	data := l.buf[l.start:at:at]
	next := at + newline
	if len(data) > l.max { // the limit is smaller than the buffer
		l.start, l.searched = next, next
		return line{
			data: data[:min(len(data), keptHead)], tail: data[max(0, len(data)-keptTail):],
			overlong: true, length: int64(len(data)),
		}
	}
	if len(data) < handOver {
		l.start, l.searched = next, next
		return line{data: data, length: int64(len(data))}
	}
	rest := l.buf[next:l.end]
	out := line{data: data, owned: true, length: int64(len(data)), charged: l.charged}
	l.charged = 0
	l.buf = make([]byte, max(firstBuffer, len(rest)))
	l.start, l.searched, l.end = 0, 0, copy(l.buf, rest)
	return out
}

// fill reads more, making room first.
func (l *lineReader) fill() error {
	if l.start == l.end {
		l.start, l.searched, l.end = 0, 0, 0
	}
	if l.end == len(l.buf) {
		if l.start > 0 {
			l.end = copy(l.buf, l.buf[l.start:l.end])
			l.searched -= l.start
			l.start = 0
		} else {
			// One byte more than the longest line: its newline.
			size := min(max(firstBuffer, 2*len(l.buf)), max(l.max+1, firstBuffer))
			if more := int64(size) - l.charged; size > inMemory || size > uncharged && !l.lines.TryAcquire(more) {
				return errNoRoom
			} else if size > uncharged {
				l.charged += more
			}
			grown := make([]byte, size)
			copy(grown, l.buf[:l.end])
			l.buf = grown
		}
	}
	return l.read()
}

func (l *lineReader) read() error {
	for range 100 {
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// skip discards the rest of a line that is too long.
func (l *lineReader) skip() (line, error) {
	head := bytes.Clone(l.buf[l.start:min(l.end, l.start+keptHead)])
	length := int64(l.end - l.start)
	tail := bytes.Clone(l.buf[max(l.start, l.end-keptTail):l.end])
	l.lines.Release(l.charged)
	l.charged = 0
	l.buf = make([]byte, 8*firstBuffer)
	for {
		l.start, l.searched, l.end = 0, 0, 0
		err := l.read()
		at := bytes.IndexByte(l.buf[:l.end], '\n')
		part := l.buf[:l.end]
		if at >= 0 {
			part = part[:at]
		}
		length += int64(len(part))
		tail = append(tail, part[max(0, len(part)-keptTail):]...)
		tail = append(tail[:0], tail[max(0, len(tail)-keptTail):]...)
		if at >= 0 {
			l.start, l.searched = at+1, at+1
		}
		if at >= 0 || err != nil {
			return line{data: head, owned: true, overlong: true, tail: tail, length: length}, nil
		}
	}
}

// validUTF8 returns data with every byte that is not part of a UTF-8 sequence
// replaced by U+FFFD, as encoding/json does when it decodes a string.
func validUTF8(data []byte) []byte {
	if utf8.Valid(data) {
		return data
	}
	out := make([]byte, 0, len(data)+64)
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 {
			out = append(out, "\uFFFD"...)
		} else {
			out = append(out, data[:size]...)
		}
		data = data[size:]
	}
	return out
}
