package app

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// candidate is an engine that reports, and starts nothing.
type candidate struct {
	name   string
	report sandbox.Report
	err    error
	probes int
	starts int
	closed bool
}

func (c *candidate) Name() string { return c.name }
func (c *candidate) Probe(context.Context) (*sandbox.Report, error) {
	c.probes++
	r := c.report
	r.Backend = c.name
	return &r, c.err
}
func (c *candidate) Start(context.Context, *sandbox.Spec) (sandbox.Run, error) {
	c.starts++
	return nil, errors.New("started " + c.name)
}
func (c *candidate) Attach(context.Context, sandbox.Handle) (sandbox.Run, error) {
	return nil, errors.New("attached to " + c.name)
}
func (c *candidate) Close() error { c.closed = true; return nil }

// reporting is a candidate with every limit hard.
func reporting(name string, isolation sandbox.Isolation, findings ...sandbox.Finding) *candidate {
	r := sandbox.Report{Usable: true, Isolation: isolation, Findings: findings, Limits: map[sandbox.Resource]sandbox.LimitReport{}}
	for _, res := range authz.Resources {
		r.Limits[res] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: "test"}
	}
	for _, f := range findings {
		r.Usable = r.Usable && !f.Fatal
	}
	return &candidate{name: name, report: r}
}

func TestChoice(t *testing.T) {
	const kernel, container = sandbox.KernelIsolation, sandbox.ContainerIsolation
	broken := sandbox.Finding{Fatal: true, Title: "it is broken", Remedy: "fix it"}
	soft := reporting("podman", container)
	soft.report.Limits[sandbox.Memory] = sandbox.LimitReport{Enforcement: sandbox.Absent}
	accepts := func(least sandbox.Isolation) *authz.Policy {
		p := authz.Default()
		p.MinIsolation = least
		return p
	}
	for _, tt := range []struct {
		name       string
		candidates []*candidate
		policy     *authz.Policy
		want       string // "" is none
		near       string
		says       string
	}{
		{"the first", []*candidate{reporting("gvisor", kernel), reporting("podman", container)}, accepts(kernel), "gvisor", "", ""},
		{"the first, though others would do", []*candidate{reporting("gvisor", kernel), reporting("podman", container)}, accepts(container), "gvisor", "", ""},
		{"the second", []*candidate{reporting("gvisor", kernel, broken), reporting("podman", container), reporting("docker", container)}, accepts(container), "podman", "", ""},
		{"never less than demanded", []*candidate{reporting("gvisor", kernel, broken), reporting("podman", container)}, accepts(kernel), "", "gvisor", "podman was not chosen isolation is container"},
		{"one with a kernel of its own", []*candidate{reporting("gvisor", kernel, broken), reporting("podman", container), reporting("docker", kernel)}, accepts(kernel), "docker", "", ""},
		{"limits count, too", []*candidate{soft, reporting("docker", container)}, accepts(container), "docker", "", ""},
		{"none", []*candidate{reporting("gvisor", kernel, broken), reporting("podman", container, broken)}, accepts(kernel), "", "gvisor", "podman was not chosen"},
		{"one that cannot be examined", []*candidate{{name: "gvisor", err: errors.New("no")}, reporting("podman", container)}, accepts(container), "podman", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var all []sandbox.Engine
			for _, c := range tt.candidates {
				c.probes = 0
				all = append(all, c)
			}
			c := &Choice{candidates: all, gate: authz.New(authz.Config{Policy: tt.policy})}
			report, err := c.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if tt.want != "" {
				if c.Name() != tt.want || report.Backend != tt.want {
					t.Errorf("%s was chosen, not %s", c.Name(), tt.want)
				}
				if _, err := c.Start(t.Context(), nil); err == nil || err.Error() != "started "+tt.want {
					t.Errorf("start: %v", err)
				}
				if got, ok := sandbox.As[*candidate](c); !ok || got.name != tt.want {
					t.Errorf("it unwraps to %v", got)
				}
			} else {
				if report.Backend != tt.near || c.Name() != tt.near {
					t.Errorf("%s comes nearest, not %s", report.Backend, tt.near)
				}
				if report.Usable && authz.New(authz.Config{Policy: tt.policy}).Visible(authz.Local(""), authz.RunCode{Engine: report}) {
					t.Error("what no engine offers is reported as good enough")
				}
				var text strings.Builder
				for _, f := range report.Findings {
					text.WriteString(f.Title + " " + f.Detail + "\n")
				}
				if !strings.Contains(text.String(), tt.says) {
					t.Errorf("no %q in %s", tt.says, text.String())
				}
				if _, err := c.Start(t.Context(), nil); !errors.Is(err, sandbox.ErrUnavailable) {
					t.Errorf("start: %v", err)
				}
				for _, one := range tt.candidates {
					if one.starts > 0 {
						t.Errorf("%s started", one.name)
					}
				}
			}
			verdicts := c.Explain(t.Context())
			if len(verdicts) != len(all) {
				t.Fatalf("%d verdicts", len(verdicts))
			}
			for i, v := range verdicts {
				if v.Engine != tt.candidates[i].name || v.Why == "" || v.Chosen != (v.Engine == tt.want) {
					t.Errorf("Verdict %+v", v)
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			for _, one := range tt.candidates {
				if !one.closed {
					t.Errorf("%s was not closed", one.name)
				}
			}
		})
	}
}

// TestChoiceIsLazy: engines behind the one that is chosen are not asked.
func TestChoiceIsLazy(t *testing.T) {
	first, second := reporting("gvisor", sandbox.KernelIsolation), reporting("podman", sandbox.ContainerIsolation)
	c := &Choice{candidates: []sandbox.Engine{first, second}, gate: authz.New(authz.Config{Policy: authz.Default()})}
	for range 3 {
		if _, err := c.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if second.probes > 0 {
		t.Error("an engine was asked that is not needed")
	}
	// A reason may be fixed: while none is chosen all are asked again.
	broken := sandbox.Finding{Fatal: true, Title: "x"}
	third := reporting("gvisor", sandbox.KernelIsolation, broken)
	c = &Choice{candidates: []sandbox.Engine{third}, gate: authz.New(authz.Config{Policy: authz.Default()})}
	if c.Unwrap() != nil {
		t.Error("a broken engine was chosen")
	}
	third.report.Usable, third.report.Findings = true, nil
	if got := c.Unwrap(); got != third {
		t.Errorf("once fixed: %v", got)
	}
}
