package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/sallyport/sallyport/internal/store"
)

// The record of a task is the file ID.json. The process that runs the task holds
// the lock of that name: a record of a task that works, with a free lock, belongs
// to a process that has died.

const (
	suffix = ".json"
	// maxRecord bounds the records that are read, and maxRecords those on disk.
	maxRecord  = maxBytes + 1<<20
	maxRecords = 4 * maxTasks
)

// record is the content of the file.
type record struct {
	Owner   string    `json:"owner"`
	Client  string    `json:"client"`
	ID      string    `json:"clientId,omitempty"`
	Task    *Info     `json:"task"`
	Expires time.Time `json:"expires"`
}

// decode reads a record, and returns an error for one that is not used.
func decode(data []byte) (*record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if r.Task == nil || r.Task.ID == "" {
		return nil, errors.New("it names no task")
	}
	switch r.Task.Status {
	case Working, InputRequired, Completed, Cancelled, Failed:
		return &r, nil
	}
	return nil, fmt.Errorf("a task has no status %q", r.Task.Status)
}

// lock takes the lock of a new task's record.
func (s *Set) lock(id string) (unlock func(), err error) {
	unlock, ok, err := s.dir.TryLock(id)
	switch {
	case errors.Is(err, store.ErrNoPlace):
		return func() {}, nil
	case err == nil && !ok:
		err = errors.New("the record is locked")
	}
	return unlock, err
}

// record writes the record of a task as it is now.
func (s *Set) record(t *Task) error {
	t.writes.Lock()
	defer t.writes.Unlock()
	s.mu.Lock()
	r := record{t.owner.Name, t.owner.Client, t.owner.ID, t.info(), t.expires}
	s.mu.Unlock()
	r.Task.InputRequests = nil // no other process can ask
	if s.whole(r.Task); r.Task.Status == Completed && r.Task.Result == nil && s.dir.Placed() {
		return errors.New("the result is gone")
	}
	return s.write(&r)
}

func (s *Set) write(r *record) error {
	data, err := marshal(r)
	if err != nil {
		return err
	}
	err = s.dir.Write(r.Task.ID+suffix, append(data, '\n'))
	if errors.Is(err, store.ErrNoPlace) {
		return nil
	}
	return err
}

// recorded returns the task of another process, or nil. If that process has died,
// the task has failed.
func (s *Set) recorded(owner Owner, id string) *Info {
	if !isID(id) {
		return nil
	}
	r := s.read(id)
	if r == nil {
		return nil
	}
	began := Owner{r.Owner, r.Client, r.ID}
	s.mu.Lock()
	sees := s.sees(owner, began)
	s.mu.Unlock()
	if !sees {
		return nil
	}
	if r.Task.Ended() {
		if stamp().After(r.Expires) {
			s.forget(id)
			return nil
		}
		s.known(r)
		return r.Task
	}
	unlock, ok, err := s.dir.TryLock(id)
	if err == nil && !ok && owner.ID != began.ID {
		return nil // the client that began it is connected to another process
	}
	if err != nil || !ok {
		return r.Task
	}
	defer unlock()
	if r = s.read(id); r == nil || r.Task.Ended() { // that process has ended meanwhile
		if r == nil {
			return nil
		}
		return r.Task
	}
	now := stamp()
	const lost = "the Sallyport that ran this code has ended, and the code with it; run it again"
	t := r.Task
	t.Status, t.Message, t.Updated = Failed, lost, now
	t.Error = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: lost}
	r.Expires = now.Add(keptRead)
	t.TTL = r.Expires.Sub(t.Created).Milliseconds()
	if err := s.write(r); err != nil {
		s.log.Warn("the end of a task could not be recorded", "error", err)
	}
	return t
}

// known records that the client knows the end of a task of a process that has ended.
func (s *Set) known(r *record) {
	until := stamp().Add(keptRead)
	if !until.Before(r.Expires) {
		return
	}
	r.Expires, r.Task.TTL = until, until.Sub(r.Task.Created).Milliseconds()
	if err := s.write(r); err != nil {
		s.log.Warn("that a task was seen could not be recorded", "error", err)
	}
}

// read returns a record, or nil if there is none that can be used.
func (s *Set) read(id string) *record {
	data, err := s.dir.Read(id+suffix, maxRecord)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, store.ErrNoPlace) {
			s.log.Warn("the record of a task cannot be read", "error", err)
		}
		return nil
	}
	r, err := decode(data)
	if err != nil || r.Task.ID != id {
		s.log.Warn("the record of a task cannot be used", "task", id)
		return nil
	}
	return r
}

// forget removes a record.
func (s *Set) forget(id string) {
	err := s.dir.Remove(id + suffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, store.ErrNoPlace) {
		s.log.Warn("the record of a task could not be removed", "error", err)
	}
}

// sweep removes the records of tasks whose time is up, and the oldest where there
// are too many. Those of running processes stay.
func (s *Set) sweep() {
	names, err := s.dir.List()
	if err != nil {
		s.log.Warn("the records of tasks cannot be listed", "error", err)
		return
	}
	age := map[string]time.Duration{}
	for _, name := range names {
		if info, err := os.Lstat(s.dir.Path(name)); err == nil {
			age[name] = time.Since(info.ModTime())
		}
	}
	limit := keptUnread
	for left := len(names); left > 0; limit /= 2 {
		for name, old := range age {
			if old < limit {
				continue
			}
			delete(age, name)
			id := strings.TrimSuffix(name, suffix)
			if unlock, ok, err := s.dir.TryLock(id); err == nil && ok {
				s.forget(id)
				unlock()
				left--
			}
		}
		if left <= maxRecords || limit < time.Second {
			return
		}
	}
}

// isID reports whether a client's word for a task can be one of ours.
func isID(id string) bool {
	const length = 26 // of rand.Text
	return len(id) == length && strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// marshal is json.Marshal without the escapes for HTML, which cost a model tokens.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
