//go:build linux

package sandboxtest

import (
	"os"
	"regexp"
	"sort"
	"testing"
)

// The catalogue is only worth what its controls prove, whatever the engine:
// natively every probe reaches what it tries, but for what this machine lacks.
func TestControls(t *testing.T) {
	if testing.Short() {
		t.Skip("tries every attempt of the catalogue on this machine, which takes long")
	}
	// For suites that ordinary users run after it.
	cfg := &Config{HostPython: "/usr/bin/python3", ProofsFile: os.Getenv("SALLYPORT_TEST_PROOFS")}
	h := newHost(t, cfg)
	n := newNeighbour(t)
	nativeNeighbour(t, h, n)
	proofs := proveAll(t.Context(), t, h, cfg, n)
	names := make([]string, 0, len(proofs))
	for name := range proofs {
		names = append(names, name)
	}
	sort.Strings(names)
	unproven := 0
	for _, name := range names {
		p := proofs[name]
		if p.Proved {
			t.Logf("%-24s proved %s: %s", name, p.By, p.Detail)
			continue
		}
		unproven++
		t.Logf("%-24s UNPROVEN %s (%s)", name, p.Detail, p.Allowed)
		if p.Allowed == "" {
			t.Errorf("%s: its control does not reach what it tries: %s", name, p.Detail)
		}
	}
	t.Logf("%d attempts, %d unproven", len(names), unproven)
	least := 40
	if os.Geteuid() == 0 {
		least = 150
	}
	if proved := len(names) - unproven; proved < least {
		t.Errorf("only %d attempts are proved", proved)
	}
}

func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	name := regexp.MustCompile(`^[a-z0-9-]+$`)
	for _, a := range Catalogue() {
		if seen[a.Name] || !name.MatchString(a.Name) || a.Category == "" || a.Tries == "" || a.Probe == "" {
			t.Errorf("%q: a duplicate or incomplete entry", a.Name)
		}
		if (a.Control.Probe == "") != (a.Control.Why == "") {
			t.Errorf("%s: a control's own probe and its reason go together", a.Name)
		}
		seen[a.Name] = true
	}
	if len(seen) < 200 {
		t.Errorf("the catalogue has only %d attempts", len(seen))
	}
}

func TestMustRun(t *testing.T) {
	for _, tt := range []struct {
		list, name string
		want       bool
	}{
		{"", "gvisor.root.limits", false},
		{"gvisor.root", "gvisor.root.limits.memory", true},
		{"gvisor.root", "gvisor.rootless", false},
		{"a, gvisor.user.data ,b", "gvisor.user.data", true},
		{"all", "anything", true},
		{"gvisor.root.limits", "gvisor.root", false},
	} {
		if got := mustRun(tt.list, tt.name); got != tt.want {
			t.Errorf("mustRun(%q, %q) = %v", tt.list, tt.name, got)
		}
	}
}
