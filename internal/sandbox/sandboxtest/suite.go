//go:build linux

package sandboxtest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Run runs the suite.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	if cfg.Attempts != nil {
		t.Fatal("Run makes every attempt: use Attack")
	}
	s, b := begin(t, &cfg)
	report := s.report
	t.Run("probe", func(t *testing.T) { s.probe(t, b) })
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if !report.Duplex {
		t.Fatal("the engine has no channel to running code: that is a batch service, see batchtest")
	}
	t.Run("lifecycle", s.lifecycle)
	t.Run("data", s.data)
	t.Run("transfer", s.transfer)
	t.Run("limits", s.limits)
	t.Run("packages", s.packages)
	t.Run("mounts", s.mounts)
	t.Run("accounting", s.accounting)
	t.Run("snapshots", s.snapshots)
	t.Run("hostile", s.hostile)
	t.Run("hoarding", s.hoarding)
	t.Run("isolation", s.isolation)
	// What a snapshot restores does not depend on who restores it: once is
	// enough.
	if report.Snapshots && os.Geteuid() == 0 {
		t.Run("isolation of restored ones", func(t *testing.T) {
			s.restores = true
			defer func() { s.restores = false }()
			s.isolation(t)
		})
	}
	if cfg.Leftovers != nil {
		t.Run("nothing left", s.nothingLeft)
	}
}

// Attack makes only the attempts that cfg names. Whoever runs it must be able
// to prove the control of each: it takes no proofs from another run, and an
// unproven attempt fails the test, as does a name that is not in the catalogue.
func Attack(t *testing.T, cfg Config) {
	t.Helper()
	if len(cfg.Attempts) == 0 {
		t.Fatal("no attempts are named")
	}
	if _, err := selected(cfg.Attempts); err != nil {
		t.Fatal(err)
	}
	cfg.ProofsFile = ""
	s, b := begin(t, &cfg)
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	t.Run("isolation", s.isolation)
	if cfg.Leftovers != nil {
		t.Run("nothing left", s.nothingLeft)
	}
}

// begin probes a new engine, and skips the test if that cannot run here.
func begin(t *testing.T, cfg *Config) (*suite, sandbox.Engine) {
	t.Helper()
	if cfg.New == nil || cfg.Engine == "" || cfg.HostPython == "" {
		t.Fatal("the suite's configuration is incomplete")
	}
	s := &suite{cfg: cfg, mark: "suite-" + strings.ToLower(rand.Text()[:8])}
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
	return s, b
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

// probe tests that a report is complete and the same every time.
func (s *suite) probe(t *testing.T, b sandbox.Engine) {
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
			t.Errorf("the report does not mention %s", r)
		} else if l.Enforcement != sandbox.Absent && l.By == "" {
			t.Errorf("the report does not say what enforces the limit on %s", r)
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
