//go:build unix

package upstream

import (
	"testing"
	"time"
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
