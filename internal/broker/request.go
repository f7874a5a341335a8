package broker

import (
	"errors"
	"io"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/places"
)

// Submission is what a request asks to be run.
type Submission = session.Submission

// Request asks for one execution.
type Request struct {
	// Principal is who the code runs for; required. The broker fills in what
	// identifies the execution.
	Principal authz.Principal
	// A batch service takes no Stdin. A Timeout of 0 is the default; the broker
	// moves one that is out of bounds, and the result says so.
	Submission
	Servers []string // MCP servers that the code is granted
	// Session names whose variables the code sees; empty is the client's own.
	Session string
	// Template names the kind of sandbox that a new session gets; empty is the
	// broker's own.
	Template string
	// Env is the environment that a new session gets; empty: that of the session, if
	// it exists, and else the default.
	Env string
	// Mounts are folders of the host that a new session sees besides those of the
	// settings. Who makes the request has checked them (package folder). A session that
	// exists and does not see one refuses the request; where no person reads the result
	// (Shown) they are a client's roots, and a note says that it does not see them.
	Mounts []sandbox.Mount
	// Within, if not zero, is how long the call waits for the code's end. After
	// that the result has status Running and the code goes on; a request without
	// Code for the same session waits for the rest. Only a frontend whose client
	// can ask again sets it.
	Within time.Duration
	// Whole waits to the end even so, and for its turn where the session is busy,
	// for a frontend that gives its client the result later: after Within, calls
	// without code and runtime.cancel find the execution. It goes on after
	// Client.End.
	Whole bool
	// Activity, if not nil, tells from then on what the execution does.
	Activity *Activity
	// Backend is the engine or batch service that runs the code; empty is the
	// broker's engine.
	Backend string
	// Batch has the options of a batch service; nil for an engine.
	Batch *BatchOptions
	// TakeFiles, if not nil, takes the files that the code left, each as it
	// comes (session.Create). Those of a batch service lie in Runs.
	TakeFiles func(path string) (content io.Writer, done func(whole bool) error, err error)
	// OnStatus, if not nil, receives for people the progress of a batch
	// service goes, by one goroutine at a time.
	OnStatus func(string)
	// Shown: a person reads the result at once, so that its failure is worth no
	// warning in the log.
	Shown bool
	// RequestID appears in log lines; one is made where it is empty.
	RequestID string

	client    *Client // who sent it
	submitted time.Time
	engine    string           // or the batch service, where that is known
	asked     time.Duration    // the timeout, where it was not allowed
	partial   *session.Partial // what the code has written so far
	turn      places.Place     // to run code
	notes     []string         // about the folders of its session, for the result
}

// key identifies the session of the request.
func (r *Request) key() session.Key {
	return r.client.key(owner(r.Principal), r.Session)
}

// declared reports whether the execution keeps its client's own session.
func (r *Request) declared() bool {
	return r.Whole && (r.Session == "" || r.Session == DefaultSession)
}

// owner returns the owner of a principal's sessions.
func owner(p authz.Principal) string {
	if p.Owner == authz.LocalOwner {
		return ""
	}
	return p.Owner
}

// bound sets the timeout to what is allowed.
func (r *Request) bound(timeout time.Duration) {
	if r.Timeout != 0 && r.Timeout != timeout {
		r.asked = r.Timeout
	}
	r.Timeout = timeout
}

// BatchOptions are what only a batch service can do.
type BatchOptions struct {
	Accelerator string
	Datasets    []string
	Internet    bool
	// Keep leaves the finished run at the service.
	Keep bool
	// Detach answers as soon as the run has been handed over.
	Detach bool
}

// Invalid is the answer to a request whose arguments have the wrong form.
func Invalid(message string) *Result { return invalid(message) }

// validate returns the answer to a request that cannot be run, or nil.
func (r *Request) validate() *Result {
	if r.Principal.Owner == "" { // else it would be the local user's
		return failure(errors.New("the request has no owner"))
	}
	if strings.TrimSpace(r.Code) == "" {
		return invalid("Missing 'code' argument")
	}
	return nil
}
