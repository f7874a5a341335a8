package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

// Bounds on what is remembered about jobs.
const (
	seenFor    = 2 * time.Hour // RunPod keeps results for half an hour
	seenBytes  = 64 << 20      // of results in memory
	seenDisk   = 1 << 30       // of results on disk
	seenTidy   = 5 * time.Minute
	seenResult = 32 << 20
)

// Seen remembers the runs that this worker received, so that none runs again
// when the service delivers its job twice. On disk it outlives the process, but
// not the worker's machine: another worker does not know it. Methods are safe
// for concurrent use.
type Seen struct {
	dir store.Dir
	log *slog.Logger

	mu    sync.Mutex
	runs  map[string]*seenRun
	order []string // IDs whose results are in memory
	bytes int
	tidy  time.Time
	disk  int64 // bytes of results that may be on disk
	wrote int64 // bytes written since tidy
}

type seenRun struct {
	done   chan struct{} // closed when result is set, or known to be missing
	result []byte        // nil: on disk, or not known
	began  time.Time
}

// record is the file of a run: begun, and then how it ended.
type record struct {
	Result json.RawMessage `json:"result,omitempty"`
}

// NewSeen returns a store in dir, which may be a directory without a path.
func NewSeen(dir store.Dir, log *slog.Logger) *Seen {
	return &Seen{dir: dir, log: log, runs: map[string]*seenRun{}, disk: seenDisk}
}

// name returns the file name of a run: from the client's own ID, or else the
// job's.
func name(jobID, run string) string {
	key := "job " + jobID
	if run != "" {
		key = "run " + run
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}

// Begin reports whether the run is new: then the caller runs it and calls End.
// Otherwise it waits while the run is in progress here, and returns its result;
// nil if that is not known.
func (s *Seen) Begin(ctx context.Context, jobID, run string) (first bool, known *Result, err error) {
	key := name(jobID, run)
	s.mu.Lock()
	s.tidyUp()
	r := s.runs[key]
	if r == nil {
		before, there := s.read(key)
		if !there {
			s.runs[key] = &seenRun{done: make(chan struct{}), began: time.Now()}
			s.mu.Unlock()
			s.write(key, record{})
			return true, nil, nil
		}
		s.mu.Unlock()
		return false, before, nil
	}
	s.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
		return false, nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.result == nil {
		before, _ := s.read(key)
		return false, before, nil
	}
	return false, decodeResult(r.result), nil
}

// End records the result of a run. A job that failed as a job and has no ID
// from its client may be sent again on purpose.
func (s *Seen) End(jobID, run string, result Result) {
	key := name(jobID, run)
	forget := run == "" && (result.Error != "" || result.Stopped)
	b, err := json.Marshal(result)
	s.mu.Lock()
	r := s.runs[key]
	if r == nil {
		s.mu.Unlock()
		return
	}
	if forget {
		delete(s.runs, key)
	} else if err == nil {
		r.result = b
		s.order = append(s.order, key)
		s.bytes += len(b)
		s.wrote += int64(len(b))
		for s.bytes > seenBytes && len(s.order) > 1 {
			if old := s.runs[s.order[0]]; old != nil {
				s.bytes -= len(old.result)
				old.result = nil
			}
			s.order = s.order[1:]
		}
	}
	s.mu.Unlock()
	if forget {
		if err := s.dir.Remove(key); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, store.ErrNoPlace) {
			s.log.Warn("cannot forget a job", "job", jobID, "error", err)
		}
	} else {
		s.write(key, record{Result: b})
	}
	close(r.done)
}

func decodeResult(b []byte) *Result {
	var r Result
	if json.Unmarshal(b, &r) != nil {
		return nil
	}
	return &r
}

// read returns the record of a run on disk. The mutex is held.
func (s *Seen) read(key string) (result *Result, there bool) {
	b, err := s.dir.Read(key, seenResult)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, store.ErrNoPlace) {
		return nil, false
	}
	var r record
	if err != nil || json.Unmarshal(b, &r) != nil || r.Result == nil {
		return nil, true
	}
	return decodeResult(r.Result), true
}

func (s *Seen) write(key string, r record) {
	b, err := json.Marshal(r)
	if err == nil {
		err = s.dir.WriteUnsynced(key, b)
	}
	if err != nil && !errors.Is(err, store.ErrNoPlace) {
		s.log.Warn("a job cannot be remembered on disk: delivered again after a restart, it would run again", "error", err)
	}
}

// tidyUp removes old records. The mutex is held.
func (s *Seen) tidyUp() {
	now := time.Now()
	if now.Sub(s.tidy) < seenTidy && s.wrote < s.disk/8 {
		return
	}
	s.tidy, s.wrote = now, 0
	for key, r := range s.runs {
		select {
		case <-r.done:
			if now.Sub(r.began) > seenFor {
				s.bytes -= len(r.result)
				delete(s.runs, key)
			}
		default:
		}
	}
	names, err := s.dir.List()
	if err != nil {
		return
	}
	var results []fs.FileInfo
	total := int64(0)
	for _, n := range names {
		fi, err := os.Stat(s.dir.Path(n))
		switch {
		case err != nil:
		case now.Sub(fi.ModTime()) > seenFor && s.runs[n] == nil:
			_ = s.dir.Remove(n)
		case fi.Size() > begunSize:
			results, total = append(results, fi), total+fi.Size()
		}
	}
	// A run's beginning is remembered longer than its result.
	slices.SortFunc(results, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, fi := range results {
		if total <= s.disk {
			break
		}
		s.write(fi.Name(), record{})
		total -= fi.Size()
	}
}

// begunSize is an upper bound on the size of a record without a result.
const begunSize = 64
