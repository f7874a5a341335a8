package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/sallyport/sallyport/internal/hub"
)

// maxAside bounds the log lines that wait for a client that does not read.
const maxAside = 64

// aside carries the log lines of one client from the hub to its frontend. What it
// has no room for is in the hub's log alone.
type aside struct{ lines chan []byte }

func newAside() *aside { return &aside{make(chan []byte, maxAside)} }

// Write takes one line of a log. It does not block.
func (a *aside) Write(line []byte) (int, error) {
	select {
	case a.lines <- bytes.Clone(line):
	default:
	}
	return len(line), nil
}

// carry writes the lines to the connection until ctx is done.
func (a *aside) carry(ctx context.Context, conn io.Writer) {
	for {
		select {
		case line := <-a.lines:
			if hub.WriteAside(conn, line) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// both is a slog.Handler that writes to two logs, each with its own level.
type both [2]slog.Handler

// Enabled implements slog.Handler.
func (b both) Enabled(ctx context.Context, l slog.Level) bool {
	return b[0].Enabled(ctx, l) || b[1].Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (b both) Handle(ctx context.Context, r slog.Record) error {
	var errs []error
	for _, h := range b {
		if h.Enabled(ctx, r.Level) {
			errs = append(errs, h.Handle(ctx, r.Clone()))
		}
	}
	return errors.Join(errs...)
}

// WithAttrs implements slog.Handler.
func (b both) WithAttrs(attrs []slog.Attr) slog.Handler {
	return both{b[0].WithAttrs(attrs), b[1].WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (b both) WithGroup(name string) slog.Handler {
	return both{b[0].WithGroup(name), b[1].WithGroup(name)}
}
