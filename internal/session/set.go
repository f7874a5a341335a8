package session

import (
	"fmt"
	"regexp"
	"sync"
)

// maxSessions bounds how many sandboxes one process can be made to start.
const maxSessions = 64

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// A Set holds sessions by name. It is safe for concurrent use.
type Set struct {
	config Config

	mu       sync.Mutex
	sessions map[string]*Session
	closed   bool
}

// NewSet returns a set that makes its sessions from config.
func NewSet(config Config) *Set {
	return &Set{config: config, sessions: map[string]*Session{}}
}

// Get returns the session of that name, which it makes where there is none.
func (s *Set) Get(name string) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if got := s.sessions[name]; got != nil {
		return got, nil
	}
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("a session's name is 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit")
	}
	if len(s.sessions) >= maxSessions {
		return nil, fmt.Errorf("there are %d sessions already, as many as one process has", maxSessions)
	}
	made, err := New(name, s.config)
	if err != nil {
		return nil, err
	}
	s.sessions[name] = made
	return made, nil
}

// Close closes every session, side by side, and returns when they are closed.
// It is idempotent.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	var all sync.WaitGroup
	for _, one := range s.sessions {
		all.Go(one.Close)
	}
	s.mu.Unlock()
	all.Wait()
}
