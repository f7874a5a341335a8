//go:build unix

package upstream

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReplace(t *testing.T) {
	same, changed, gone := define(t, "same", "sdk"), define(t, "changed", "sdk", "V=1"), define(t, "gone", "sdk")
	m := manage(t, Options{}, same, changed, gone)
	first := map[string]*Server{}
	for _, name := range []string{"same", "changed", "gone"} {
		s, err := m.Server(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		first[name] = s
	}
	// A call under way outlives the change of its server's definition.
	slow := make(chan error, 1)
	go func() {
		_, err := first["changed"].CallTool(t.Context(), "sleep", json.RawMessage(`{"ms":300}`))
		slow <- err
	}()
	for first["changed"].inFlight.Load() == 0 && len(slow) == 0 {
		time.Sleep(time.Millisecond)
	}

	described := define(t, "same", "sdk")
	described.Description, described.Line = "other words", 7
	m.Replace([]Definition{described, define(t, "changed", "sdk", "V=2"), define(t, "new", "sdk")}, time.Minute)

	if s, err := m.Server(t.Context(), "same"); err != nil || s != first["same"] {
		t.Errorf("the server that did not change is another one: %v", err)
	}
	if d, _ := m.Definition("same"); d.Description != "other words" || d.Line != 7 {
		t.Errorf("the description is the old one: %+v", d)
	}
	if _, err := m.Server(t.Context(), "gone"); !errors.Is(err, ErrUnknownServer) {
		t.Error(err)
	}
	second, err := m.Server(t.Context(), "changed")
	if err != nil || second == first["changed"] {
		t.Fatalf("the changed server is the old one (%v)", err)
	}
	if env, err := second.CallTool(t.Context(), "environment", nil); err != nil || !strings.Contains(string(env), "V=2") {
		t.Errorf("%s %v", env, err)
	}
	if _, err := m.Server(t.Context(), "new"); err != nil {
		t.Error(err)
	}
	if err := <-slow; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	for _, name := range []string{"changed", "gone"} {
		select {
		case <-processOf(first[name]).Exited():
		case <-time.After(30 * time.Second):
			t.Errorf("%s still runs", name)
		}
	}
}

func TestReplaceEndsWhatStarts(t *testing.T) {
	m := manage(t, Options{StartTimeout: time.Minute}, define(t, "x", "silent"))
	failed := make(chan error, 1)
	go func() {
		_, err := m.Server(t.Context(), "x")
		failed <- err
	}()
	entry := m.set.Load().slots["x"].entry
	for starting := false; !starting; time.Sleep(time.Millisecond) {
		entry.mu.Lock()
		starting = entry.starting != nil
		entry.mu.Unlock()
	}
	m.Replace(nil, time.Minute)
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("a server that never answered was handed out")
	}
}

// The alias of a name is the same whatever other servers there are.
func TestAliasesOfOthers(t *testing.T) {
	define := func(names ...string) (defs []Definition) {
		for _, name := range names {
			defs = append(defs, define(t, name, "sdk"))
		}
		return defs
	}
	m := manage(t, Options{}, define("b c", "z")...)
	m.Replace(define("B-C", "b c", "b_c", "z"), 0)
	var got []string
	for _, d := range m.Definitions() {
		got = append(got, d.Name+"="+d.Alias)
	}
	if !slices.Equal(got, []string{"B-C=b_c", "b c=b_c", "b_c=b_c", "z=z"}) {
		t.Error(got)
	}
}

func TestOfferedIsNotStarted(t *testing.T) {
	d := define(t, "x", "sdk")
	d.Offer = "offered"
	m := manage(t, Options{}, d)
	if _, err := m.Server(t.Context(), "x"); !errors.Is(err, ErrOffered) {
		t.Error(err)
	}
}
