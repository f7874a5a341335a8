package remote

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

const (
	// maxField bounds an event's name and identifier.
	maxField = 4 << 10
	// noRetry is the delay of an event that sets none.
	noRetry = time.Duration(-1)
	// keptHead is how much of a line that is too long is kept.
	keptHead = 512
)

// event is one server-sent event. The caller owns its data.
type event struct {
	name  string
	data  []byte
	id    string
	hasID bool
	retry time.Duration // noRetry: not set
	// overlong means that the data exceeded the limit; only its beginning is here.
	overlong bool
}

// eventReader splits a stream into server-sent events, as the HTML standard
// specifies, with bounds.
type eventReader struct {
	r     *bufio.Reader
	max   int
	line  []byte
	begun bool
	// fits, if not nil, is called before an event takes n bytes. If it returns an
	// error, the event is overlong, and refusal has the error.
	fits    func(n int) error
	refusal error
	// lf means that the last line ended with a CR, so that a LF now belongs to it.
	lf bool
}

func newEventReader(r io.Reader, max int) *eventReader {
	return &eventReader{r: bufio.NewReaderSize(r, 8<<10), max: max}
}

// next returns the next event that has data, an identifier or a delay. An event
// that the end of the stream cut off is dropped. At the end it returns io.EOF
// or what the stream's reader failed with.
func (e *eventReader) next() (event, error) {
	out := event{retry: noRetry}
	some := false
	e.refusal = nil
	for {
		overlong, err := e.readLine()
		if err != nil {
			return event{}, err
		}
		if overlong {
			if out.data == nil {
				out.data = bytes.TrimPrefix(bytes.TrimPrefix(e.line, []byte("data:")), []byte{' '})
			}
			out.data = out.data[:min(len(out.data), keptHead)]
			out.overlong, some, e.line = true, true, nil
			continue
		}
		if len(e.line) == 0 {
			if some {
				return out, nil
			}
			continue
		}
		field, value, _ := bytes.Cut(e.line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "data":
			some = true
			switch {
			case out.overlong:
			case out.data != nil && !e.room(len(out.data)+1+len(value)), len(value) > e.max, out.data != nil && len(out.data)+1+len(value) > e.max:
				out.overlong = true
				if out.data == nil {
					out.data = bytes.Clone(value[:min(len(value), keptHead)])
				}
			case out.data == nil:
				// The caller gets the line.
				out.data, e.line = value[:len(value):len(value)], nil
				if out.data == nil {
					out.data = []byte{}
				}
			default:
				out.data = append(append(out.data, '\n'), value...)
			}
		case "event":
			if len(value) <= maxField {
				out.name = string(value)
			}
		case "id":
			if len(value) <= maxField && isHeaderText(value) {
				out.id, out.hasID, some = string(value), true, true
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				out.retry, some = time.Duration(ms)*time.Millisecond, true
			}
		}
	}
}

// isHeaderText reports whether an identifier can be sent back in a header.
func isHeaderText(value []byte) bool {
	for _, c := range value {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

var (
	byteOrderMark = []byte("\xef\xbb\xbf")
	errCutOff     = errors.New("the stream ended in the middle of a line")
)

// room reports whether an event may take n bytes.
func (e *eventReader) room(n int) bool {
	if e.fits == nil {
		return true
	}
	e.refusal = cmp.Or(e.refusal, e.fits(n))
	return e.refusal == nil
}

// refused returns why an event within the size limit is overlong, or nil.
func (e *eventReader) refused() error {
	if e.refusal == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", jsonrpc.ErrTooLarge, e.refusal)
}

// readLine reads a line into e.line, without its end: CR, LF or both. It skips
// what exceeds the limit, and reports that.
func (e *eventReader) readLine() (overlong bool, err error) {
	e.line = e.line[:0]
	if !e.begun {
		e.begun = true
		if mark, _ := e.r.Peek(len(byteOrderMark)); bytes.Equal(mark, byteOrderMark) {
			_, _ = e.r.Discard(len(mark))
		}
	}
	for {
		if _, err := e.r.Peek(1); err != nil {
			if err == io.EOF && (len(e.line) > 0 || overlong) {
				err = errCutOff
			}
			return false, err
		}
		chunk, _ := e.r.Peek(e.r.Buffered())
		if e.lf {
			e.lf = false
			if chunk[0] == '\n' {
				_, _ = e.r.Discard(1)
				continue
			}
		}
		end := bytes.IndexByte(chunk, '\n')
		if end >= 0 {
			chunk = chunk[:end]
		}
		if cr := bytes.IndexByte(chunk, '\r'); cr >= 0 {
			e.lf = true
			chunk, end = chunk[:cr], cr
		}
		switch {
		case overlong:
			// The beginning of the line may tell which call it answers.
			e.line = append(e.line, chunk[:min(len(chunk), keptHead-len(e.line))]...)
		case len(e.line)+len(chunk) > max(e.max, maxField)+len("data: "), !e.room(len(e.line) + len(chunk)):
			overlong = true
			head := append(e.line, chunk[:min(len(chunk), keptHead)]...)
			e.line = bytes.Clone(head[:min(len(head), keptHead)])
		default:
			e.line = append(e.line, chunk...)
		}
		if end >= 0 {
			_, _ = e.r.Discard(len(chunk) + 1)
			return overlong, nil
		}
		_, _ = e.r.Discard(len(chunk))
	}
}
