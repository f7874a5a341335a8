package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/wire"
)

// Failure is a failure of a server as code and its agent may read it: the
// server's name, the kind of failure, and what [upstream.Cause] says. All of it,
// with command lines, addresses and the server's last output, is for the user.
type Failure struct {
	text  string
	cause error
}

func (f *Failure) Error() string { return f.text }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.cause }

// Details returns the cause, for the user.
func (f *Failure) Details() string { return f.cause.Error() }

// trouble is the last failure of a server that was logged and noted.
type trouble struct {
	text string
	at   time.Time
}

// againAfter is when a failure is noted again that is like the last one.
const againAfter = time.Minute

// failed makes the failure of a server fit for code, logs its cause and notes it for
// 'sallyport servers test'. The server's own answer to a granted call stays.
func (b *Bridge) failed(ctx context.Context, server string, err error, granted bool) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	var ready *wire.CallError
	if errors.As(err, &ready) {
		return err // the server was not asked
	}
	var answered *jsonrpc.Error
	if granted && errors.As(err, &answered) && !errors.Is(err, upstream.ErrStart) {
		return err
	}
	for _, kind := range []error{upstream.ErrInvalidArguments, upstream.ErrInputRequired, upstream.ErrNotOffered} {
		if errors.Is(err, kind) { // not a failure of the server
			text := kind.Error()
			var e *upstream.Error
			if kind == upstream.ErrInputRequired && errors.As(err, &e) && e.Err != nil {
				text += ": " + invisible.Line(clip(e.Err.Error(), 300))
			}
			return &Failure{fmt.Sprintf("MCP server %q: %s", invisible.Line(clip(server, 100)), text), err}
		}
	}
	b.mu.Lock()
	text, now := err.Error(), time.Now()
	last := b.failures[server]
	news := last.text != text // code can repeat it at will
	again := news || now.Sub(last.at) > againAfter
	if again {
		b.failures[server] = trouble{text, now}
	}
	b.mu.Unlock()
	if news {
		b.log.Warn("MCP server failed", "server", server, "error", text)
	}
	if again {
		b.catalog.Trouble(server, err)
	}
	return &Failure{publicFailure(server, upstream.ClassAndCause(err)), err}
}

// publicFailure returns what an agent may read of a failure.
func publicFailure(server, class string) string {
	return fmt.Sprintf("MCP server %q: %s (the user sees why with: sallyport servers test %s)", invisible.Line(clip(server, 100)), class, terminal.ShellWord(invisible.Line(clip(server, 100))))
}
