package app

import (
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/settings"
)

// A worker's gate demands what is set, and otherwise what clients demand of a
// batch service.
func TestWorkerGate(t *testing.T) {
	report := func(isolation sandbox.Isolation, memory sandbox.Enforcement) *sandbox.Report {
		r := &sandbox.Report{Backend: "process", Isolation: isolation, Limits: map[sandbox.Resource]sandbox.LimitReport{}}
		r.Limits[sandbox.Memory] = sandbox.LimitReport{Enforcement: memory}
		r.Limits[sandbox.Processes] = sandbox.LimitReport{Enforcement: sandbox.Soft}
		return r
	}
	platform := report(sandbox.PlatformIsolation, sandbox.Soft)
	tests := []struct {
		name, key, value string
		report           *sandbox.Report
		want             string // part of the reason; empty: allowed
	}{
		{"a machine that is a sandbox already", "", "", platform, ""},
		{"no isolation", "", "", report(sandbox.NoIsolation, sandbox.Soft), "isolation is none, at least platform"},
		{"no limit on memory", "", "", report(sandbox.PlatformIsolation, sandbox.Absent), "policy.require.memory"},
		{"a kernel is demanded here", "policy.minIsolation", "kernel", platform, "at least kernel is demanded"},
		{"a limit on the disk is demanded here", "policy.require.disk", "hard", platform, "policy.require.disk"},
		{"hard memory of batch services", "policy.batchServices.memory", "hard", platform, "at least hard is demanded"},
		{"memory set here counts more", "policy.require.memory", "absent", report(sandbox.PlatformIsolation, sandbox.Absent), ""},
	}
	for _, tt := range tests {
		var sources settings.Sources
		if tt.key != "" {
			sources.Flags = []settings.Flag{{Name: "--set", Key: tt.key, Value: tt.value}}
		}
		s, err := settings.Load(sources)
		if err != nil {
			t.Fatal(err)
		}
		gate, err := (&App{Settings: s}).workerGate()
		if err != nil {
			t.Fatal(err)
		}
		d := gate.Decide(authz.Local("runpod"), authz.RunCode{Engine: tt.report})
		if allowed := d.Effect == authz.Allow; allowed != (tt.want == "") || !allowed && !strings.Contains(d.Reason.Error(), tt.want) {
			t.Errorf("%s: got %v (%v), want %q", tt.name, d.Effect, d.Reason, tt.want)
		}
		server := authz.LoadServer{Server: &authz.Server{Name: "files"}}
		if d := gate.Decide(authz.Local("runpod"), server); d.Effect != authz.Deny {
			t.Errorf("%s: a server: got %v, want it denied", tt.name, d.Effect)
		}
	}
}
