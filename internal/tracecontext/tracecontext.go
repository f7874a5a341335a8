// Package tracecontext is the W3C trace context: which trace something belongs to,
// read from and written to the traceparent of a request's _meta.
package tracecontext

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// Context names a span. The zero value is none.
type Context struct {
	Trace        [16]byte
	Span, Parent [8]byte
	Flags        byte
	State        string // tracestate, as it was received
	// Recorded: spans of ours are exported. Otherwise the Context is passed on as it
	// is.
	Recorded bool
}

// sampled is the flag of a trace that is recorded.
const sampled = 1

var (
	parentForm = lazyregexp.New(`^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$`)
	// entryForm is one member of a tracestate.
	entryForm = lazyregexp.New(`^[a-z0-9][a-z0-9_*/@-]{0,255}=[!-+\--<>-~]{1,256}$`)
)

// Parse reads a client's traceparent and tracestate, which may be hostile. What is
// not of version 00 and well-formed counts as none.
func Parse(parent, state string) Context {
	var c Context
	part := parentForm().FindStringSubmatch(parent)
	if part == nil {
		return Context{}
	}
	flags, _ := hex.DecodeString(part[3])
	_, _ = hex.Decode(c.Trace[:], []byte(part[1]))
	_, _ = hex.Decode(c.Span[:], []byte(part[2]))
	c.Flags = flags[0]
	if c.Trace == [16]byte{} || c.Span == [8]byte{} {
		return Context{}
	}
	if isState(state) {
		c.State = state
	}
	return c
}

// isState reports whether a tracestate is well-formed and short.
func isState(state string) bool {
	if len(state) > 512 {
		return false
	}
	for entry := range strings.SplitSeq(state, ",") {
		if !entryForm().MatchString(entry) {
			return false
		}
	}
	return true
}

// Valid reports whether c names a span.
func (c Context) Valid() bool { return c.Span != [8]byte{} }

// Begin returns the context of the first span of ours, which is recorded: a child of
// c, or the root of a new trace. A trace that its client does not record is passed on.
func (c Context) Begin() Context {
	switch {
	case !c.Valid():
		binary.LittleEndian.PutUint64(c.Trace[:8], rand.Uint64())
		binary.LittleEndian.PutUint64(c.Trace[8:], rand.Uint64()|1)
		c.Flags = sampled
	case c.Flags&sampled == 0:
		return c
	}
	c.Recorded = true
	return c.Child()
}

// Child returns the context of a new span below c, or c where that is not recorded.
func (c Context) Child() Context {
	if !c.Recorded {
		return c
	}
	c.Parent = c.Span
	binary.LittleEndian.PutUint64(c.Span[:], rand.Uint64()|1)
	return c
}

// TraceParent returns the traceparent of a request that belongs to the span.
func (c Context) TraceParent() string {
	return "00-" + c.ID() + "-" + hex.EncodeToString(c.Span[:]) + "-" + hex.EncodeToString([]byte{c.Flags})
}

// ID returns the trace's name.
func (c Context) ID() string { return hex.EncodeToString(c.Trace[:]) }

type key struct{}

// With returns a context in which everything belongs to the span.
func With(ctx context.Context, c Context) context.Context {
	if !c.Valid() {
		return ctx
	}
	return context.WithValue(ctx, key{}, c)
}

// From returns the span that something belongs to.
func From(ctx context.Context) Context {
	c, _ := ctx.Value(key{}).(Context)
	return c
}
