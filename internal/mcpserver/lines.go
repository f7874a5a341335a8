package mcpserver

import (
	"bufio"
	"errors"
	"io"
)

// errLineTooLong is the error of next for a line that exceeds the bound. That
// line has then been skipped, and the following call reads the next one.
var errLineTooLong = errors.New("the line is too long")

// lineReader reads lines of at most max bytes.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, max int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), max: max}
}

// next returns the next line without its line feed, in memory of its own. The
// last line need not have one.
func (l *lineReader) next() ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > l.max+1 {
			return nil, l.skip(err)
		}
		if line == nil {
			line = make([]byte, 0, len(part))
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, err
		}
	}
}

// skip reads the rest of a line whose last part ended with err.
func (l *lineReader) skip(err error) error {
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = l.r.ReadSlice('\n')
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return errLineTooLong
}
