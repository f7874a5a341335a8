package session

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"sallyport/internal/guest"
	"sallyport/internal/wire"
)

const (
	// taskBase is how long a guest may work on a task of the host, and taskRate
	// how many bytes it must move in each second beyond that.
	taskBase = 5 * time.Second
	taskRate = 8 << 20
	// taskWait bounds the time in which the host itself works on a task.
	taskWait = 2 * time.Minute
	// maxFiles bounds how many files an archive has, and maxPathLength their
	// names.
	maxFiles      = 20000
	maxPathLength = 1000
	// maxLeftOut bounds how many files that were left out are named.
	maxLeftOut = 100
	// partSize is what goes to a guest in one frame. A part that comes from
	// one is at least minPart, unless it is a file's last.
	partSize = 1 << 20
	minPart  = 16 << 10
)

// Names in an archive.
const (
	// ArchiveFacts is the first file of an archive, [Facts] as JSON.
	ArchiveFacts = "session.json"
	// ArchiveWorkspace is the directory with the files of /workspace.
	ArchiveWorkspace = "workspace/"
	// ArchiveCode is the directory with the source of what was run, a file for
	// each execution.
	ArchiveCode = "code/"
	// ArchiveLeftOut is the last file: what is not in the archive, a line each.
	ArchiveLeftOut = "left-out.txt"
)

// archiveFormat is the version of archives.
const archiveFormat = 1

// ErrArchive: it is no archive of a session, or a broken one.
var ErrArchive = errors.New("not an exported session")

// Facts are what an archive says of its session.
type Facts struct {
	Format     int       `json:"format"`
	Name       string    `json:"name"`
	Created    time.Time `json:"created"`
	Exported   time.Time `json:"exported"`
	Executions uint64    `json:"executions"`
}

// Export writes a session to w as a tar archive: its files, and the source of
// what was run. Variables and processes are not in it. A session that sleeps is
// looked into and sleeps on.
func (s *Set) Export(ctx context.Context, name string, w io.Writer) error {
	one := s.known(name)
	if one == nil {
		if s.keeper == nil || name == "" {
			return ErrUnknown
		}
		if r, err := s.keeper.read(name); err != nil || r == nil {
			return errors.Join(ErrUnknown, err)
		}
		var err error
		if one, err = s.Get(name); err != nil {
			return err
		}
	}
	return one.export(ctx, w)
}

func (s *Session) export(ctx context.Context, w io.Writer) error {
	t := s.queue.enter()
	defer s.queue.leave(t)
	if err := s.queue.wait(ctx, t); err != nil {
		return err
	}
	b := s.box
	if b == nil {
		var err error
		if b, err = s.copyOfSleeper(ctx); err != nil {
			return err
		}
		defer b.destroy()
	} else {
		if err := b.wake(ctx); err != nil {
			return err
		}
		defer s.rest("its files were exported")
	}
	i := s.info()
	facts := Facts{Format: archiveFormat, Name: s.name, Created: i.Created, Exported: time.Now().UTC(), Executions: i.Executions}
	a, err := newArchiver(w, facts, s.config.Spec.Limits.WorkspaceBytes)
	if err != nil {
		return err
	}
	defer a.close()
	err = b.ask(ctx, s.config.Grace, taskTime(s.config.Spec.Limits.WorkspaceBytes), wire.TaskTakeOut, a.take)
	if a.err != nil {
		err = a.err
	}
	if err != nil {
		return fmt.Errorf("taking the files out: %w", err)
	}
	s.book.flush()
	if err := a.code(i.Log); err != nil {
		return err
	}
	return a.end()
}

// rest lets a sandbox rest again that was used in a turn, or notes that it did
// not survive that.
func (s *Session) rest(why string) {
	if s.box.dead() {
		s.drop("the sandbox was lost while " + why + ": " + s.box.obituary())
		return
	}
	s.box.idle(s.config.Background)
}

// copyOfSleeper makes a sandbox of what sleeps. Nothing is noted of it, and the
// snapshot stays what the session is.
func (s *Session) copyOfSleeper(ctx context.Context) (*box, error) {
	if s.nap == nil {
		return nil, errors.New("it has no state: there is nothing to export")
	}
	if !s.nap.own {
		unlock, err := s.nap.keeper.try(s.name)
		if err != nil {
			return nil, err
		}
		defer unlock()
		record, err := s.nap.keeper.read(s.name)
		if err != nil {
			return nil, err
		}
		if record == nil || record.Status != Asleep {
			return nil, errors.New("it has no state: there is nothing to export")
		}
		s.view.mu.Lock()
		s.view.executions, s.view.since = record.Executions, record.Created
		s.view.mu.Unlock()
	} else if !s.nap.asleep {
		return nil, errors.New("it has no state: there is nothing to export")
	}
	return s.nap.restore(ctx, s.config, s.log, s.life.Done())
}

// taskTime is how long a guest may take to move that many bytes.
func taskTime(bytes int64) time.Duration {
	return taskBase + time.Duration(float64(bytes)/taskRate*float64(time.Second))
}

// errSlow: a guest took too long over a task. What it had moved may be used.
var errSlow = errors.New("the sandbox did not move its files in time")

// ask has the guest do a task, whose calls answer serves one at a time. Limit
// bounds the time that the guest takes, without that of answer. A guest that does
// not end in time is interrupted, and then destroyed: the error is errSlow.
func (b *box) ask(ctx context.Context, grace, limit time.Duration, task string, answer func(wire.Call) (any, error)) error {
	e := guest.Exec{Task: task}
	if b.reseed {
		e.Reseed, b.reseed = entropy(), false
	}
	h := &taskHandler{answer: answer}
	began := time.Now()
	running, err := b.conn.Start(e, h)
	if err != nil {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	gaveUp := ctx.Done()
	for !ended(running) {
		var cause error
		select {
		case <-running.Done():
			continue
		case <-gaveUp:
			// It fails at its next call. What holds it up until then is code of
			// the session's, which is not to die because somebody went away.
			gaveUp = nil
			h.refuse(context.Cause(ctx))
			continue
		case <-timer.C:
			took := time.Since(began)
			if left := min(limit-took+h.answering(), limit+taskWait-took); left > 0 {
				timer.Reset(left)
				continue
			}
			cause = errSlow
		case <-b.life:
			cause = ErrClosed
		}
		h.refuse(cause)
		if b.interrupter == nil || !b.interrupt(ctx, grace, running) {
			b.destroy()
			<-running.Done()
		}
		return cause
	}
	outcome, err := running.Result()
	switch {
	case err != nil:
		return fmt.Errorf("the sandbox died: %w", err)
	case h.err() != nil:
		return h.err()
	case outcome.Status == wire.StatusOK:
		return nil
	case outcome.Error != nil:
		return fmt.Errorf("inside of the sandbox, perhaps because of what its code has changed there: %s: %s", clean(outcome.Error.Type), clean(outcome.Error.Message))
	}
	return fmt.Errorf("inside of the sandbox: %s", outcome.Status)
}

// taskHandler serves a task. What user code writes meanwhile is not of it.
type taskHandler struct {
	answer func(wire.Call) (any, error)
	turn   sync.Mutex // held while a call is answered

	mu     sync.Mutex
	failed error         // the host's part in it
	spent  time.Duration // on answers
	since  time.Time     // of the answer that is being made; zero: none is
}

func (h *taskHandler) Output(guest.Stream, []byte) {}

func (h *taskHandler) Call(_ context.Context, call wire.Call) (json.RawMessage, error) {
	h.turn.Lock()
	defer h.turn.Unlock()
	refused := &wire.CallError{Kind: wire.KindCancelled, Message: "the host gave up"}
	if h.err() != nil {
		return nil, refused
	}
	h.works(true)
	v, err := h.answer(call)
	h.works(false)
	if err == nil {
		var data []byte
		if data, err = json.Marshal(v); err == nil {
			return data, nil
		}
	}
	h.refuse(err)
	return nil, refused
}

// works notes that an answer is begun, or made.
func (h *taskHandler) works(begins bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if begins {
		h.since = time.Now()
		return
	}
	h.spent += time.Since(h.since)
	h.since = time.Time{}
}

// answering is how long the host has worked on answers.
func (h *taskHandler) answering() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		return h.spent
	}
	return h.spent + time.Since(h.since)
}

func (h *taskHandler) refuse(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed == nil {
		h.failed = err
	}
}

func (h *taskHandler) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// clean is a text of the guest's on one line.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, clip(text))
}

// archiver writes an archive of what a guest sends, all of which is checked.
type archiver struct {
	tar    *tar.Writer
	limit  int64 // of bytes
	now    time.Time
	seen   map[string]bool
	part   *os.File // the file that is being sent, without a name
	open   wire.TaskFile
	inPart int64
	total  int64
	left   []string
	more   int // left out beyond those
	err    error
}

func newArchiver(w io.Writer, facts Facts, limit int64) (*archiver, error) {
	a := &archiver{tar: tar.NewWriter(w), limit: limit, now: facts.Exported, seen: map[string]bool{}}
	data, err := json.MarshalIndent(facts, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := a.file(ArchiveFacts, append(data, '\n')); err != nil {
		return nil, err
	}
	if a.part, err = os.CreateTemp("", "sallyport-export-*"); err != nil {
		return nil, err
	}
	_ = os.Remove(a.part.Name()) // nothing stays if this program is killed; where that cannot be done, close does it
	return a, nil
}

func (a *archiver) close() {
	_ = a.part.Close()
	_ = os.Remove(a.part.Name())
}

// take serves the task.
func (a *archiver) take(call wire.Call) (any, error) {
	if call.Method != wire.MethodTaskFile {
		return nil, fmt.Errorf("the sandbox asked for %s", clean(call.Method))
	}
	f, err := taskFile(call)
	if err != nil {
		return nil, err
	}
	a.err = a.got(f)
	return nil, a.err
}

// taskFile reads a part of a file that a guest sent. Many small parts would cost
// the host more than the guest.
func taskFile(call wire.Call) (f wire.TaskFile, err error) {
	if err := json.Unmarshal(call.Params, &f); err != nil {
		return f, errors.New("the sandbox sent what is no part of a file")
	}
	if f.More && len(f.Data) < minPart {
		return f, fmt.Errorf("the sandbox sent a file in parts of less than %d bytes", minPart)
	}
	return f, nil
}

func (a *archiver) got(f wire.TaskFile) error {
	switch {
	case a.open.More && (f.Path != a.open.Path || f.Directory || f.LeftOut != ""):
		// It was left in the middle.
		if err := a.finish(); err != nil {
			return err
		}
		a.skip(a.open.Path, "could not be read to its end")
		a.open = wire.TaskFile{}
		return a.got(f)
	case f.LeftOut != "":
		a.skip(f.Path, f.LeftOut)
		return nil
	case !validPath(f.Path):
		a.skip(f.Path, "its name is not one for other systems")
		return nil
	}
	if !a.open.More {
		if a.seen[f.Path] {
			return nil // twice
		}
		if len(a.seen) >= maxFiles {
			return fmt.Errorf("there are more than %d files", maxFiles)
		}
		a.seen[f.Path] = true
		if f.Directory {
			return a.tar.WriteHeader(&tar.Header{
				Typeflag: tar.TypeDir, Name: ArchiveWorkspace + f.Path + "/", Mode: int64(f.Mode&0o777 | 0o700), ModTime: a.now,
			})
		}
		if _, err := a.part.Seek(0, io.SeekStart); err != nil {
			return err
		}
		a.inPart = 0
	}
	if a.total += int64(len(f.Data)); a.total > a.limit {
		return fmt.Errorf("the files are larger than the workspace's %d bytes", a.limit)
	}
	if _, err := a.part.Write(f.Data); err != nil {
		return err
	}
	a.inPart += int64(len(f.Data))
	a.open = f
	if f.More {
		return nil
	}
	return a.finish()
}

// finish adds the file that was sent.
func (a *archiver) finish() error {
	err := a.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: ArchiveWorkspace + a.open.Path, Mode: int64(a.open.Mode & 0o777), Size: a.inPart, ModTime: a.now,
	})
	if err != nil {
		return err
	}
	if _, err := a.part.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.CopyN(a.tar, a.part, a.inPart)
	return err
}

func (a *archiver) skip(path, why string) {
	if len(a.left) >= maxLeftOut {
		a.more++
		return
	}
	a.left = append(a.left, clean(path)+": "+clean(why))
}

// file adds one of ours.
func (a *archiver) file(name string, data []byte) error {
	err := a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: a.now})
	if err == nil {
		_, err = a.tar.Write(data)
	}
	return err
}

// code adds the source of what was run since the last reset.
func (a *archiver) code(log string) error {
	if log == "" {
		a.skip("the code of the session", "no log of it is kept (sessions.logs)")
		return nil
	}
	var list []Entry
	r := Codes(log)
	defer r.Close()
	err := r.Read(func(e Entry) error {
		if e.Reset {
			list = nil
		} else {
			list = append(list, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for n, e := range list {
		text := e.Code
		if text == "" {
			text = "# The state was lost here: " + clean(e.Lost)
		}
		text = strings.TrimRight(text, "\n") + "\n"
		name := fmt.Sprintf("%s%05d.py", ArchiveCode, n+1)
		if err := a.file(name, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// end completes the archive.
func (a *archiver) end() error {
	if a.open.More {
		if err := a.finish(); err != nil {
			return err
		}
		a.skip(a.open.Path, "could not be read to its end")
	}
	text := "variables and everything that ran: they are of no use elsewhere\n"
	for _, l := range a.left {
		text += l + "\n"
	}
	if a.more > 0 {
		text += fmt.Sprintf("and %d more files\n", a.more)
	}
	if err := a.file(ArchiveLeftOut, []byte(text)); err != nil {
		return err
	}
	return a.tar.Close()
}

// validPath says whether a path is one of a file in a workspace, on any system:
// relative, clean and of characters that can be shown.
func validPath(path string) bool {
	return fs.ValidPath(path) && path != "." && len(path) <= maxPathLength &&
		!strings.ContainsFunc(path, func(r rune) bool { return r == '\\' || !unicode.IsPrint(r) })
}
