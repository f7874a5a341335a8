// Package sandboxtest is the one conformance suite of the sandbox engines:
// every implementation of the contract in package sandbox passes it, the fake
// included. What an engine cannot do is skipped by the capability that it
// declares, never by its name, and the environment variable [MustRunEnv] turns
// a skip into a failure.
//
// The isolation part is a catalogue of attempts ([Catalogue]), each with a
// positive control: the same probe must succeed on the host, outside the
// sandbox, or "blocked" inside it proves nothing.
package sandboxtest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"sallyport/internal/sandbox"
)

// Config says what to test.
type Config struct {
	// Engine names the engine and how it runs, for messages and for
	// [MustRunEnv]: "gvisor.root".
	Engine string
	// New makes a fresh backend. The suite closes it.
	New func(t testing.TB) sandbox.Backend
	// Root is the file system of the sandboxes, where not the default one.
	Root sandbox.Root
	// StateDir is where the engine keeps its own files on the host, which no
	// sandbox may see. Empty where it keeps none.
	StateDir string
	// HostPython runs the positive controls. It must be one that every user of
	// the host may run.
	HostPython string
	// ProofsFile, if not empty, is where a suite that runs as root leaves the
	// proofs that only root can give, and where one that runs as an ordinary
	// user finds them.
	ProofsFile string
	// Leftovers, if not nil, lists what of the engine's is on the host:
	// processes, mounts, files, and cgroups that have mark in their names, as
	// the IDs of all runs have. After the suite it must be empty.
	Leftovers func(mark string) []string
}

// Run runs the suite.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	if cfg.New == nil || cfg.Engine == "" || cfg.HostPython == "" {
		t.Fatal("the suite's configuration is incomplete")
	}
	s := &suite{cfg: &cfg, mark: "suite-" + strings.ToLower(rand.Text()[:8])}
	b := cfg.New(t)
	report, err := b.Probe(t.Context())
	if err != nil {
		t.Fatalf("Probe: %v", err)
	}
	s.report = report
	if !report.Usable {
		_ = b.Close()
		Skip(t, cfg.Engine, "the engine cannot run here: "+findings(report))
	}
	t.Run("probe", func(t *testing.T) { s.probe(t, b) })
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if !report.Duplex {
		t.Run("batch", s.batch)
		return
	}
	t.Run("lifecycle", s.lifecycle)
	t.Run("data", s.data)
	t.Run("limits", s.limits)
	t.Run("accounting", s.accounting)
	t.Run("hostile", s.hostile)
	t.Run("isolation", s.isolation)
	if cfg.Leftovers != nil {
		t.Run("nothing left", s.nothingLeft)
	}
}

func findings(r *sandbox.Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		if f.Fatal {
			fmt.Fprintf(&b, "%s (%s) %s; ", f.Title, f.Detail, f.Remedy)
		}
	}
	return b.String()
}

// probe: a report says something, and says the same again.
func (s *suite) probe(t *testing.T, b sandbox.Backend) {
	if s.report.Backend != b.Name() || b.Name() == "" {
		t.Errorf("the report is of %q, the backend is %q", s.report.Backend, b.Name())
	}
	for _, f := range s.report.Findings {
		if f.Title == "" {
			t.Errorf("a finding without a title: %+v", f)
		}
		if f.Fatal {
			t.Errorf("usable, with a fatal finding: %+v", f)
		}
	}
	for _, r := range []sandbox.Resource{sandbox.Memory, sandbox.Processes, sandbox.CPU, sandbox.Disk, sandbox.OpenFiles} {
		l, ok := s.report.Limits[r]
		if !ok {
			t.Errorf("the report says nothing of %s", r)
		} else if l.Enforcement != sandbox.Absent && l.By == "" {
			t.Errorf("what enforces the limit on %s is not said", r)
		}
		t.Logf("%s: %s, %s", r, l.Enforcement, l.By)
	}
	if _, err := json.Marshal(s.report); err != nil {
		t.Error(err)
	}
	again, err := b.Probe(t.Context())
	if err != nil {
		t.Fatalf("Probe once more: %v", err)
	}
	if !reflect.DeepEqual(again, s.report) {
		t.Errorf("two probes differ: %+v and %+v", s.report, again)
	}
}

// nothingLeft waits until the engine has left nothing on the host.
func (s *suite) nothingLeft(t *testing.T) {
	deadline := time.Now().Add(settleTime)
	for {
		left := s.cfg.Leftovers(s.mark)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left on the host:\n%s", strings.Join(left, "\n"))
		}
		time.Sleep(50 * time.Millisecond)
	}
}
