package session

import (
	"time"

	"github.com/sallyport/sallyport/internal/journal"
)

// changed publishes a change of the session, which began then and is complete.
func (s *Session) changed(to journal.SessionState, cause string, began time.Time) {
	if !s.config.Journal.Wants(journal.Sessions) {
		return
	}
	now := time.Now()
	s.config.Journal.Publish(&journal.SessionChanged{
		Origin: s.origin(now), To: to, Cause: cause, Took: now.Sub(began),
	})
}

// origin returns the session as events of the journal name it.
func (s *Session) origin(at time.Time) journal.Origin {
	return journal.Origin{Time: at, Owner: s.key.Owner, Session: s.key.Label()}
}

// lose records why the session's state is gone, which has not been reported
// yet.
func (s *Session) lose(reason string) { s.lost, s.reported = reason, false }
