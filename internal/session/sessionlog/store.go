// Package sessionlog keeps, on disk and within a limit, what the executions of
// sessions ran and wrote.
package sessionlog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

// Names in a directory of logs.
const (
	outputFile    = "output" // output and ends
	codeFile      = "code"
	olderSuffix   = ".1" // of the file that came before
	lockFile      = "lock"
	namedDir      = "named"
	processPrefix = "process-"
)

// minAge is the age at which the log of a dead process, or one without a
// session, is removed: until then its owner may be about to lock it.
const minAge = 10 * time.Minute

// Store holds the logs of a process's sessions. The log of a named session
// outlives the process, as the session does.
type Store struct {
	dir     string
	limit   int64
	log     *slog.Logger
	process string // the directory for sessions that end with this process

	mu     sync.Mutex
	open   []*Log
	unlock func() // releases the lock of process; nil: it is empty
}

// New returns a store in dir that allows limit bytes for each log. It returns
// nil, which keeps nothing, without a directory or a limit.
func New(dir string, limit int64, log *slog.Logger) *Store {
	if dir == "" || limit <= 0 {
		return nil
	}
	return &Store{
		dir: dir, limit: limit, log: log,
		process: fmt.Sprintf("%s%d-%s", processPrefix, os.Getpid(), strings.ToLower(rand.Text())[:8]),
	}
}

// Dir returns the directory of a named session's log below logs.
func Dir(logs, name string) string {
	return filepath.Join(logs, namedDir, store.FileName(name, ""))
}

// Exists reports whether there is a log of a named session.
func Exists(logs, name string) bool {
	if logs == "" {
		return false
	}
	_, err := os.Lstat(Dir(logs, name))
	return err == nil
}

// Names lists the named sessions that have a log.
func Names(logs string) []string {
	if logs == "" {
		return nil
	}
	entries, _ := os.ReadDir(filepath.Join(logs, namedDir))
	var names []string
	for _, e := range entries {
		names = append(names, store.TextOf(e.Name(), ""))
	}
	return names
}

// Remove removes the log of a named session that no process has.
func Remove(logs, name string) error {
	if logs == "" {
		return nil
	}
	return store.At(logs).Sub(namedDir).RemoveAll(store.FileName(name, ""))
}

// Log returns the log of a session, which is nil for a nil Store. A persistent
// one outlives the process.
func (s *Store) Log(name string, persistent bool) *Log {
	if s == nil {
		return nil
	}
	l := &Log{store: s, name: name, dir: Dir(s.dir, name), persistent: persistent}
	if !persistent {
		l.dir = filepath.Join(s.dir, s.process, store.FileName(name, ""))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, l)
	return l
}

// Release closes a log that is not used any more.
func (s *Store) Release(l *Log) {
	if s == nil || l == nil {
		return
	}
	l.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = slices.DeleteFunc(s.open, func(o *Log) bool { return o == l })
}

// lock marks the directory of this process as one in use.
func (s *Store) lock() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unlock != nil {
		return nil
	}
	unlock, ok, err := store.At(filepath.Join(s.dir, s.process)).TryLock(lockFile)
	if err == nil && !ok {
		err = errors.New("the log's lock is taken")
	}
	s.unlock = unlock
	return err
}

// Close writes what is pending and removes the logs that end with the process.
func (s *Store) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	for _, l := range open {
		l.close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unlock != nil {
		_ = store.At(s.dir).RemoveAll(s.process)
		s.unlock()
		s.unlock = nil
	}
}

// Tidy removes the logs of dead processes, and the logs of named sessions for
// whose file name keep returns false.
func (s *Store) Tidy(keep func(fileName string) bool) {
	if s == nil {
		return
	}
	entries, _ := os.ReadDir(s.dir)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), processPrefix) || e.Name() == s.process {
			continue
		}
		if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < minAge {
			continue
		}
		dir := filepath.Join(s.dir, e.Name())
		if unlock, ok, err := store.At(dir).TryLock(lockFile); err == nil && ok {
			_ = store.At(s.dir).RemoveAll(e.Name())
			unlock()
		}
	}
	entries, _ = os.ReadDir(filepath.Join(s.dir, namedDir))
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) > minAge && !keep(e.Name()) {
			_ = store.At(s.dir).Sub(namedDir).RemoveAll(e.Name())
		}
	}
}
