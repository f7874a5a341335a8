package policy_test

import (
	"errors"
	"strings"
	"testing"

	"sallyport/internal/policy"
	"sallyport/internal/sandbox"
)

// report is an engine that enforces every limit with e.
func report(i sandbox.Isolation, e sandbox.Enforcement) *sandbox.Report {
	r := &sandbox.Report{Backend: "test", Usable: true, Isolation: i, Limits: map[sandbox.Resource]sandbox.LimitReport{}}
	for _, res := range policy.Resources {
		r.Limits[res] = sandbox.LimitReport{Enforcement: e}
	}
	return r
}

func TestCheck(t *testing.T) {
	softMemory := report(sandbox.KernelIsolation, sandbox.Hard)
	softMemory.Limits[sandbox.Memory] = sandbox.LimitReport{Enforcement: sandbox.Soft}
	noMemory := report(sandbox.KernelIsolation, sandbox.Hard)
	delete(noMemory.Limits, sandbox.Memory)
	noCPU := report(sandbox.KernelIsolation, sandbox.Hard)
	delete(noCPU.Limits, sandbox.CPU)

	tests := []struct {
		name   string
		policy *policy.Policy
		report *sandbox.Report
		want   []string // parts of the message; none: allowed
	}{
		{"a nil policy denies", nil, report(sandbox.KernelIsolation, sandbox.Hard), []string{"no policy"}},
		{"the zero value denies the best engine", &policy.Policy{}, report(sandbox.KernelIsolation, sandbox.Hard), []string{"names none"}},
		{"the zero value denies an engine without limits", &policy.Policy{}, report(sandbox.NoIsolation, sandbox.Absent), []string{"isolation is none", "memory limit is absent"}},
		{"no report", policy.Default(), nil, []string{"not been probed"}},
		{"default accepts the best", policy.Default(), report(sandbox.KernelIsolation, sandbox.Hard), nil},
		{"default accepts soft memory", policy.Default(), softMemory, nil},
		{"default does without a CPU share", policy.Default(), noCPU, nil},
		{"default refuses no memory limit", policy.Default(), noMemory, []string{"memory limit is absent, at least soft is demanded", "policy.require.memory: absent"}},
		{"default refuses a shared kernel", policy.Default(), report(sandbox.ContainerIsolation, sandbox.Hard), []string{"isolation is container, at least kernel", "policy.minIsolation: container"}},
		{"an unmentioned limit must be hard", &policy.Policy{MinIsolation: sandbox.KernelIsolation}, softMemory, []string{"memory limit is soft, at least hard"}},
		{"a policy can demand hard memory", &policy.Policy{MinIsolation: sandbox.KernelIsolation, Require: map[sandbox.Resource]sandbox.Enforcement{sandbox.Memory: sandbox.Hard}}, softMemory, []string{"memory limit is soft"}},
		{"no isolation needs saying so", &policy.Policy{AllowNoIsolation: true}, report(sandbox.NoIsolation, sandbox.Hard), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.policy.Check(tt.report)
			if len(tt.want) == 0 {
				if err != nil {
					t.Fatalf("Check: %v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("Check allowed it")
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("message %q lacks %q", err, part)
				}
			}
		})
	}
}

func TestViolationIsTyped(t *testing.T) {
	err := policy.Default().Check(report(sandbox.PlatformIsolation, sandbox.Absent))
	var v *policy.Violation
	if !errors.As(err, &v) {
		t.Fatalf("error is %T", err)
	}
	if got := len(v.Missing); got != 5 { // isolation and every limit but CPU
		t.Errorf("%d shortfalls: %v", got, v.Missing)
	}
}

// TestNotMeasured: a policy is not to be weakened for what a measurement may show.
func TestNotMeasured(t *testing.T) {
	r := &sandbox.Report{
		Backend: "podman", Isolation: sandbox.ContainerIsolation, Provisional: true, Measure: "podman pull python:3",
		Limits: map[sandbox.Resource]sandbox.LimitReport{
			sandbox.Processes: {Enforcement: sandbox.Hard}, sandbox.Disk: {Enforcement: sandbox.Hard}, sandbox.OpenFiles: {Enforcement: sandbox.Hard},
		},
	}
	for _, tt := range []struct {
		name        string
		possible    sandbox.Isolation
		provisional bool
		want        []string
		never       string
	}{
		{"a runtime that may have a kernel", sandbox.KernelIsolation, true, []string{"isolation is container", "memory limit is absent", "podman pull python:3"}, "to accept it"},
		{"one that has none", sandbox.ContainerIsolation, true, []string{"set policy.minIsolation: container", "podman pull python:3"}, "policy.require.memory"},
		{"measured", sandbox.KernelIsolation, false, []string{"set policy.minIsolation: container", "set policy.require.memory: absent"}, "pull"},
	} {
		r.Possible, r.Provisional = tt.possible, tt.provisional
		err := policy.Default().Check(r)
		if err == nil {
			t.Fatalf("%s: got no violation", tt.name)
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %q, want %q in it", tt.name, err, want)
			}
		}
		if strings.Contains(err.Error(), tt.never) {
			t.Errorf("%s: got %q, want no %q in it", tt.name, err, tt.never)
		}
	}
}

func TestCheckServer(t *testing.T) {
	var none *policy.Policy
	if err := none.CheckServer("fs"); !errors.Is(err, policy.ErrNil) {
		t.Errorf("nil policy: %v", err)
	}
	tests := []struct {
		allowed []string
		name    string
		ok      bool
	}{
		{nil, "fs", false},
		{[]string{"*"}, "fs", true},
		{[]string{"*"}, "a/b", true},
		{[]string{"a*a"}, "a", false},
		{[]string{"a*c*e"}, "abcde", true},
		{[]string{"a*c*e"}, "abde", false},
		{[]string{"a/b"}, "a/b", true},
		{[]string{"git*"}, "github", true},
		{[]string{"git*"}, "fs", false},
	}
	for _, tt := range tests {
		err := (&policy.Policy{Servers: tt.allowed}).CheckServer(tt.name)
		if (err == nil) != tt.ok {
			t.Errorf("%q allows %q: %v", tt.allowed, tt.name, err)
		}
	}
}
