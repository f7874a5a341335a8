package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// fakeEngine is an engine that reports, and whose sandboxes do nothing.
type fakeEngine struct {
	name   string
	report sandbox.Report
	err    error // of the probe
	fails  error // of a start
	probes int
	starts int
	closed bool
}

func (e *fakeEngine) Name() string { return e.name }
func (e *fakeEngine) Probe(context.Context) (*sandbox.Report, error) {
	e.probes++
	r := e.report
	r.Backend = e.name
	return &r, e.err
}
func (e *fakeEngine) Start(context.Context, *sandbox.Spec) (sandbox.Run, error) {
	e.starts++
	if e.fails != nil {
		return nil, &sandbox.Error{Op: "start", Backend: e.name, Kind: sandbox.ErrStart, Err: e.fails}
	}
	return &fakeRun{name: e.name}, nil
}
func (e *fakeEngine) Attach(context.Context, sandbox.Handle) (sandbox.Run, error) {
	return nil, errors.New("attached to " + e.name)
}
func (e *fakeEngine) Close() error { e.closed = true; return nil }

// fakeRun names the engine that started it.
type fakeRun struct {
	sandbox.Run
	name string
}

func (r *fakeRun) Handle() sandbox.Handle { return sandbox.Handle{Backend: r.name} }

// fakeRestorer is a fakeEngine that restores sandboxes.
type fakeRestorer struct{ *fakeEngine }

func (e fakeRestorer) Restore(context.Context, *sandbox.Spec, sandbox.Image) (sandbox.Run, error) {
	return &fakeRun{name: e.name}, nil
}
func (e fakeRestorer) Binding(context.Context, *sandbox.Spec) (string, error) {
	return "engine: " + e.name, nil
}

// reporting is an engine with every limit hard.
func reporting(name string, isolation sandbox.Isolation, findings ...sandbox.Finding) *fakeEngine {
	r := sandbox.Report{Usable: true, Isolation: isolation, Findings: findings, Limits: map[sandbox.Resource]sandbox.LimitReport{}}
	for _, res := range authz.Resources {
		r.Limits[res] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: "test"}
	}
	for _, f := range findings {
		r.Usable = r.Usable && !f.Fatal
	}
	return &fakeEngine{name: name, report: r}
}

const (
	byKernel    = sandbox.KernelIsolation
	byWasm      = sandbox.WasmIsolation
	byContainer = sandbox.ContainerIsolation
)

var broken = sandbox.Finding{Fatal: true, Title: "it is broken", Remedy: "fix it"}

// choiceOf returns a Choice of engines, and what it logs. The strongest isolation that
// one may offer is that of its report, unless most has another.
func choiceOf(least sandbox.Isolation, most map[string]sandbox.Isolation, engines ...sandbox.Engine) (*Choice, *bytes.Buffer) {
	policy := authz.Default()
	policy.MinIsolation = least
	log := &bytes.Buffer{}
	c := &Choice{gate: authz.New(authz.Config{Policy: policy}), log: slog.New(slog.NewTextHandler(log, nil))}
	for _, e := range engines {
		can, ok := most[e.Name()]
		if one, is := sandbox.As[*fakeEngine](e); !ok && is {
			can = one.report.Isolation
		}
		c.candidates = append(c.candidates, &candidate{Engine: e, most: can})
	}
	return c, log
}

// ran starts a sandbox and returns the name of the engine that did.
func ran(t *testing.T, c *Choice) string {
	t.Helper()
	run, err := c.Start(t.Context(), &sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	c.Works(run)
	return run.Handle().Backend
}

func TestChoice(t *testing.T) {
	soft := reporting("podman", byContainer)
	soft.report.Limits[sandbox.Memory] = sandbox.LimitReport{Enforcement: sandbox.Absent}
	for _, tt := range []struct {
		name    string
		engines []*fakeEngine
		least   sandbox.Isolation
		want    string // "" is none
		near    string
		says    string
	}{
		{"the strongest", []*fakeEngine{reporting("gvisor", byKernel), reporting("wasm", byWasm), reporting("podman", byContainer)}, byWasm, "gvisor", "", ""},
		{"the strongest, though weaker ones would do", []*fakeEngine{reporting("gvisor", byKernel), reporting("wasm", byWasm), reporting("podman", byContainer)}, byContainer, "gvisor", "", ""},
		{"wasm in the place of gVisor", []*fakeEngine{reporting("gvisor", byKernel, broken), reporting("wasm", byWasm), reporting("podman", byContainer)}, byWasm, "wasm", "", ""},
		{"wasm before a container", []*fakeEngine{reporting("gvisor", byKernel, broken), reporting("wasm", byWasm), reporting("podman", byContainer)}, byContainer, "wasm", "", ""},
		{"a kernel of its own before wasm", []*fakeEngine{reporting("gvisor", byKernel, broken), reporting("wasm", byWasm), reporting("podman", byContainer), reporting("docker", byKernel)}, byWasm, "docker", "", ""},
		{"no wasm where a kernel is demanded", []*fakeEngine{reporting("gvisor", byKernel, broken), reporting("wasm", byWasm)}, byKernel, "", "gvisor", "wasm was not chosen isolation is wasm"},
		{"the first of equal ones", []*fakeEngine{reporting("gvisor", byKernel, broken), reporting("wasm", byWasm, broken), reporting("podman", byContainer), reporting("docker", byContainer)}, byContainer, "podman", "", ""},
		{"never less than demanded", []*fakeEngine{reporting("gvisor", byKernel, broken), reporting("wasm", byWasm, broken), reporting("podman", byContainer)}, byWasm, "", "gvisor", "podman was not chosen isolation is container"},
		{"limits count, too", []*fakeEngine{soft, reporting("docker", byContainer)}, byContainer, "docker", "", ""},
		{"none", []*fakeEngine{reporting("gvisor", byKernel, broken), reporting("podman", byContainer, broken)}, byKernel, "", "gvisor", "podman was not chosen"},
		{"one that cannot be examined", []*fakeEngine{{name: "gvisor", err: errors.New("no")}, reporting("podman", byContainer)}, byContainer, "podman", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var all []sandbox.Engine
			for _, e := range tt.engines {
				all = append(all, e)
			}
			c, log := choiceOf(tt.least, nil, all...)
			report, err := c.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if tt.want != "" {
				if c.Name() != tt.want || report.Backend != tt.want {
					t.Errorf("chose %s, which reports as %s, want %s", c.Name(), report.Backend, tt.want)
				}
				if got := ran(t, c); got != tt.want {
					t.Errorf("%s started the sandbox, want %s", got, tt.want)
				}
				if got, ok := sandbox.As[*fakeEngine](c); !ok || got.name != tt.want {
					t.Errorf("it unwraps to %v, want %s", got, tt.want)
				}
			} else {
				if report.Backend != tt.near || c.Name() != tt.near {
					t.Errorf("%s comes nearest, want %s", report.Backend, tt.near)
				}
				if report.Usable && c.gate.Visible(authz.Local(""), authz.RunCode{Engine: report}) {
					t.Error("what no engine offers is reported as good enough")
				}
				var text strings.Builder
				for _, f := range report.Findings {
					text.WriteString(f.Title + " " + f.Detail + "\n")
				}
				if !strings.Contains(text.String(), tt.says) {
					t.Errorf("got %q, want %q in it", text.String(), tt.says)
				}
				if _, err := c.Start(t.Context(), &sandbox.Spec{}); !errors.Is(err, sandbox.ErrUnavailable) {
					t.Errorf("start: got %v, want ErrUnavailable", err)
				}
				for _, one := range tt.engines {
					if one.starts > 0 {
						t.Errorf("%s started", one.name)
					}
				}
			}
			if got, want := strings.Count(log.String(), "level=WARN"), 0; tt.want != "wasm" && got != want {
				t.Errorf("%d warnings, want %d: %s", got, want, log)
			} else if tt.want == "wasm" && (got != 1 || !strings.Contains(log.String(), "it is broken (to fix it: fix it)")) {
				t.Errorf("got %q, want one warning with the reason", log)
			}
			verdicts := c.Explain(t.Context())
			if len(verdicts) != len(all) {
				t.Fatalf("%d verdicts, want %d", len(verdicts), len(all))
			}
			for i, v := range verdicts {
				if v.Engine != tt.engines[i].name || v.Why == "" || v.Chosen != (v.Engine == tt.want) {
					t.Errorf("verdict %+v, want one of %s", v, tt.engines[i].name)
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			for _, one := range tt.engines {
				if !one.closed {
					t.Errorf("%s was not closed", one.name)
				}
			}
		})
	}
}

// Engines that cannot be better than the chosen one are not probed.
func TestChoiceIsLazy(t *testing.T) {
	for _, tt := range []struct {
		name    string
		gvisor  []sandbox.Finding
		least   sandbox.Isolation
		runtime sandbox.Isolation // that a container may have
		want    []string          // that are probed
	}{
		{"gVisor", nil, byWasm, byKernel, []string{"gvisor"}},
		{"wasm", []sandbox.Finding{broken}, byWasm, byContainer, []string{"gvisor", "wasm"}},
		{"a runtime that may have a kernel", []sandbox.Finding{broken}, byWasm, byKernel, []string{"gvisor", "wasm", "podman", "docker"}},
		{"a policy that wants one", []sandbox.Finding{broken}, byKernel, byContainer, []string{"gvisor", "wasm", "podman", "docker"}},
	} {
		engines := []*fakeEngine{reporting("gvisor", byKernel, tt.gvisor...), reporting("wasm", byWasm), reporting("podman", byContainer), reporting("docker", byContainer)}
		c, _ := choiceOf(tt.least, map[string]sandbox.Isolation{"podman": tt.runtime, "docker": tt.runtime}, engines[0], engines[1], engines[2], engines[3])
		c.Unwrap()
		var got []string
		for _, e := range engines {
			if e.probes > 0 {
				got = append(got, e.name)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: probed %q, want %q", tt.name, got, tt.want)
		}
	}
	// A reason may be fixed: while none is chosen all are asked again.
	only := reporting("gvisor", byKernel, broken)
	c, _ := choiceOf(byWasm, nil, only)
	if got := c.Unwrap(); got != nil {
		t.Errorf("chose %s, which is broken", got.Name())
	}
	only.report.Usable, only.report.Findings = true, nil
	if got := c.Unwrap(); got != only {
		t.Errorf("once fixed: got %v, want gvisor", got)
	}
}

// An engine that its probe calls usable may fail to start.
func TestChoiceFailsToStart(t *testing.T) {
	refused := errors.New("the kernel refuses it")
	const reason = "it was usable by its probe, but failed to start: gvisor: start: the kernel refuses it"
	for _, tt := range []struct {
		name  string
		first func(t *testing.T, c *Choice, gvisor, wasm *fakeEngine) // what happens before
		fails error
		least sandbox.Isolation
		want  string // "" is the failure
	}{
		{"at the first start", nil, refused, byWasm, "wasm"},
		{"where the policy wants a kernel", nil, refused, byKernel, ""},
		{"after it has started one, and would again", func(t *testing.T, c *Choice, _, _ *fakeEngine) { ran(t, c) }, refused, byWasm, ""},
		{"after it has restored one, and would again", func(t *testing.T, c *Choice, _, _ *fakeEngine) {
			r, ok := sandbox.As[sandbox.Restorer](c)
			if !ok {
				t.Fatal("it restores nothing")
			}
			if _, err := r.Restore(t.Context(), nil, sandbox.Image{}); err != nil {
				t.Fatal(err)
			}
		}, refused, byWasm, ""},
		{"after it has started one, and its probe fails, too", func(t *testing.T, c *Choice, gvisor, _ *fakeEngine) {
			ran(t, c)
			gvisor.report.Usable, gvisor.report.Findings = false, []sandbox.Finding{broken}
		}, refused, byWasm, "wasm"},
		{"for lack of memory", nil, fmt.Errorf("fork: %w", syscall.ENOMEM), byWasm, ""},
		{"and so does the other", func(_ *testing.T, _ *Choice, _, wasm *fakeEngine) { wasm.fails = refused }, refused, byWasm, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			gvisor, wasm := reporting("gvisor", byKernel), reporting("wasm", byWasm)
			c, log := choiceOf(tt.least, nil, fakeRestorer{gvisor}, fakeRestorer{wasm})
			if tt.first != nil {
				tt.first(t, c, gvisor, wasm)
			}
			gvisor.fails = tt.fails
			run, err := c.Start(t.Context(), &sandbox.Spec{})
			verdicts := c.Explain(t.Context())
			if tt.want == "" {
				if !errors.Is(err, tt.fails) {
					t.Errorf("got %v, want %v", err, tt.fails)
				}
				if c.Name() != "gvisor" || !verdicts[0].Chosen || log.Len() > 0 {
					t.Errorf("%s is chosen, %+v, log %q: want gvisor without a warning", c.Name(), verdicts, log)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := run.Handle().Backend; got != tt.want || c.Name() != tt.want {
				t.Errorf("%s started it and %s is chosen, want %s", got, c.Name(), tt.want)
			}
			if verdicts[0].Chosen || verdicts[0].Why != reason || !verdicts[1].Chosen {
				t.Errorf("verdicts %+v, want wasm, because %s", verdicts, reason)
			}
			gvisor.fails = nil // it stays with the other
			if got := ran(t, c); got != tt.want {
				t.Errorf("%s started the next one, want %s", got, tt.want)
			}
			if got := strings.Count(log.String(), "level=WARN"); got != 1 || !strings.Contains(log.String(), refused.Error()) {
				t.Errorf("%d warnings, want 1 with the reason: %s", got, log)
			}
		})
	}
}

// A start that fails for what only this sandbox has does not change the engine of
// others, and a start whose guest did not get ready proves nothing.
func TestChoiceKeepsTheEngine(t *testing.T) {
	refused := errors.New("the archive is damaged")
	for _, tt := range []struct {
		name string
		spec sandbox.Spec
		want string // "" is the failure
	}{
		{"an image", sandbox.Spec{Root: sandbox.Root{Image: "x"}}, ""},
		{"packages", sandbox.Spec{Root: sandbox.Root{Packages: "/x"}}, ""},
		{"folders", sandbox.Spec{Mounts: []sandbox.Mount{{}}}, ""},
		{"nothing of its own", sandbox.Spec{}, "wasm"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			gvisor, wasm := reporting("gvisor", byKernel), reporting("wasm", byWasm)
			c, _ := choiceOf(byWasm, nil, gvisor, wasm)
			if _, err := c.Start(t.Context(), &sandbox.Spec{}); err != nil { // its guest never got ready
				t.Fatal(err)
			}
			gvisor.fails = refused
			run, err := c.Start(t.Context(), &tt.spec)
			if tt.want != "" {
				if err != nil || run.Handle().Backend != tt.want || c.Name() != tt.want {
					t.Errorf("got %v, %v, and %s is chosen, want a run of %s", run, err, c.Name(), tt.want)
				}
			} else if !errors.Is(err, refused) || wasm.starts > 0 || c.Name() != "gvisor" {
				t.Errorf("got %v, %d starts of wasm, and %s is chosen, want %v of gvisor alone", err, wasm.starts, c.Name(), refused)
			}
		})
	}
}

// A chosen engine whose probe then fails makes no other one a stronger one.
func TestChoiceExplainsWithoutAReport(t *testing.T) {
	gvisor := reporting("gvisor", byKernel)
	c, _ := choiceOf(byWasm, nil, gvisor, reporting("wasm", byWasm))
	c.Unwrap()
	gvisor.err = errors.New("no")
	const want = "not needed: isolation by wasm, as the policy demands"
	if got := c.Explain(t.Context())[1].Why; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A caller that has given up is not given another engine.
func TestChoiceOfACancelledStart(t *testing.T) {
	gvisor, wasm := reporting("gvisor", byKernel), reporting("wasm", byWasm)
	gvisor.fails = context.Canceled
	c, _ := choiceOf(byWasm, nil, gvisor, wasm)
	c.Unwrap()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Start(ctx, &sandbox.Spec{}); !errors.Is(err, context.Canceled) || wasm.starts > 0 {
		t.Errorf("got %v, and %d starts of the other engine, want none", err, wasm.starts)
	}
}
