//go:build unix

package upstream

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

func TestToolsChanged(t *testing.T) {
	told := make(chan string, 4)
	m := manage(t, Options{}, define(t, "a", "sdk"))
	m.OnToolsChanged(func(server string) { told <- server })
	s, err := m.Server(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CallTool(t.Context(), "grow", nil); err != nil {
		t.Fatal(err)
	}
	select {
	case server := <-told:
		if server != "a" {
			t.Error(server)
		}
	case <-time.After(time.Minute):
		t.Error("nothing was told")
	}
}

// TestIdentity: clients that share a server find the same identity, which is told
// when what its tools return may have changed.
func TestIdentity(t *testing.T) {
	forgotten := make(chan string, 8)
	p := pooled(t, Options{
		Forget: func(id string) { forgotten <- id },
		Sharing: func(d Definition) definitions.Sharing {
			return map[string]definitions.Sharing{"all": definitions.ShareAll, "client": definitions.ShareClient, "session": definitions.ShareSession}[d.Name]
		},
	})
	defs := []Definition{define(t, "all", "sdk"), define(t, "client", "sdk"), define(t, "session", "sdk")}
	one, two := p.NewManager(defs, here()), p.NewManager(defs, here())
	of := func(m *Manager, server, session string) string {
		t.Helper()
		id, lasting, err := m.Identity(InSession(t.Context(), session), server)
		if err != nil || lasting != (server == "all") {
			t.Errorf("%s: got lasting %v, %v", server, lasting, err)
		}
		return id
	}
	for _, tt := range []struct {
		server, first, second string // of which sessions
		same                  bool
	}{
		{"all", "x", "y", true},
		{"client", "x", "x", false},
		{"session", "x", "x", true},
		{"session", "x", "y", false},
		{"session", "", "", false},
	} {
		if same := of(one, tt.server, tt.first) == of(two, tt.server, tt.second); same != tt.same {
			t.Errorf("%s of the sessions %q and %q: got the same identity: %v, want %v", tt.server, tt.first, tt.second, same, tt.same)
		}
	}
	if _, _, err := one.Identity(t.Context(), "none"); !errors.Is(err, ErrUnknownServer) {
		t.Errorf("got %v, want %v", err, ErrUnknownServer)
	}
	s := running(t, one, "all")
	if got, want := s.Identity(), of(two, "all", ""); got != want {
		t.Errorf("got identity %x of the running server, want %x", got, want)
	}
	for name, tt := range map[string]struct {
		do   func() error
		want string
	}{
		"its tools change":  {func() error { _, err := s.CallTool(t.Context(), "grow", nil); return err }, of(one, "all", "")},
		"its session ended": {func() error { p.EndSession("y"); return nil }, of(two, "session", "y")},
	} {
		if err := tt.do(); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-forgotten:
			if got != tt.want {
				t.Errorf("%s: got identity %x, want %x", name, got, tt.want)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: nothing was told", name)
		}
	}
}

// TestFailing: a server that does not start is named until it does.
func TestFailing(t *testing.T) {
	p := pooled(t, Options{})
	broken := definitions.New("broken", "", definitions.Launch{Command: "/nowhere/server"})
	m := p.NewManager([]Definition{define(t, "a", "sdk"), broken}, here())
	running(t, m, "a")
	if _, err := m.Server(t.Context(), "broken"); err == nil {
		t.Fatal("it started")
	}
	var got []string
	p.Failing(func(server, class string, times int) { got = append(got, fmt.Sprint(server, " ", class, " ", times)) })
	if want := []string{"broken did not start 1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
