package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/store"
)

// maxRecord bounds a record of open questions.
const maxRecord = 8 << 20

// Lost is a question whose process was killed while it was open. None of its
// calls was sent.
type Lost struct {
	ID      string    `json:"id"`
	Process int       `json:"process"`
	Name    string    `json:"name"`
	Calls   int       `json:"calls"`
	Since   time.Time `json:"since"`

	Owner     string `json:"owner,omitempty"`
	Client    string `json:"client,omitempty"`
	Session   string `json:"session,omitempty"`
	Execution string `json:"execution,omitempty"`
	Action    string `json:"action,omitempty"`
	Server    string `json:"server,omitempty"`
	Item      string `json:"item,omitempty"`
	// Recorded: it was, and is kept for people to see.
	Recorded bool `json:"recorded,omitempty"`
}

// Text says what was lost: "Process 7 was killed while" goes before.
func (l *Lost) Text() string {
	name := invisible.Line(l.Name)
	if l.inquiry() {
		return fmt.Sprintf("it waited for %s. None was sent.", name)
	}
	return fmt.Sprintf("%d of %s waited for approval. None was sent.", l.Calls, name)
}

// unsent says what was not sent.
func (l *Lost) unsent() string {
	if l.inquiry() {
		return "no answer was sent"
	}
	return "none of its calls was sent"
}

// extension ends the names of records.
const extension = ".json"

// recorder keeps on disk which questions of this process are open. Its lock tells
// others that the process lives.
type recorder struct {
	dir  store.Dir
	name string
	log  *slog.Logger

	mu     sync.Mutex
	unlock func()
	broken bool
}

// write writes what open returns; nothing is on disk while no question is open.
func (r *recorder) write(open func() []Lost) {
	if !r.dir.Placed() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := open()
	if r.broken || r.unlock == nil && len(all) == 0 {
		return
	}
	err := r.put(all)
	if err != nil {
		r.broken = true
		r.log.Warn("open questions are not recorded: they are not reported if this process is killed", "error", err)
	}
}

func (r *recorder) put(all []Lost) error {
	if len(all) == 0 {
		r.release()
		return nil
	}
	if r.unlock == nil {
		unlock, ok, err := r.dir.TryLock(r.name + extension)
		if err != nil {
			return err
		}
		if !ok {
			return errors.New("its record is locked")
		}
		r.unlock = unlock
	}
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return r.dir.WriteUnsynced(r.name+extension, data)
}

// release removes the record. The lock is held.
func (r *recorder) release() {
	if r.unlock == nil {
		return
	}
	if err := r.dir.Remove(r.name + extension); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("the record of open questions could not be removed", "error", err)
	}
	r.unlock()
	r.unlock = nil
}

func (r *recorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.release()
	r.broken = true
}

// Reap returns the questions that killed processes left, and forgets those that keep
// has recorded. What it cannot record is found again.
func Reap(dir store.Dir, keep func([]Lost) error) ([]Lost, error) { return reap(dir, keep, true) }

// RecordLost has keep record the questions that killed processes left, and leaves them
// for Reap.
func RecordLost(dir store.Dir, keep func([]Lost) error) error {
	_, err := reap(dir, keep, false)
	return err
}

func reap(dir store.Dir, keep func([]Lost) error, forget bool) ([]Lost, error) {
	if !dir.Placed() {
		return nil, nil
	}
	names, err := dir.List()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	var out []Lost
	var errs []error
	for _, name := range names {
		if !strings.HasSuffix(name, extension) {
			continue
		}
		unlock, ok, err := dir.TryLock(name)
		if err != nil || !ok {
			errs = append(errs, err)
			continue // its process lives
		}
		var these []Lost
		data, err := dir.Read(name, maxRecord)
		if err == nil {
			err = json.Unmarshal(data, &these)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil: // it says nothing
			errs = append(errs, err, dir.Remove(name))
		default:
			fresh := slices.DeleteFunc(slices.Clone(these), func(l Lost) bool { return l.Recorded })
			if len(fresh) > 0 {
				err = keep(fresh)
			}
			switch {
			case err != nil:
			case forget:
				err = dir.Remove(name)
			case len(fresh) > 0:
				err = mark(dir, name, these)
			}
			errs = append(errs, err)
		}
		unlock()
		out = append(out, these...)
	}
	return out, errors.Join(errs...)
}

// mark notes in a record that its questions are in the audit log.
func mark(dir store.Dir, name string, these []Lost) error {
	marked := slices.Clone(these)
	for i := range marked {
		marked[i].Recorded = true
	}
	data, err := json.Marshal(marked)
	if err != nil {
		return err
	}
	return dir.WriteUnsynced(name, data)
}

// maxLost bounds the lost questions that a process remembers.
const maxLost = 100

// Reap reports the questions that killed processes left, and remembers them for
// Lost.
func (b *Book) Reap() {
	keep := b.config.Lost
	if keep == nil {
		keep = func([]Lost) error { return nil }
	}
	lost, err := Reap(b.config.Records, keep)
	if err != nil {
		b.config.Log.Warn("records of open questions cannot be read, or not be recorded in the audit log", "error", err)
	}
	for _, l := range lost {
		b.config.Log.Warn("a Sallyport was killed while a question was open; "+l.unsent(), "calls", l.Calls, "of", l.Name, "process", l.Process, "since", l.Since)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost = append(b.lost, lost...)
	if over := len(b.lost) - maxLost; over > 0 {
		b.lost = b.lost[over:]
	}
}

// Lost returns the questions that Reap found.
func (b *Book) Lost() []Lost {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.lost)
}
