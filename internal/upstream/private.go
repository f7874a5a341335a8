package upstream

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

// What a server writes besides its answers may be about any call that it had. It
// is shown to a client only if no other client has called the server.

// caller is who has called a server: no client, one, or several.
type caller struct{ id atomic.Uint64 }

const (
	noClient = uint64(0)
	several  = uint64(math.MaxUint64)
)

// calls notes that a client is about to call the server.
func (c *caller) calls(client uint64) {
	if !c.id.CompareAndSwap(noClient, client) && c.id.Load() != client {
		c.id.Store(several)
	}
}

func (c *caller) load() uint64 { return c.id.Load() }

// shows reports whether a client may read what was read of the server before.
func (c *caller) shows(client uint64) bool { return mayRead(c.load(), client) }

func mayRead(of, client uint64) bool { return of == noClient || of == client || client == noClient }

// readBy returns the error as a client may read it.
func (e *Error) readBy(client uint64) *Error {
	if e.LastText == "" || mayRead(e.of, client) {
		return e
	}
	c := *e
	c.LastText, c.Withheld = "", true
	return &c
}

// own returns an error of the slot's server as the slot's client may read it: under
// the client's name for the server, with the client's command line, without the
// secrets of its definition and without the output of other clients' calls.
func (s *slot) own(err error) error {
	if early, ok := err.(*tooEarly); ok { //nolint:errorlint // the outermost
		return &tooEarly{s.own(early.last), early.wait}
	}
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	c := *e.readBy(s.manager.id)
	c.Server = s.def.Name
	if s.entry.from == s.manager.from {
		return &c
	}
	// Another client's definition started it, which may contain what this one hides.
	if c.Command != "" {
		c.Command = s.def.CommandLine()
	}
	c.LastText = s.def.Redact(c.LastText)
	if c.Err != nil {
		c.Err = redactError(s.def, c.Err)
	}
	return &c
}

// redactedError hides secrets in an error's message and keeps what errors.Is
// finds.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

func redactError(def Definition, err error) error {
	var answer *unusable
	if errors.As(err, &answer) {
		err = fmt.Errorf("%w: %s", err, jsonrpc.Shown(answer.raw, def.Redact))
	}
	text := def.Redact(err.Error())
	if text == err.Error() {
		return err
	}
	return &redactedError{text: text, err: err}
}
