package sessionlog

import (
	"context"
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

// maxWritten bounds what is kept of one execution, in bytes, but for its last
// entry.
const maxWritten = 8 << 20

// maxBack bounds how far Written counts back from the latest execution.
const maxBack = 1000

// written is what one execution wrote.
type written struct {
	text strings.Builder
	cut  bool // there is more
}

func (w *written) add(e Entry, stream string) {
	switch {
	case w.cut:
	case w.text.Len() > maxWritten:
		w.cut = true
		w.text.WriteString("\n[... the rest is in the log alone ...]\n")
	case e.LeftOut > 0:
		fmt.Fprintf(&w.text, "\n[... %d bytes were not logged ...]\n", e.LeftOut)
	case e.Execution != 0 && (stream == "" || e.Stream == stream):
		w.text.WriteString(e.Text)
		w.text.Write(e.Bytes)
	}
}

// Written returns what an execution wrote, in the order in which it was written,
// of one stream or, if stream is empty, of both. Execution n > 0 is the latest
// with that number; n <= 0 counts back from the latest in the log, which is 0.
// What was written before the session was reset is not found, and where some of it
// is missing, the text says so.
//
// It reads the log once, because a log that is rotated between two readings has
// other executions.
func (l *Log) Written(ctx context.Context, n int64, stream string) (string, error) {
	if l == nil {
		return "", ErrNotKept
	}
	if n < -maxBack {
		return "", ErrNoExecution
	}
	l.Flush()
	r := ReadOutput(l.dir)
	defer r.Close()
	var latest []*written // as many as n needs
	var current *written  // nil: not of interest
	begun := false        // the log's first execution may have lost its beginning
	err := r.Read(func(e Entry) error {
		if !begun && e.Execution != 0 && e.Stream != "" && current == nil && (n <= 0 || e.Execution == uint64(n)) {
			current = &written{}
			current.text.WriteString("[... the beginning is not in the log any more ...]\n")
			latest = []*written{current}
		}
		begun = begun || e.Start || e.Reset
		switch {
		case e.Reset:
			latest, current = nil, nil
		case e.Start && n > 0:
			if current = nil; e.Execution == uint64(n) {
				current = &written{}
				latest = []*written{current}
			}
		case e.Start:
			current = &written{}
			if latest = append(latest, current); len(latest) > int(1-n) {
				latest = latest[1:]
			}
		case current != nil:
			current.add(e, stream)
		}
		return ctx.Err()
	})
	if err != nil {
		return "", err
	}
	if len(latest) < int(1-min(n, 0)) {
		return "", ErrNoExecution
	}
	return strings.ToValidUTF8(latest[0].text.String(), "\ufffd"), nil
}
