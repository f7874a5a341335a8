package settings

import "testing"

func TestNearest(t *testing.T) {
	keys := []string{"engine", "limits", "limits.memory", "limits.openFiles", "policy.require.memory", "policy.servers", "servers", "servers.config", "timeouts.max"}
	tests := []struct {
		wanted, best string
		near         bool
	}{
		{"limits.memory", "limits.memory", true},
		{"limits.memroy", "limits.memory", true},
		{"limit.memory", "limits.memory", true},
		{"memory", "limits.memory", true},
		{"require.memory", "policy.require.memory", true},
		{"policy.memory", "policy.require.memory", true},
		{"policy.server", "policy.servers", true},
		{"server", "servers", true},
		{"OPENFILES", "limits.openFiles", true},
		{"x", "", false},
		{"", "", false},
		{"something.else", "", false},
	}
	for _, tt := range tests {
		best, near := nearest(tt.wanted, keys, ".")
		if near != tt.near || near && best != tt.best {
			t.Errorf("%q: %q, %v; want %q, %v", tt.wanted, best, near, tt.best, tt.near)
		}
	}
	if _, near := nearest("x", nil, "."); near {
		t.Error("nothing is near")
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"memroy", "memory", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"abc", "abc", 0}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q, %q: %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
