package authz

import (
	"time"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/tracecontext"
)

// LocalOwner is the owner of everything in a process that serves one person:
// the user whose account it runs under.
const LocalOwner = "local"

// Principal is who an action is for. Every request has one.
type Principal struct {
	// Owner is the user whose servers, sessions and memory the action uses. It
	// is the only authority here: the frontend sets it and never takes it from
	// what a client says. An empty owner is denied everything.
	Owner string
	// Client is what the client calls itself. It is a label: no rule of the gate
	// grants anything because of it, and a user's rule that does grants it to
	// whoever takes that name.
	Client string
	// Session and Request name the execution, where there is one.
	Session, Request string
	// SessionKey is the session's whole identity: other clients and owners may have
	// sessions of the same name.
	SessionKey string
	// Connection identifies the client among all of the process, whatever it calls
	// itself.
	Connection string
	// Takes is what the client can be asked while the execution runs.
	Takes inquiry.Takes
	// Trace is the execution's span.
	Trace tracecontext.Context
}

// Local returns the principal of the local user. The client may be empty.
func Local(client string) Principal { return Principal{Owner: LocalOwner, Client: client} }

// Origin returns the principal as events of the journal name it.
func (p Principal) Origin(at time.Time) journal.Origin {
	return journal.Origin{Time: at, Owner: p.Owner, Client: p.Client, Session: p.Session, Execution: p.Request, Trace: p.Trace}
}
