//go:build linux

package sandboxtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// A finding is the outcome of one attempt.
type finding struct {
	attempt Attempt
	proof   proof
	inside  verdict
	outcome outcome
}

type outcome string

const (
	isBlocked   outcome = "blocked"
	isEscape    outcome = "ESCAPE"
	isTolerated outcome = "tolerated"
	isBelow     outcome = "not this level" // the engine's level of isolation does not promise it
	isBroken    outcome = "BROKEN"
	isSkipped   outcome = "skipped"
)

// isolation runs the whole catalogue, or the attempts that the configuration
// names.
func (s *suite) isolation(t *testing.T) {
	attempts, err := selected(s.cfg.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t, s.cfg)
	native, beside := newNeighbour(t), newNeighbour(t)
	nativeNeighbour(t, h, native)
	if s.proofs == nil {
		s.proofs = proofsLeft(t, s.cfg)
	}
	if s.proofs == nil {
		s.proofs = proveAll(t.Context(), t, h, s.cfg, native)
	}

	b := s.backend(t) // after the host's secrets are planted
	neighbour := s.start(t, b, s.spec())
	neighbour.must(t, s.neighbour(beside)+"print('planted')")
	shared := s.start(t, b, s.spec())
	shared.must(t, s.prelude())
	planted := h.newFolders(t)
	var mounted *session // with folders; nil: the engine mounts none
	if mounts := s.spec(); slices.ContainsFunc(attempts, func(a Attempt) bool { return a.Folders }) && s.mountsFolders(t, b, planted.mounts()) {
		mounts.Mounts = planted.mounts()
		mounted = s.start(t, b, mounts)
		mounted.must(t, s.prelude())
	}

	var findings []finding
	for _, a := range attempts {
		f := finding{attempt: a, proof: s.proofs[a.Name]}
		sess := shared
		switch {
		case s.report.Isolation == sandbox.NoIsolation && !a.harmless(), a.Folders && mounted == nil:
			f.outcome = isSkipped
			findings = append(findings, f)
			continue
		case a.Folders:
			sess = mounted
		case a.Wrecks:
			sess = s.start(t, b, s.spec())
			sess.must(t, s.prelude())
		}
		f.inside = s.attempt(t, h, &a, sess, beside)
		if a.Folders && sess.conn.Err() != nil {
			t.Fatalf("%s: it ended its sandbox", a.Name)
		} else if a.Wrecks {
			sess.destroy(t)
		} else if sess.conn.Err() != nil {
			t.Errorf("%s: it ended its sandbox: set Wrecks", a.Name)
			shared = s.start(t, b, s.spec())
			shared.must(t, s.prelude())
		}
		f.outcome = s.judge(&f)
		findings = append(findings, f)
	}
	// Without isolation, the neighbour's secrets are on the host.
	neighbour.must(t, "neighbour_remove()")
	neighbour.usable(t, "the neighbour")
	if h.perm.struck() != "" {
		t.Logf("the host's canary was struck by the end: %s (the controls do that)", h.perm.struck())
	}
	if s.report.Isolation == sandbox.NoIsolation {
		s.reportControls(t, findings)
		return
	}
	s.reportFindings(t, findings)
}

// harmless reports whether an attempt can run without isolation.
func (a *Attempt) harmless() bool {
	return !a.Wrecks && !a.Control.Private && a.Control.Probe == ""
}

// attempt runs one probe inside. If the host's canary was struck it tries
// again, because the controls of another test on the same machine may strike it
// too.
func (s *suite) attempt(t *testing.T, h *host, a *Attempt, sess *session, n neighbourParams) verdict {
	t.Helper()
	for try := 1; ; try++ {
		v, struck := s.attemptOnce(t, h, a, sess, n)
		if !struck || try == 3 {
			return v
		}
	}
}

func (s *suite) attemptOnce(t *testing.T, h *host, a *Attempt, sess *session, n neighbourParams) (v verdict, struck bool) {
	t.Helper()
	params := h.with(n.params())
	params["init"] = 1
	var c *canary
	if a.Canary {
		c = newCanary(t, h.python, h.token)
		defer c.stop()
		params["canary"] = c.params()
	}
	if a.Folders {
		maps.Copy(params, folderParams("/mnt", h.native.secret))
	}
	if s.report.Isolation == sandbox.NoIsolation {
		params["init"] = h.perm.cmd.Process.Pid
		maps.Copy(params, map[string]any{"home": h.params["home"]})
	}
	call, err := probeCall(a.Name, a.Probe, params)
	if err != nil {
		t.Fatal(err)
	}
	r := sess.exec(t, call)
	v, ok := findVerdict(r.Stdout)
	if !ok {
		v = verdict{Verdict: blocked, Detail: fmt.Sprintf("no verdict: %s, %v %s", r.Status, r.Err, lastLine(r.Stderr))}
		if !a.Wrecks {
			v.Verdict = broken
		}
	}
	if c != nil {
		if hit := c.struck(); hit != "" {
			return verdict{Verdict: reached, Detail: hit}, true
		}
	}
	return v, false
}

func (s *suite) judge(f *finding) outcome {
	switch {
	case f.inside.Verdict == broken:
		return isBroken
	case f.inside.Verdict == blocked:
		return isBlocked
	case s.report.Isolation < f.attempt.Level:
		return isBelow
	case f.attempt.OwnKernel != "" && s.report.Isolation >= sandbox.KernelIsolation:
		return isTolerated
	default:
		return isEscape
	}
}

// reportFindings prints the table and fails the test for findings that are not
// allowed.
func (s *suite) reportFindings(t *testing.T, findings []finding) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CATEGORY\tATTEMPT\tCONTROL\tINSIDE\tDETAIL")
	count := map[outcome]int{}
	proved, unproven := 0, 0
	for _, f := range findings {
		count[f.outcome]++
		control := "proved " + f.proof.By
		if f.proof.Proved {
			proved++
		} else {
			unproven++
			control = "unproven"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.110s\n", f.attempt.Category, f.attempt.Name, control, f.outcome, oneLine(f.inside.Detail))
	}
	_ = w.Flush()
	t.Logf("%d attempts on %s: %d blocked, %d reached, %d tolerated, %d beyond its level; %d controls proved, %d unproven\n%s",
		len(findings), s.cfg.Engine, count[isBlocked], count[isEscape], count[isTolerated], count[isBelow], proved, unproven, b.String())
	for _, f := range findings {
		t.Run(f.attempt.Name, func(t *testing.T) { s.reportFinding(t, &f) })
	}
	if s.cfg.Attempts == nil && proved < 50 {
		t.Errorf("only %d attempts are proved", proved)
	}
}

// reportFinding makes one attempt a subtest, which gives the reason for its
// outcome.
func (s *suite) reportFinding(t *testing.T, f *finding) {
	switch {
	case f.outcome == isSkipped:
		Skip(t, s.cfg.Engine+".folders", "the engine mounts no folders")
	case f.outcome == isEscape:
		t.Errorf("ESCAPE: %s: %s", f.attempt.Tries, f.inside.Detail)
	case f.outcome == isBroken:
		t.Errorf("the probe has a bug: %s", f.inside.Detail)
	case !f.proof.Proved && (f.proof.Allowed == "" || s.cfg.Attempts != nil):
		t.Errorf("blocked, but unproven: its control does not reach what it tries: %s", f.proof.Detail)
	case f.outcome == isBelow:
		t.Skipf("reached; isolation of the kind %q does not prevent it: %s: %s", s.report.Isolation, f.attempt.Tries, oneLine(f.inside.Detail))
	}
	if f.outcome == isTolerated {
		t.Logf("tolerated: %s", f.attempt.OwnKernel)
	}
	if !f.proof.Proved {
		t.Logf("unproven: %s (%s)", f.proof.Allowed, oneLine(f.proof.Detail))
	} else if f.attempt.Control.Why != "" {
		t.Logf("proved in another way: %s", f.attempt.Control.Why)
	}
}

// reportControls judges an engine that does not isolate: there the attempts
// must succeed, which shows that the suite would see an escape.
func (s *suite) reportControls(t *testing.T, findings []finding) {
	hits, tried := 0, 0
	for _, f := range findings {
		switch {
		case f.outcome == isSkipped:
		case f.outcome == isBroken:
			t.Errorf("%s: the probe has a bug: %s", f.attempt.Name, f.inside.Detail)
		case f.proof.Proved && f.proof.By == "natively":
			tried++
			if f.inside.Verdict == reached {
				hits++
			} else {
				t.Logf("%s: natively reached, not through the engine: %s", f.attempt.Name, f.inside.Detail)
			}
		}
	}
	t.Logf("%d of %d attempts that succeed natively succeed through %s, which isolates nothing", hits, tried, s.cfg.Engine)
	if hits < tried*3/4 {
		t.Errorf("the suite sees only %d of %d escapes through an engine that isolates nothing", hits, tried)
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
