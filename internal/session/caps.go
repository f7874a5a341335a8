package session

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/session/hibernate"
)

const (
	// maxKnown is how many names a process remembers besides those of its own
	// sessions.
	maxKnown = 1024
	// entering bounds the time between Get and the session's first use.
	entering = time.Minute
)

// mayHave returns an error if the owner may not have one more named session.
// The caller holds s.mu.
func (s *Set) mayHave(owner string) error {
	if len(s.sessions) >= s.options.MaxNamed+maxKnown {
		s.forgetSome()
	}
	if len(s.sessions) < s.options.MaxNamed {
		return nil
	}
	var have []*Session
	for key, one := range s.sessions {
		if key.Owner == owner && !key.own() && s.counts(one) {
			have = append(have, one)
		}
	}
	if len(have) < s.options.MaxNamed {
		return nil
	}
	slices.SortFunc(have, func(a, b *Session) int { return int(a.used.Load() - b.used.Load()) })
	const some = 3
	var oldest []string
	for _, one := range have[:min(some, len(have))] {
		oldest = append(oldest, one.key.Name)
	}
	return fmt.Errorf("there are %d named sessions of this client already, as many as one may have (sessions.maxNamed): use one of them again, or end one ('sallyport sessions rm NAME'); not used for longest: %s",
		len(have), strings.Join(oldest, ", "))
}

// counts reports whether a session counts towards its owner's limit. The caller
// holds s.mu.
func (s *Set) counts(one *Session) bool {
	if one.Waiting() > 0 {
		return true
	}
	one.status.mu.Lock()
	status, begun := one.status.state, one.status.begun
	one.status.mu.Unlock()
	switch {
	case status == hibernate.Running:
		return true
	case status == hibernate.Suspended && one.checkpoint != nil:
		record, err := s.hibernator.Read(one.key.file())
		return err != nil || record != nil // nil: it has been removed
	case status == hibernate.Suspended:
		return true
	}
	return !begun && s.clock.Elapsed()-one.got < entering
}

// idle reports whether the session has no state in this process. One whose loss
// was not reported has, unless losses are forgotten.
func (s *Session) idle(forget bool) bool {
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	return s.status.state == hibernate.Suspended || s.status.state == "" || forget && s.status.state == hibernate.Gone
}

// forgetSome drops what is known about sessions that this process does not
// have. The caller holds s.mu.
func (s *Set) forgetSome() {
	for key, one := range s.sessions {
		if key.own() || one.Waiting() > 0 || s.clock.Elapsed()-one.got < entering || !one.idle(s.options.Forget) {
			continue
		}
		delete(s.sessions, key)
		s.logs.Release(one.history)
	}
}
