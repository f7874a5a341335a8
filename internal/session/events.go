package session

import (
	"context"
	"time"

	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/tracecontext"
)

// changed publishes a change of the session, which began then and is complete, for
// the execution of the context, if there is one.
func (s *Session) changed(ctx context.Context, to journal.SessionState, cause string, began time.Time) {
	if !s.config.Journal.Wants(journal.Sessions) {
		return
	}
	now := time.Now()
	origin := s.origin(now)
	origin.Trace = tracecontext.From(ctx).Child()
	s.config.Journal.Publish(&journal.SessionChanged{
		Origin: origin, To: to, Cause: cause, Took: now.Sub(began),
	})
}

// origin returns the session as events of the journal name it.
func (s *Session) origin(at time.Time) journal.Origin {
	return journal.Origin{Time: at, Owner: s.key.Owner, Session: s.key.Label()}
}

// lose records why the session's state is gone, which has not been reported
// yet.
func (s *Session) lose(reason string) { s.lost, s.reported = reason, false }
