package authz_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// report is an engine that enforces every limit with e.
func report(i sandbox.Isolation, e sandbox.Enforcement) *sandbox.Report {
	r := &sandbox.Report{Backend: "test", Usable: true, Isolation: i, Limits: map[sandbox.Resource]sandbox.LimitReport{}}
	for _, res := range authz.Resources {
		r.Limits[res] = sandbox.LimitReport{Enforcement: e}
	}
	return r
}

// check holds an engine against a policy.
func check(p *authz.Policy, r *sandbox.Report) error {
	return authz.New(authz.Config{Policy: p}).Decide(authz.Local(""), authz.RunCode{Engine: r}).Reason
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
		policy *authz.Policy
		report *sandbox.Report
		want   []string // parts of the message; none: allowed
	}{
		{"a nil policy denies", nil, report(sandbox.KernelIsolation, sandbox.Hard), []string{"no policy"}},
		{"the zero value denies the best engine", &authz.Policy{}, report(sandbox.KernelIsolation, sandbox.Hard), []string{"names none"}},
		{"the zero value denies an engine without limits", &authz.Policy{}, report(sandbox.NoIsolation, sandbox.Absent), []string{"isolation is none", "memory limit is absent"}},
		{"no report", authz.Default(), nil, []string{"not been probed"}},
		{"default accepts the best", authz.Default(), report(sandbox.KernelIsolation, sandbox.Hard), nil},
		{"default accepts soft memory", authz.Default(), softMemory, nil},
		{"default accepts confined WebAssembly", authz.Default(), report(sandbox.WasmIsolation, sandbox.Hard), nil},
		{"default does without a CPU share", authz.Default(), noCPU, nil},
		{"default refuses no memory limit", authz.Default(), noMemory, []string{"memory limit is absent, at least soft is demanded", "policy.require.memory: absent"}},
		{"default refuses a shared kernel", authz.Default(), report(sandbox.ContainerIsolation, sandbox.Hard), []string{"isolation is container, at least wasm", "policy.minIsolation: container"}},
		{"an unmentioned limit must be hard", &authz.Policy{MinIsolation: sandbox.KernelIsolation}, softMemory, []string{"memory limit is soft, at least hard"}},
		{"a policy can demand hard memory", &authz.Policy{MinIsolation: sandbox.KernelIsolation, Require: map[sandbox.Resource]sandbox.Enforcement{sandbox.Memory: sandbox.Hard}}, softMemory, []string{"memory limit is soft"}},
		{"no isolation needs saying so", &authz.Policy{AllowNoIsolation: true}, report(sandbox.NoIsolation, sandbox.Hard), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := check(tt.policy, tt.report)
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
	err := check(authz.Default(), report(sandbox.PlatformIsolation, sandbox.Absent))
	var v *authz.Violation
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
		err := check(authz.Default(), r)
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

func TestServersOfThePolicy(t *testing.T) {
	load := func(p *authz.Policy, name string) authz.Decision {
		return authz.New(authz.Config{Policy: p}).Decide(authz.Local(""), authz.LoadServer{Server: &authz.Server{Name: name}})
	}
	if got := load(nil, "fs"); got.Effect != authz.Deny || !errors.Is(got.Reason, authz.ErrNil) {
		t.Errorf("a nil policy: got %+v, want a denial", got)
	}
	tests := []struct {
		allowed []string
		name    string
		want    authz.Effect
	}{
		{nil, "fs", authz.Deny},
		{[]string{"*"}, "fs", authz.Allow},
		{[]string{"*"}, "a/b", authz.Allow},
		{[]string{"a*a"}, "a", authz.Deny},
		{[]string{"a*c*e"}, "abcde", authz.Allow},
		{[]string{"a*c*e"}, "abde", authz.Deny},
		{[]string{"a/b"}, "a/b", authz.Allow},
		{[]string{"git*"}, "github", authz.Allow},
		{[]string{"git*"}, "fs", authz.Deny},
	}
	for _, tt := range tests {
		if got := load(&authz.Policy{Servers: tt.allowed}, tt.name); got.Effect != tt.want {
			t.Errorf("%q and %q: got %v, want %v", tt.allowed, tt.name, got, tt.want)
		}
	}
}
