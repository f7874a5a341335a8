package upstream

import (
	"context"
	"encoding/json"

	"github.com/sallyport/sallyport/internal/inquiry"
)

// A Host is whom a call is made for. It answers what the server asks meanwhile, and
// hears what the server tells. It is safe for concurrent use.
type Host interface {
	// Origin is equal for hosts that are the same client's.
	Origin() string
	// Takes says what the server may ask.
	Takes() inquiry.Takes
	// Ask answers a request that Takes includes, until ctx ends.
	Ask(ctx context.Context, r *inquiry.Request) (json.RawMessage, error)
	// Progress and Log hear of the call. They must not block.
	Progress(Progress)
	Log(Message)
}

// Message is a log message of a server.
type Message struct {
	Level  string // debug, info, notice, warning, error, critical, alert, emergency
	Logger string // may be empty
	Text   string // the data: a string as it is, everything else as JSON
}

type hostKey struct{}

// WithHost returns a context of calls that are made for a host.
func WithHost(ctx context.Context, h Host) context.Context {
	return context.WithValue(ctx, hostKey{}, h)
}

// HostOf returns the host of a context, or nil.
func HostOf(ctx context.Context) Host {
	h, _ := ctx.Value(hostKey{}).(Host)
	return h
}
