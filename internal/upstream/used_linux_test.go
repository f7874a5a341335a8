package upstream

import (
	"sync"
	"testing"
)

// TestUsedByServers: each server's processes are told under its own name, and
// the last that is told is their end.
func TestUsedByServers(t *testing.T) {
	var mu sync.Mutex
	last := map[string]Used{}
	m := manage(t, Options{Used: func(u Used) {
		mu.Lock()
		defer mu.Unlock()
		last[u.Server] = u
	}}, define(t, "one", "sdk"), define(t, "two", "sdk"))
	running(t, m, "one")
	running(t, m, "two")
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"one", "two"} {
		if u := last[name]; u.Open || u.CPU <= 0 || u.Wall <= 0 || u.Began.IsZero() {
			t.Errorf("got %+v of %s, want what it used until its end", u, name)
		}
	}
}
