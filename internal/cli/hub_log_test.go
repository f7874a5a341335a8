package cli

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
)

// A client's lines reach its frontend and the hub's log, each with its own level,
// and a client that does not read holds up neither.
func TestAside(t *testing.T) {
	var own bytes.Buffer
	logs := newAside()
	log := slog.New(both{
		newLogger(&own, settings.Log{Level: slog.LevelWarn}, true, false).With("client", 7).Handler(),
		newLogger(logs, settings.Log{Level: slog.LevelInfo, Format: "json"}, true, false).Handler(),
	}).With("server", "one").WithGroup("more")
	log.Debug("hidden")
	log.Info("early", "a", "1\n2")
	for i := range 2 * maxAside {
		log.Warn(fmt.Sprint("late ", i))
	}
	if got := strings.Count(own.String(), "client=7 server=one"); got != 2*maxAside || strings.Contains(own.String(), "early") {
		t.Errorf("the hub's log: got %d lines, want %d:\n%s", got, 2*maxAside, own.String())
	}
	hub, frontend := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); logs.carry(ctx, hub) }()
	line := make([]byte, 1000)
	n, err := frontend.Read(line)
	if got := string(line[:n]); err != nil || !strings.HasPrefix(got, `#{"time":`) || !strings.Contains(got, `"msg":"early","server":"one","more":{"a":"1\n2"}}`) || strings.Count(got, "\n") != 1 {
		t.Errorf("got %q, %v; want the line of the first record", got, err)
	}
	cancel()
	_ = frontend.Close()
	<-done
}
