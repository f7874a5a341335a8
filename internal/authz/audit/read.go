package audit

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/store"
)

// A Reader reads the records of a log in their order. It does not check the
// chain: Verify does.
type Reader struct {
	dir    store.Dir
	since  time.Time // files that ended before it are not read
	file   uint64    // that was read last
	offset int64     // in it
	next   uint64    // the first record that was not read
}

// NewReader returns a reader of the records since a time, and perhaps of some
// before it.
func NewReader(dir store.Dir, since time.Time) *Reader { return &Reader{dir: dir, since: since} }

// Each calls visit with the records that were written since the last call. line
// and record are valid until visit returns.
func (r *Reader) Each(visit func(line []byte, record *Record)) error {
	names, err := r.dir.List()
	if err != nil {
		return err
	}
	for _, name := range names {
		first, ok := firstOf(name)
		if !ok || first < r.file {
			continue
		}
		if first > r.file {
			r.file, r.offset = first, 0
		}
		if err := r.read(name, visit); err != nil && !errors.Is(err, fs.ErrNotExist) { // it was old
			return err
		}
	}
	return nil
}

func (r *Reader) read(name string, visit func(line []byte, record *Record)) error {
	f, err := r.dir.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.ModTime().Before(r.since) {
		return nil
	}
	if info.Size() < r.offset {
		r.offset = 0 // lines were taken back
	}
	return eachLine(section{f, r.offset}, -1, func(line []byte, whole bool) bool {
		if !whole {
			return false
		}
		r.offset += int64(len(line)) + 1
		var record Record
		if json.Unmarshal(line, &record) == nil && record.Seq >= r.next {
			r.next = record.Seq + 1
			visit(line, &record)
		}
		return true
	})
}

// section reads a file from an offset on.
type section struct {
	*os.File
	from int64
}

func (s section) ReadAt(b []byte, offset int64) (int, error) { return s.File.ReadAt(b, s.from+offset) }

// An Entry is a record and, if it is a decision, what came of it.
type Entry struct {
	*Record
	Outcome *Record `json:"outcome,omitempty"`
	ended   bool    // of a question: a later record says how it ended
}

// Results of entries.
const (
	OK      = "ok"
	Failed  = "failed"
	Denied  = "denied"
	Pending = "pending" // or its end is not recorded
)

// Result says in a word how it went.
func (e *Entry) Result() string {
	switch {
	case e.Allowed != nil && !*e.Allowed:
		return Denied
	case e.Type == Decision && e.Outcome == nil, e.Type == Question && !e.ended:
		return Pending
	case e.Type == Decision && e.Outcome.Failure != "",
		e.Type == Ended && e.Status != "success", e.Type == Lost, e.Type == Repaired, e.Type == Broken,
		(e.Type == Session || e.Type == Server) && (e.To == string(journal.ServerFailed) || e.To == string(journal.ServerDied) || e.To == string(journal.SessionLost)):
		return Failed
	}
	return OK
}

// A Filter selects entries. What is empty selects all.
type Filter struct {
	Since                                 time.Time
	Server, Tool, Session, Client, Result string
	// ID is the number of a record, what Execution, Call or Question says, or a
	// question with its revision.
	ID string
}

// Entries returns the last entries that the filter selects, at most limit (0:
// all), in their order.
func Entries(dir store.Dir, f Filter, limit int) ([]Entry, error) {
	var list []Entry
	open := map[string]int{}    // of list, the decisions without an outcome, by call
	asked := map[string][]int{} // of list, the questions that have not ended, by ID
	dropped := 0                // entries before list
	err := NewReader(dir, f.Since).Each(func(_ []byte, r *Record) {
		if r.Type == Outcome {
			if i, ok := open[r.Call]; ok {
				delete(open, r.Call)
				if i -= dropped; i >= 0 {
					list[i].Outcome = r
				}
			}
			return
		}
		if r.Type == Answer {
			for _, i := range asked[r.question()] {
				if i -= dropped; i >= 0 {
					list[i].ended = true
				}
			}
			delete(asked, r.question())
		}
		if !f.Selects(r) {
			return
		}
		if r.Type == Question {
			asked[r.question()] = append(asked[r.question()], dropped+len(list))
		}
		if r.Type == Decision && r.Allowed != nil && *r.Allowed {
			open[r.Call] = dropped + len(list)
		}
		list = append(list, Entry{Record: r})
		if f.Result == "" && limit > 0 && len(list) >= 2*limit {
			dropped += len(list) - limit
			list = append([]Entry(nil), list[len(list)-limit:]...)
		}
	})
	if f.Result != "" {
		kept := list[:0]
		for _, e := range list {
			if e.Result() == f.Result {
				kept = append(kept, e)
			}
		}
		list = kept
	}
	if limit > 0 && len(list) > limit {
		list = list[len(list)-limit:]
	}
	return list, err
}

// Selects reports whether the filter selects a record, whatever came of it.
func (f *Filter) Selects(r *Record) bool {
	is := func(want string, have ...string) bool { return want == "" || slices.Contains(have, want) }
	return !r.Time.Before(f.Since) && is(f.Server, append(r.Servers, r.Server)...) && is(f.Tool, r.Item) && is(f.Session, r.Session) && is(f.Client, r.Client) &&
		is(f.ID, strconv.FormatUint(r.Seq, 10), r.Execution, r.Call, r.Question, r.address())
}

// question tells the questions of all processes apart, as far as that is possible.
func (r *Record) question() string { return r.Execution + " " + r.Question }
