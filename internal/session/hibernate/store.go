// Package hibernate keeps suspended sessions on disk: their records and locks,
// the names and the room of their snapshots, and their expiry. It does not know
// the content of a snapshot.
package hibernate

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/session/clock"
	"github.com/sallyport/sallyport/internal/snapshot"
	"github.com/sallyport/sallyport/internal/store"
)

// Prefixes of the names of snapshots.
const (
	SessionPrefix  = "session-" // of named sessions
	PreparedPrefix = "base-"    // that fresh sandboxes are restored from

	processPrefix = "process-" // of sessions that end with their process
)

const (
	// SpareDisk stays free when a session is suspended.
	SpareDisk = 16 << 20

	recordSuffix = ".json"
	maxRecord    = 64 << 10
	// maxAhead is how far in the future the time of a snapshot may be.
	maxAhead = time.Hour
)

var (
	// ErrElsewhere means that the session is running in another process.
	ErrElsewhere = errors.New("the session is in use by another Sallyport")
	// ErrDamaged means that a record exists and cannot be read.
	ErrDamaged = errors.New("the record of the session is damaged, perhaps by a power failure")
)

// Config is what a Store needs. Snapshots may be nil where only records are
// wanted.
type Config struct {
	Snapshots *snapshot.Store
	Records   store.Dir
	MaxDisk   int64         // bounds the snapshots of all sessions
	Keep      time.Duration // for a suspended session; 0: forever
	Clock     *clock.Clock
	Logger    *slog.Logger
	// File returns the name of a session's files on disk.
	File func(owner, name string) string
}

// Store holds suspended sessions. All processes of a user share it. It is safe
// for concurrent use.
type Store struct {
	Config
	process string // begins the names of what ends with this process

	mu     sync.Mutex
	alive  func() // releases the lock that marks this process as alive
	places int    // given out by newPlace
}

// New returns a store. It writes nothing.
func New(config Config) *Store {
	return &Store{Config: config, process: fmt.Sprintf("%s%d-%s", processPrefix, os.Getpid(), strings.ToLower(rand.Text())[:8])}
}

// newPlace returns the name for the snapshot of a session that ends with this
// process.
func (s *Store) newPlace() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places++
	return fmt.Sprintf("%s.%d", s.process, s.places)
}

// MarkAlive marks this process as alive. It must be called before anything on
// disk depends on that.
func (s *Store) MarkAlive() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive != nil {
		return nil
	}
	unlock, err := s.Lock(s.process)
	s.alive = unlock
	return err
}

// Close removes the mark of MarkAlive. It may be called on nil.
func (s *Store) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive != nil {
		s.alive()
		s.alive = nil
	}
}

// Lock takes the lock of a session, by its file name. The error is ErrElsewhere
// while another process has it.
func (s *Store) Lock(file string) (unlock func(), err error) {
	unlock, ok, err := s.Records.TryLock(file)
	if err != nil {
		return nil, err
	}
	if !ok {
		if r, err := s.Read(file); err == nil && r != nil && r.Process != 0 {
			return nil, fmt.Errorf("%w (process %d), where it is running; use another name, or suspend it there ('sallyport sessions suspend %s')", ErrElsewhere, r.Process, r.Name)
		}
		return nil, ErrElsewhere
	}
	return unlock, nil
}

// Files lists the file names of the sessions that have a record.
func (s *Store) Files() ([]string, error) {
	names, err := s.Records.List()
	var files []string
	for _, name := range names {
		if file, ok := strings.CutSuffix(name, recordSuffix); ok {
			files = append(files, file)
		}
	}
	return files, err
}

// HasRecord reports whether a session has a record in a directory, or may have
// one.
func HasRecord(records store.Dir, file string) bool {
	_, err := os.Lstat(records.Path(file + recordSuffix))
	return !errors.Is(err, fs.ErrNotExist)
}

// RecordPath returns the path of a session's record.
func (s *Store) RecordPath(file string) string { return s.Records.Path(file + recordSuffix) }

// Read returns the record of a session; nil if there is none.
func (s *Store) Read(file string) (*Record, error) {
	data, err := s.Records.Read(file+recordSuffix, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, s.RecordPath(file), err)
	}
	return &r, nil
}

// Write writes the record of a session whose lock this process holds.
func (s *Store) Write(file string, r *Record) error { return write(s.Records.Write, file, r) }

// WriteUnsynced is Write for a record that a power cut may damage or remove.
func (s *Store) WriteUnsynced(file string, r *Record) error {
	return write(s.Records.WriteUnsynced, file, r)
}

func write(to func(name string, data []byte) error, file string, r *Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return to(file+recordSuffix, append(data, '\n'))
}

// RemoveRecord removes the record of a session, if there is one.
func (s *Store) RemoveRecord(file string) error {
	err := s.Records.Remove(file + recordSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Total returns the size of the snapshots of all sessions, in bytes.
func (s *Store) Total() (int64, error) {
	if s.Snapshots == nil {
		return 0, nil
	}
	list, err := s.Snapshots.List()
	var total int64
	for _, e := range list {
		if !strings.HasPrefix(e.Name, PreparedPrefix) {
			total += e.Size
		}
	}
	return total, err
}

// expire removes a suspended session's state. Its next execution reports why.
func (s *Store) expire(file, reason string) error {
	unlock, err := s.Lock(file)
	if errors.Is(err, ErrElsewhere) {
		return nil // it is being resumed or saved
	}
	if err != nil {
		return err
	}
	defer unlock()
	r, err := s.Read(file)
	if err != nil || r == nil || r.Status != Suspended {
		return err
	}
	if s.File(r.Owner, r.Name) != file {
		return fmt.Errorf("%s is the record of another session", s.Records.Path(file+recordSuffix))
	}
	r.Update(Gone, reason, s.Clock.Now())
	if err := s.Write(file, r); err != nil {
		return err
	}
	return s.Snapshots.Remove(SessionPrefix + file)
}

// MakeRoom removes the sessions that have been suspended longest until need
// more bytes fit within the limit. It removes nothing if that would not be
// enough. The caller holds the lock of Snapshots.
func (s *Store) MakeRoom(need int64) error {
	total, err := s.Snapshots.Unfinished()
	if err != nil {
		return err
	}
	list, err := s.Snapshots.List()
	if err != nil {
		return err
	}
	var stay int64 // of what cannot go
	for _, e := range list {
		switch {
		case strings.HasPrefix(e.Name, SessionPrefix):
			total += e.Size
		case !strings.HasPrefix(e.Name, PreparedPrefix):
			total, stay = total+e.Size, stay+e.Size
		}
	}
	tooMuch := func(has int64) error {
		return fmt.Errorf("saved sessions may take %d MB on disk (sessions.maxDisk): %d MB are taken, and up to %d MB are needed", s.MaxDisk>>20, has>>20, need>>20)
	}
	if stay+need > s.MaxDisk {
		return tooMuch(stay)
	}
	slices.SortFunc(list, func(a, b snapshot.Entry) int { return a.Time.Compare(b.Time) })
	for _, e := range list {
		if total+need <= s.MaxDisk {
			return nil
		}
		file, named := strings.CutPrefix(e.Name, SessionPrefix)
		if !named {
			continue
		}
		if err := s.expire(file, "saved sessions took more room than sessions.maxDisk allows"); err != nil {
			return err
		}
		if s.Snapshots.Size(e.Name) == 0 {
			total -= e.Size
		}
	}
	if total+need > s.MaxDisk {
		return tooMuch(total)
	}
	return nil
}

// Tidy removes what dead processes left, sessions that were suspended too long,
// and those that exceed the limit on disk space.
func (s *Store) Tidy() error {
	list, err := s.Snapshots.List()
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b snapshot.Entry) int { return a.Time.Compare(b.Time) })
	var total int64
	for _, e := range list {
		if !strings.HasPrefix(e.Name, PreparedPrefix) {
			total += e.Size
		}
	}
	var errs []error
	for _, e := range list {
		file, named := strings.CutPrefix(e.Name, SessionPrefix)
		if e.Time.Sub(s.Clock.Now()) > maxAhead {
			// The clock has been set back since. Its time counts from now on.
			errs = append(errs, s.Snapshots.Touch(e.Name, s.Clock.Now()))
		}
		switch {
		case named && s.Keep > 0 && s.Clock.Age(e.Time) > s.Keep:
			errs = append(errs, s.expire(file, fmt.Sprintf("it was suspended for more than %v (sessions.keep)", s.Keep)))
		case named && total > s.MaxDisk:
			errs = append(errs, s.expire(file, "saved sessions took more room than sessions.maxDisk allows"))
		case strings.HasPrefix(e.Name, processPrefix):
			process, _, _ := strings.Cut(e.Name, ".")
			unlock, err := s.Lock(process)
			if err != nil {
				continue // that process lives
			}
			errs = append(errs, s.Snapshots.Remove(e.Name))
			unlock()
		default:
			continue
		}
		total -= e.Size
	}
	return errors.Join(errs...)
}
