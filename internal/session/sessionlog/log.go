package sessionlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/wire"
)

const (
	// flushDelay is how long an entry may wait before it is written.
	flushDelay = 250 * time.Millisecond
	// maxPending bounds what may wait for the disk. Output beyond it is counted
	// and dropped, because code must not wait for the log.
	maxPending = 4 << 20
	// noteSize is what a note takes in memory besides its data.
	noteSize = 128
	// maxCode bounds the logged code of one execution.
	maxCode = 1 << 20
	// maxMerged bounds the size to which consecutive output is merged.
	maxMerged = 32 << 10
	// maxSpare is how many notes' memory is kept for the next ones.
	maxSpare = 4096
)

// An Entry of a session's log is one event. In a log of output, Start begins an
// execution; in a log of code, Code holds what it ran.
type Entry struct {
	Time      time.Time `json:"time"`
	Execution uint64    `json:"execution,omitempty"` // as in "<cell 3>"; 0: between two executions
	Start     bool      `json:"start,omitempty"`
	Code      string    `json:"code,omitempty"`
	Stream    string    `json:"stream,omitempty"` // of Text or Bytes: stdout, stderr
	Text      string    `json:"text,omitempty"`
	Bytes     []byte    `json:"bytes,omitempty"`   // in place of Text, for what is not UTF-8
	Server    string    `json:"server,omitempty"`  // that told Told during a call
	Told      string    `json:"told,omitempty"`    // one line; without a Server it is about such lines
	LeftOut   int64     `json:"leftOut,omitempty"` // bytes that were dropped because the disk was too slow
	End       string    `json:"end,omitempty"`
	Lost      string    `json:"lost,omitempty"`  // why the state of earlier executions is gone
	Reset     bool      `json:"reset,omitempty"` // the user reset the session
}

// Log is one session's log. Writing to it costs an execution a copy; a timer
// writes it to disk. All methods may be called on a nil Log, which keeps
// nothing. It is safe for concurrent use.
type Log struct {
	store      *Store
	name       string
	dir        string
	persistent bool // it outlives the process

	mu      sync.Mutex
	pending []note
	spare   []note // to be reused
	size    int
	dropped int64
	armed   bool
	closed  bool

	writing sync.Mutex
	failed  bool // and logged
}

// note is a pending entry. Executions make three of them each, so they are
// small.
type note struct {
	at        int64 // nanoseconds
	execution uint64
	kind      noteKind
	end       string // or a server
	data      []byte // of output; it grows until another note follows
	text      string // what was run, why state was lost, or what a server told
}

type noteKind uint8

const (
	noteStart noteKind = iota
	noteStdout
	noteStderr
	noteEnd
	noteLost
	noteReset
	noteDropped
	noteTold
)

// entry returns the note as it is written.
func (n *note) entry() Entry {
	e := Entry{Time: time.Unix(0, n.at).UTC(), Execution: n.execution}
	switch n.kind {
	case noteStart:
		e.Start, e.Code = true, n.text
	case noteStdout, noteStderr:
		e.Stream = wire.Stdout.String()
		if n.kind == noteStderr {
			e.Stream = wire.Stderr.String()
		}
		if utf8.Valid(n.data) {
			e.Text = string(n.data)
		} else {
			e.Bytes = n.data
		}
	case noteEnd:
		e.End, e.Lost = n.end, n.text
	case noteLost:
		e.Lost = n.text
	case noteReset:
		e.Reset = true
	case noteTold:
		e.Server, e.Told = n.end, n.text
	case noteDropped:
		e.LeftOut = int64(n.execution)
		e.Execution = 0
	}
	return e
}

// Dir returns the log's directory, for a [Reader]; empty for a nil Log.
func (l *Log) Dir() string {
	if l == nil {
		return ""
	}
	return l.dir
}

// Begin logs the start of an execution.
func (l *Log) Begin(execution uint64, code string) {
	if l == nil {
		return
	}
	if len(code) > maxCode {
		code = code[:maxCode]
	}
	l.add(note{execution: execution, kind: noteStart, text: code})
}

// Output logs what was written; execution 0 is between two executions. The
// caller may reuse p.
func (l *Log) Output(execution uint64, s wire.Stream, p []byte) {
	if l == nil || len(p) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if l.size+len(p) > l.room() {
		l.dropped += int64(len(p))
		l.arm()
		return
	}
	l.size += len(p)
	kind := noteStdout
	if s == wire.Stderr {
		kind = noteStderr
	}
	if n := len(l.pending); n > 0 {
		if last := &l.pending[n-1]; last.execution == execution && last.kind == kind && len(last.data)+len(p) <= maxMerged {
			last.data = append(last.data, p...)
			return
		}
	}
	l.put(note{execution: execution, kind: kind, data: append([]byte(nil), p...)})
}

// Told logs a line that a server told about a call of an execution. It is no output
// of the execution.
func (l *Log) Told(execution uint64, server, line string) {
	if l != nil {
		l.add(note{execution: execution, kind: noteTold, end: server, text: line})
	}
}

// End logs how an execution ended, and why its sandbox did, if it did.
func (l *Log) End(execution uint64, end, reason string) {
	if l != nil {
		l.add(note{execution: execution, kind: noteEnd, end: end, text: reason})
	}
}

// Lost logs that the state of earlier executions is gone.
func (l *Log) Lost(reason string) {
	if l != nil {
		l.add(note{kind: noteLost, text: reason})
	}
}

// Reset logs that the user reset the session.
func (l *Log) Reset() {
	if l != nil {
		l.add(note{kind: noteReset})
	}
}

func (l *Log) add(n note) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if (n.kind == noteStart || n.kind == noteTold) && l.size+len(n.text) > l.room() {
		l.dropped += int64(len(n.text))
		if n.text = ""; n.kind == noteTold {
			l.arm()
			return
		}
	}
	l.size += len(n.text)
	l.put(n)
}

// put appends a note and schedules its writing. The lock is held.
func (l *Log) put(n note) {
	if l.pending == nil {
		l.pending, l.spare = l.spare, nil
	}
	n.at = time.Now().UnixNano()
	if l.dropped > 0 {
		l.pending = append(l.pending, note{at: n.at, kind: noteDropped, execution: uint64(l.dropped)})
		l.dropped = 0
	}
	l.pending = append(l.pending, n)
	l.size += noteSize
	l.arm()
}

// room returns how many bytes may be pending: less than a file may hold.
func (l *Log) room() int { return int(min(maxPending, l.store.limit/8)) }

// arm schedules a flush. The lock is held.
func (l *Log) arm() {
	if !l.armed {
		l.armed = true
		time.AfterFunc(flushDelay, l.Flush)
	}
}

// Flush writes what is pending.
func (l *Log) Flush() {
	if l == nil {
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	if l.dropped > 0 {
		l.pending = append(l.pending, note{at: time.Now().UnixNano(), kind: noteDropped, execution: uint64(l.dropped)})
		l.dropped = 0
	}
	pending := l.pending
	l.pending, l.size, l.armed = nil, 0, false
	l.mu.Unlock()
	if len(pending) == 0 {
		return
	}
	defer func() {
		if cap(pending) <= maxSpare {
			clear(pending)
			l.mu.Lock()
			l.spare = pending[:0]
			l.mu.Unlock()
		}
	}()
	if err := l.write(pending); err != nil && !l.failed {
		l.failed = true // logged once; the code must not suffer
		l.store.log.Warn("a session's log cannot be written", "session", l.name, "error", err)
	}
}

func (l *Log) write(pending []note) error {
	if !l.persistent {
		if err := l.store.lock(); err != nil {
			return err
		}
	}
	dir, err := store.At(l.dir).OpenRoot()
	if err != nil {
		return err
	}
	defer dir.Close()
	var output, code bytes.Buffer
	for i := range pending {
		e := pending[i].entry()
		if e.Code != "" || e.Reset || e.Lost != "" {
			if err := writeLine(&code, Entry{Time: e.Time, Execution: e.Execution, Code: e.Code, Reset: e.Reset, Lost: e.Lost}); err != nil {
				return err
			}
		}
		e.Code = ""
		if err := writeLine(&output, e); err != nil {
			return err
		}
	}
	// Each log is two files; the older one is replaced when the newer is full.
	return errors.Join(
		appendTo(dir, outputFile, output.Bytes(), l.store.limit*3/8),
		appendTo(dir, codeFile, code.Bytes(), l.store.limit/8),
	)
}

func writeLine(w *bytes.Buffer, e Entry) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(e)
}

// appendTo appends lines to a file, which it rotates before it would exceed
// limit. A line that exceeds limit by itself is replaced by an entry that counts
// its bytes.
func appendTo(dir *os.Root, name string, data []byte, limit int64) error {
	if len(data) == 0 {
		return nil
	}
	size := int64(0)
	if info, err := dir.Lstat(name); err == nil {
		size = info.Size()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for len(data) > 0 {
		part := data[:0]
		for len(part) < len(data) {
			next := len(part) + bytes.IndexByte(data[len(part):], '\n') + 1
			if size+int64(next) > limit {
				break
			}
			part = data[:next]
		}
		if err := appendPart(dir, name, part); err != nil {
			return err
		}
		data, size = data[len(part):], size+int64(len(part))
		if len(data) == 0 {
			return nil
		}
		if size > 0 {
			if err := dir.Rename(name, name+olderSuffix); err != nil {
				return err
			}
			size = 0
			continue
		}
		end := bytes.IndexByte(data, '\n') + 1
		var dropped bytes.Buffer
		if err := writeLine(&dropped, Entry{Time: time.Now().UTC(), LeftOut: int64(end)}); err != nil {
			return err
		}
		if int64(dropped.Len()) > limit {
			return nil // no room even for one entry
		}
		data = append(dropped.Bytes(), data[end:]...)
	}
	return nil
}

func appendPart(dir *os.Root, name string, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// Remove removes everything that was logged.
func (l *Log) Remove() error {
	if l == nil {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	l.pending, l.size, l.dropped = nil, 0, 0
	l.mu.Unlock()
	return store.At(filepath.Dir(l.dir)).RemoveAll(filepath.Base(l.dir))
}

// close writes what is pending, if it may still be read, and stops logging.
func (l *Log) close() {
	l.mu.Lock()
	l.closed = true
	if !l.persistent {
		l.pending, l.size, l.dropped = nil, 0, 0
	}
	l.mu.Unlock()
	l.Flush()
}
