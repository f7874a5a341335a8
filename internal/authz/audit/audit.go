// Package audit keeps the log of what was done for whom, and who allowed it: a
// chain of records on disk, a JSON line each, that [Verify] checks.
//
// All processes of a user write into one chain. A batch of lines is written under
// a lock, whole or not at all. Each line has the hash of the one before and its
// own. The head, a file of its own, has the place and the hash of the last record
// and is sealed with a key of the state directory, so that a log that was cut at
// its end is found, too. Lines reach the disk before the head does: the head may
// be behind, and what a process had no time to seal when it died belongs to the
// chain if it continues it.
package audit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/redact"
	"github.com/sallyport/sallyport/internal/store"
)

// Config is what a Log needs.
type Config struct {
	Dir store.Dir
	// Strict has the journal wait for each decision that allows something to be on
	// disk, and deny what cannot be recorded.
	Strict          bool
	Code, Arguments string // Complete, Hash or Omit
	// RotateSize and RotateAge are when a new file is begun. Files are removed
	// after Keep, and the oldest ones above MaxDisk; 0: never.
	RotateSize, MaxDisk int64
	RotateAge, Keep     time.Duration
	Secrets             *redact.Set
	Log                 *slog.Logger
}

// every is for how long events are collected where no one waits for them. A
// process that is killed loses what it has collected.
const every = 500 * time.Millisecond

// lookEvery is how often Failing looks at the directory: that takes some 20 µs, and results
// may come every millisecond.
const lookEvery = 20 * time.Millisecond

// A Log writes what the journal publishes.
type Log struct {
	config Config
	writer string // names this process in the IDs of calls
	events *journal.Subscription

	chain chain // used by one goroutine at a time, the journal's

	mu      sync.Mutex
	failure error     // of the last attempt to write
	tried   time.Time // when that was
	looked  time.Time // when something was last looked for that keeps lines away
	periods uint64
	lost    int // events, since one was written
}

// Open subscribes to the journal. The caller closes the Log.
func Open(config Config, j *journal.Journal) *Log {
	l := &Log{config: config, writer: strings.ToLower(rand.Text()[:8])}
	l.chain.config = &l.config
	l.events = j.Subscribe(journal.Options{
		Name: "audit", Topics: journal.Executions | journal.Actions | journal.Questions | journal.Sessions | journal.Servers,
		Every: every, Required: config.Strict, Handle: l.handle,
	})
	return l
}

// Close writes what is left.
func (l *Log) Close() { l.events.Close() }

// Flush waits until what has happened is written, and returns why it is not.
func (l *Log) Flush(ctx context.Context) error {
	if err := l.events.Flush(ctx); err != nil {
		return err
	}
	return l.Failure()
}

// Failure returns why the log cannot be written at the moment; nil if it can.
func (l *Log) Failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

// Failing returns 0 if the log can be written, and else a number that is another one
// for each time that it could not. Where nothing was ever written, or something seems
// to be wrong, it waits until what has happened is written, but not for long.
func (l *Log) Failing() (period uint64) {
	l.mu.Lock()
	failing, first, look := l.failure != nil, l.tried.IsZero(), time.Since(l.looked) >= lookEvery
	if look {
		l.looked = time.Now()
	}
	l.mu.Unlock()
	if !failing && (first || look && l.chain.blocked()) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.events.Flush(ctx) // report has its error
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		return 0
	}
	return l.periods
}

// handle writes a batch of events.
func (l *Log) handle(events []journal.Event, lost int) error {
	l.lost += lost
	records := make([]*Record, 0, len(events)+1)
	if l.lost > 0 {
		records = append(records, &Record{Time: time.Now().UTC(), Type: Lost, Lost: l.lost})
	}
	for _, e := range events {
		if r := l.recordOf(e); r != nil {
			records = append(records, r)
		}
	}
	bodies := make([][]byte, 0, len(records))
	for _, r := range records {
		body, err := json.Marshal(r)
		if err != nil { // only of arguments that are no JSON, which they are
			l.lost++
			continue
		}
		bodies = append(bodies, body)
	}
	err := l.chain.append(bodies)
	l.report(err)
	if err != nil {
		l.lost += len(events)
		return err
	}
	l.lost = 0
	return nil
}

// report tells the user when the log can no longer be written, and when it can
// again.
func (l *Log) report(err error) {
	l.mu.Lock()
	before := l.failure
	l.failure, l.tried = err, time.Now()
	if err != nil && before == nil {
		l.periods++
	}
	l.mu.Unlock()
	switch {
	case err != nil && before == nil && l.config.Strict:
		l.config.Log.Error("the audit log cannot be written, and audit.mode is strict: no code runs and no call goes out until it can", "directory", l.config.Dir.Path(""), "error", err)
	case err != nil && before == nil:
		l.config.Log.Error("the audit log cannot be written: what happens now is not recorded", "directory", l.config.Dir.Path(""), "error", err)
	case err == nil && before != nil:
		l.config.Log.Warn("the audit log is written again", "lost events", l.lost)
	}
}
