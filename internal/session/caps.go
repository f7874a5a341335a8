package session

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// maxKnown is how many names a process remembers, beyond those that it has
	// sessions of.
	maxKnown = 1024
	// entering is how soon after Get a session is used, at the latest.
	entering = time.Minute
)

// mayHave says whether there may be one more named session. Held: s.mu.
func (s *Set) mayHave() error {
	if len(s.sessions) >= s.config.MaxNamed+maxKnown {
		s.forgetSome()
	}
	if len(s.sessions) < s.config.MaxNamed {
		return nil
	}
	var have []*Session
	for name, one := range s.sessions {
		if name != s.own && s.counts(one) {
			have = append(have, one)
		}
	}
	if len(have) < s.config.MaxNamed {
		return nil
	}
	slices.SortFunc(have, func(a, b *Session) int { return int(a.used.Load() - b.used.Load()) })
	const some = 3
	var oldest []string
	for _, one := range have[:min(some, len(have))] {
		oldest = append(oldest, one.name)
	}
	return fmt.Errorf("there are %d named sessions of this client already, as many as one may have (sessions.maxNamed): use one of them again, or end one ('sallyport sessions rm NAME'); not used for longest: %s",
		len(have), strings.Join(oldest, ", "))
}

// counts says whether a session is one that somebody has. Held: s.mu.
func (s *Set) counts(one *Session) bool {
	if one.Waiting() > 0 {
		return true
	}
	one.view.mu.Lock()
	status, begun := one.view.status, one.view.begun
	one.view.mu.Unlock()
	switch {
	case status == Awake:
		return true
	case status == Asleep && s.keeper != nil:
		record, err := s.keeper.read(one.name)
		return err != nil || record != nil // nil: it was removed meanwhile
	case status == Asleep:
		return true
	}
	return !begun && s.clock.elapsed()-one.got < entering
}

// elsewhere says that all there is of a session is on disk, if anything is.
func (s *Session) elsewhere() bool {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	return s.view.status == Asleep || s.view.status == "" && s.view.begun
}

// forgetSome drops what is known of sessions that this process does not have.
// Held: s.mu.
func (s *Set) forgetSome() {
	for name, one := range s.sessions {
		if name == s.own || one.Waiting() > 0 || s.clock.elapsed()-one.got < entering || !one.elsewhere() {
			continue
		}
		delete(s.sessions, name)
		s.books.drop(one.book)
	}
}
