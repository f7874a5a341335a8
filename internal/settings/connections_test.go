package settings

import "testing"

func TestConnectionsOf(t *testing.T) {
	s := Servers{Connections: []string{"slow=4", "pg-*=2", "a/*=3", "b=c=5"}}
	for name, want := range map[string]int{"slow": 4, "pg-1": 2, "pg": 1, "a/x/y": 3, "b=c": 5, "": 1} {
		if got := s.ConnectionsOf(name); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
	for _, wrong := range []string{"slow", "slow=", "slow=0", "slow=65", "=3", "[=2", "x=-1"} {
		if isConnections(wrong) {
			t.Errorf("%q is accepted", wrong)
		}
	}
	for host, want := range map[string]bool{"*": true, "10.0.*": true, "mcp.local": true, "fd00::1": true, "http://x": false, "x/y": false, "": false, "[": false} {
		if got := isHostPattern(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
