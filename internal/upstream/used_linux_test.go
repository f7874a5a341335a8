package upstream

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/session/usage"
)

// TestUsedByServers: each server's processes are told under its own name, and
// the last that is told is their end.
func TestUsedByServers(t *testing.T) {
	var mu sync.Mutex
	last := map[string]usage.Usage{}
	var changes []string
	j := journal.New(slog.New(slog.DiscardHandler))
	events := j.Subscribe(journal.Options{Topics: journal.Usages | journal.Servers, Handle: func(events []journal.Event, _ int) error {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			switch e := e.(type) {
			case *journal.Used:
				last[e.Name] = e.Usage
			case *journal.ServerChanged:
				changes = append(changes, e.Server+" "+string(e.To))
			}
		}
		return nil
	}})
	m := manage(t, Options{Journal: j}, define(t, "one", "sdk"), define(t, "two", "sdk"))
	running(t, m, "one")
	running(t, m, "two")
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	events.Close()
	if got, want := strings.Join(changes, ", "), "one started, two started"; got != want {
		t.Errorf("got the changes %q, want %q", got, want)
	}
	for _, name := range []string{"one", "two"} {
		if u := last[name]; u.Open || u.CPU <= 0 || u.Wall <= 0 || u.Began.IsZero() {
			t.Errorf("got %+v of %s, want what it used until its end", u, name)
		}
	}
}
