package sessionlog

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNotKept is the error of reading where no log is kept.
	ErrNotKept = errors.New("no log is kept of this session (see the setting sessions.logs)")
	// ErrNoExecution is the error of an execution that the log does not have, or not
	// any more.
	ErrNoExecution = errors.New("the log has no such execution")
)

// errEnough ends the reading of a log.
var errEnough = errors.New("enough")

// maxWritten bounds what Written returns, in bytes, but for its last entry.
const maxWritten = 8 << 20

// Written returns what an execution wrote, in the order in which it was written,
// of one stream or, if stream is empty, of both. Execution n > 0 is the latest
// with that number; n <= 0 counts back from the latest in the log, which is 0.
func (l *Log) Written(n int64, stream string) (string, error) {
	if l == nil {
		return "", ErrNotKept
	}
	l.Flush()
	which, err := l.find(n)
	if err != nil {
		return "", err
	}
	r := ReadOutput(l.dir)
	defer r.Close()
	var out strings.Builder
	begun := 0
	err = r.Read(func(e Entry) error {
		if e.Start {
			begun++
		}
		if begun > which {
			return errEnough
		}
		switch {
		case out.Len() > maxWritten:
			out.WriteString("\n[... the rest is in the log alone ...]\n")
			return errEnough
		case begun != which || e.Start || e.Execution == 0 && e.LeftOut == 0:
		case e.LeftOut > 0:
			fmt.Fprintf(&out, "\n[... %d bytes were not logged ...]\n", e.LeftOut)
		case stream == "" || e.Stream == stream:
			out.WriteString(e.Text)
			out.Write(e.Bytes)
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return strings.ToValidUTF8(out.String(), "\ufffd"), err
}

// find returns which execution of the log n means, counted from 1.
func (l *Log) find(n int64) (int, error) {
	r := ReadOutput(l.dir)
	defer r.Close()
	begun, which := 0, 0
	err := r.Read(func(e Entry) error {
		if e.Start {
			begun++
			if n > 0 && e.Execution == uint64(n) {
				which = begun
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if n <= 0 && n > -int64(begun) {
		which = begun + int(n)
	}
	if which == 0 {
		return 0, ErrNoExecution
	}
	return which, nil
}
