package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/terminal"
)

// newLogger returns a command's log. Programs read the log of a daemon; the
// person who typed it reads that of every other command.
func newLogger(w io.Writer, l settings.Log, daemon, colours bool) *slog.Logger {
	opts := &slog.HandlerOptions{Level: l.Level}
	switch {
	case l.Format == "json":
		return slog.New(slog.NewJSONHandler(w, opts))
	case l.Format == "auto" && !daemon:
		return slog.New(&plainLog{mu: &sync.Mutex{}, w: w, level: l.Level, colours: colours})
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// plainLog is a slog.Handler that writes records in the style of the commands'
// other messages: "sallyport: warning: what (server x): why". A record is one
// line without terminal control characters.
type plainLog struct {
	mu      *sync.Mutex
	w       io.Writer
	level   slog.Level
	colours bool
	attrs   []slog.Attr
	groups  string
}

// Enabled implements slog.Handler.
func (m *plainLog) Enabled(_ context.Context, l slog.Level) bool { return l >= m.level }

// WithAttrs implements slog.Handler.
func (m *plainLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *m
	with.attrs = slices.Clone(m.attrs)
	for _, a := range attrs {
		with.attrs = append(with.attrs, slog.Attr{Key: m.groups + a.Key, Value: a.Value})
	}
	return &with
}

// WithGroup implements slog.Handler.
func (m *plainLog) WithGroup(name string) slog.Handler {
	with := *m
	if name != "" {
		with.groups += name + "."
	}
	return &with
}

// Handle implements slog.Handler.
func (m *plainLog) Handle(_ context.Context, r slog.Record) error {
	level := strings.ToLower(r.Level.String())
	if r.Level == slog.LevelWarn {
		level = "warning"
	}
	var details, reasons []string
	add := func(key string, v slog.Value) {
		switch text := invisible.Line(v.Resolve().String()); {
		case slices.Contains([]string{"error", "err", "problem", "reason"}, key):
			reasons = append(reasons, text)
		case key != "":
			details = append(details, invisible.Line(key)+" "+text)
		}
	}
	for _, a := range m.attrs {
		add(a.Key, a.Value)
	}
	r.Attrs(func(a slog.Attr) bool {
		add(m.groups+a.Key, a.Value)
		return true
	})
	level += ":"
	switch {
	case m.colours && r.Level >= slog.LevelError:
		level = terminal.Red.Paint(level)
	case m.colours && r.Level >= slog.LevelWarn:
		level = terminal.Yellow.Paint(level)
	}
	line := "sallyport: " + level + " " + invisible.Line(r.Message)
	if len(details) > 0 {
		line += " (" + strings.Join(details, ", ") + ")"
	}
	for _, why := range reasons {
		line += ": " + why
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := fmt.Fprintln(m.w, line)
	return err
}
