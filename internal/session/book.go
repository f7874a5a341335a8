package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"sallyport/internal/state"
)

const (
	// flushEvery is how long an entry may wait to be written.
	flushEvery = 250 * time.Millisecond
	// bookRoom is what may wait for the disk; more is counted and left out,
	// because code is not to wait for it.
	bookRoom = 4 << 20
	// noteCost is what a note takes beside its text.
	noteCost = 128
	// maxLoggedCode bounds the code of one execution in the book.
	maxLoggedCode = 1 << 20
)

// Names in a directory of books.
const (
	outputFile = "output" // output and ends; with ".1" what came before
	codeFile   = "code"
	olderFile  = ".1"
	lockFile   = "lock"
	namedBooks = "named"
)

// An Entry of a session's log is what happened at one moment. In a log of
// output, Start begins an execution; in one of code, Code has what it ran.
type Entry struct {
	Time      time.Time `json:"time"`
	Execution uint64    `json:"execution,omitempty"` // as in "<cell 3>"; 0: between two
	Start     bool      `json:"start,omitempty"`
	Code      string    `json:"code,omitempty"`
	Stream    string    `json:"stream,omitempty"` // of Text or Bytes: stdout, stderr
	Text      string    `json:"text,omitempty"`
	Bytes     []byte    `json:"bytes,omitempty"`   // in place of Text, where it is none
	LeftOut   int64     `json:"leftOut,omitempty"` // bytes that are not here, because the disk was too slow
	End       string    `json:"end,omitempty"`
	Lost      string    `json:"lost,omitempty"`  // why the state of earlier executions is gone
	Reset     bool      `json:"reset,omitempty"` // somebody asked for that
}

// books are the logs of a process's sessions. What a named session's say stays
// when the process ends, if the session does.
type books struct {
	dir   string
	limit int64
	log   *slog.Logger
	own   string // the directory of what ends with this process

	mu   sync.Mutex
	open []*book
	mark func() // releases the lock of own; nil: nothing is in it
}

// newBooks returns nil where no logs are kept.
func newBooks(config Config) *books {
	if config.Logs == "" || config.LogBytes <= 0 {
		return nil
	}
	return &books{
		dir: config.Logs, limit: config.LogBytes, log: config.Logger,
		own: fmt.Sprintf("%s%d-%s", processPrefix, os.Getpid(), strings.TrimPrefix(newID(), "sp-")[:8]),
	}
}

// bookDir is where a named session's book lies.
func bookDir(logs, name string) string {
	return filepath.Join(logs, namedBooks, state.FileName(name, ""))
}

// book returns a session's. Lasting says that the session may outlive the
// process.
func (k *books) book(name string, lasting bool) *book {
	if k == nil {
		return nil
	}
	b := &book{books: k, name: name, dir: bookDir(k.dir, name)}
	if !lasting {
		b.own, b.dir = true, filepath.Join(k.dir, k.own, state.FileName(name, ""))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = append(k.open, b)
	return b
}

// drop closes a book that nobody asks for any more.
func (k *books) drop(b *book) {
	if k == nil || b == nil {
		return
	}
	b.close()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = slices.DeleteFunc(k.open, func(o *book) bool { return o == b })
}

// live marks the directory of this process as one in use.
func (k *books) live() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mark != nil {
		return nil
	}
	mark, ok, err := state.At(filepath.Join(k.dir, k.own)).TryLock(lockFile)
	if err == nil && !ok {
		err = errors.New("the log's lock is taken")
	}
	k.mark = mark
	return err
}

// close writes what waits and removes what ends with the process.
func (k *books) close() {
	if k == nil {
		return
	}
	k.mu.Lock()
	open := k.open
	k.mu.Unlock()
	for _, b := range open {
		b.close()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mark != nil {
		_ = state.At(k.dir).RemoveAll(k.own)
		k.mark()
		k.mark = nil
	}
}

// tidy removes the logs of dead processes, and those of named sessions for
// which kept says that nothing else is there.
func (k *books) tidy(kept func(name string) bool) {
	entries, _ := os.ReadDir(k.dir)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), processPrefix) || e.Name() == k.own {
			continue
		}
		if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < tidyEvery {
			continue // it may be about to be marked
		}
		dir := filepath.Join(k.dir, e.Name())
		if unlock, ok, err := state.At(dir).TryLock(lockFile); err == nil && ok {
			_ = state.At(k.dir).RemoveAll(e.Name())
			unlock()
		}
	}
	entries, _ = os.ReadDir(filepath.Join(k.dir, namedBooks))
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) > tidyEvery && !kept(e.Name()) {
			_ = state.At(k.dir).Sub(namedBooks).RemoveAll(e.Name())
		}
	}
}

// book is one session's log of what its executions ran and wrote. Writing to it
// costs an execution a copy; a timer brings it to disk. A nil book takes
// everything.
type book struct {
	books *books
	name  string
	dir   string
	own   bool // it ends with the process

	mu      sync.Mutex
	pending []note
	spare   []note // to be used again
	size    int
	leftOut int64
	armed   bool
	closed  bool

	writing sync.Mutex
	failed  bool // which was said
}

// note is an entry that waits. Executions make three of them each, so they are
// small.
type note struct {
	at        int64 // nanoseconds
	execution uint64
	kind      noteKind
	end       End
	data      []byte // of output: it grows while nothing else comes
	text      string // of what was run, or why something was lost
}

type noteKind uint8

const (
	noteStart noteKind = iota
	noteStdout
	noteStderr
	noteEnd
	noteLost
	noteReset
	noteLeftOut
)

// reused is how many notes' room is kept for the next ones.
const reused = 4096

// entry is the note as it is written.
func (n *note) entry() Entry {
	e := Entry{Time: time.Unix(0, n.at).UTC(), Execution: n.execution}
	switch n.kind {
	case noteStart:
		e.Start, e.Code = true, n.text
	case noteStdout, noteStderr:
		e.Stream = Stdout.String()
		if n.kind == noteStderr {
			e.Stream = Stderr.String()
		}
		if utf8.Valid(n.data) {
			e.Text = string(n.data)
		} else {
			e.Bytes = n.data
		}
	case noteEnd:
		e.End, e.Lost = n.end.String(), n.text
	case noteLost:
		e.Lost = n.text
	case noteReset:
		e.Reset = true
	case noteLeftOut:
		e.LeftOut = int64(n.execution)
		e.Execution = 0
	}
	return e
}

// begin notes that an execution starts.
func (b *book) begin(execution uint64, code string) {
	if b == nil {
		return
	}
	if len(code) > maxLoggedCode {
		code = code[:maxLoggedCode]
	}
	b.add(note{execution: execution, kind: noteStart, text: code})
}

// output notes what was written; execution 0 is between two.
func (b *book) output(execution uint64, s Stream, p []byte) {
	if b == nil || len(p) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if b.size+len(p) > b.room() {
		b.leftOut += int64(len(p))
		b.arm()
		return
	}
	b.size += len(p)
	kind := noteStdout
	if s == Stderr {
		kind = noteStderr
	}
	if n := len(b.pending); n > 0 {
		if last := &b.pending[n-1]; last.execution == execution && last.kind == kind && len(last.data)+len(p) <= maxChunk {
			last.data = append(last.data, p...)
			return
		}
	}
	b.put(note{execution: execution, kind: kind, data: append([]byte(nil), p...)})
}

// end notes how an execution ended.
func (b *book) end(execution uint64, out *Outcome) {
	if b == nil {
		return
	}
	b.add(note{execution: execution, kind: noteEnd, end: out.End, text: out.Reason})
}

// lost notes that the state of earlier executions is gone, and reset that
// somebody wanted that.
func (b *book) lost(why string) {
	if b != nil {
		b.add(note{kind: noteLost, text: why})
	}
}

func (b *book) reset() {
	if b != nil {
		b.add(note{kind: noteReset})
	}
}

func (b *book) add(n note) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if n.kind == noteStart && b.size+len(n.text) > b.room() {
		b.leftOut += int64(len(n.text))
		n.text = ""
	}
	b.size += len(n.text)
	b.put(n)
}

// put appends a note and has it written soon. Held: mu.
func (b *book) put(n note) {
	if b.pending == nil {
		b.pending, b.spare = b.spare, nil
	}
	n.at = time.Now().UnixNano()
	if b.leftOut > 0 {
		b.pending = append(b.pending, note{at: n.at, kind: noteLeftOut, execution: uint64(b.leftOut)})
		b.leftOut = 0
	}
	b.pending = append(b.pending, n)
	b.size += noteCost
	b.arm()
}

// room is what may wait: less than a file may hold.
func (b *book) room() int { return int(min(bookRoom, b.books.limit/8)) }

// arm has what waits written soon. Held: mu.
func (b *book) arm() {
	if !b.armed {
		b.armed = true
		time.AfterFunc(flushEvery, b.flush)
	}
}

// flush writes what waits.
func (b *book) flush() {
	if b == nil {
		return
	}
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	if b.leftOut > 0 {
		b.pending = append(b.pending, note{at: time.Now().UnixNano(), kind: noteLeftOut, execution: uint64(b.leftOut)})
		b.leftOut = 0
	}
	pending := b.pending
	b.pending, b.size, b.armed = nil, 0, false
	b.mu.Unlock()
	if len(pending) == 0 {
		return
	}
	defer func() {
		if cap(pending) <= reused {
			clear(pending)
			b.mu.Lock()
			b.spare = pending[:0]
			b.mu.Unlock()
		}
	}()
	if err := b.write(pending); err != nil && !b.failed {
		b.failed = true // once is enough: the code is not to suffer
		b.books.log.Warn("a session's log cannot be written", "session", b.name, "error", err)
	}
}

func (b *book) write(pending []note) error {
	if b.own {
		if err := b.books.live(); err != nil {
			return err
		}
	}
	dir, err := state.At(b.dir).OpenRoot()
	if err != nil {
		return err
	}
	defer dir.Close()
	var output, code bytes.Buffer
	for i := range pending {
		e := pending[i].entry()
		if e.Code != "" || e.Reset || e.Lost != "" {
			if err := line(&code, Entry{Time: e.Time, Execution: e.Execution, Code: e.Code, Reset: e.Reset, Lost: e.Lost}); err != nil {
				return err
			}
		}
		e.Code = ""
		if err := line(&output, e); err != nil {
			return err
		}
	}
	// Each is two files, of which the older one goes when the newer is full.
	return errors.Join(
		appendTo(dir, outputFile, output.Bytes(), b.books.limit*3/8),
		appendTo(dir, codeFile, code.Bytes(), b.books.limit/8),
	)
}

func line(w *bytes.Buffer, e Entry) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(e)
}

// appendTo appends lines to a file, which is put aside before it would grow larger
// than limit. A line that is larger by itself is counted in its place.
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
			if err := dir.Rename(name, name+olderFile); err != nil {
				return err
			}
			size = 0
			continue
		}
		end := bytes.IndexByte(data, '\n') + 1
		var left bytes.Buffer
		if err := line(&left, Entry{Time: time.Now().UTC(), LeftOut: int64(end)}); err != nil {
			return err
		}
		if int64(left.Len()) > limit {
			return nil // there is no room for anything
		}
		data = append(left.Bytes(), data[end:]...)
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

// remove forgets everything.
func (b *book) remove() error {
	if b == nil {
		return nil
	}
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	b.pending, b.size, b.leftOut = nil, 0, 0
	b.mu.Unlock()
	return state.At(filepath.Dir(b.dir)).RemoveAll(filepath.Base(b.dir))
}

// close writes what waits, of what somebody may still read, and takes no more.
func (b *book) close() {
	b.mu.Lock()
	b.closed = true
	if b.own {
		b.pending, b.size, b.leftOut = nil, 0, 0
	}
	b.mu.Unlock()
	b.flush()
}
