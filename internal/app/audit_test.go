//go:build unix

package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/authz/audit"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/store"
)

// TestUnwritableAudit: each client hears with its next result that the audit log cannot
// be written, once for each time, and not where it is.
func TestUnwritableAudit(t *testing.T) {
	s := newShared(t, nil)
	dir := s.app.AuditDir().Path("")
	block := func() {
		t.Helper()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // longer than until the log is looked at again
	}
	clients := map[string]*Client{}
	step := func(who string, want bool) {
		t.Helper()
		if clients[who] == nil {
			c, err := s.core.NewClient(s.app, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			clients[who] = c
		}
		// What no backend runs is answered and recorded, too.
		r := clients[who].Broker.Execute(t.Context(), broker.Request{Principal: authz.Local(who), Backend: "none", Submission: broker.Submission{Code: "1"}})
		got := strings.Join(r.Notes, "\n")
		if strings.Contains(got, "the audit log cannot be written") != want || strings.Contains(got, dir) {
			t.Errorf("%s: got the notes %q, want one without a path: %t", who, r.Notes, want)
		}
	}
	block()
	step("ann", true)
	step("ann", false)
	step("bob", true)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	step("ann", false)
	if err := s.core.Audit.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	step("ann", false)
	step("new", false)
	block() // after it was written
	step("ann", true)
	step("bob", true)
	step("new", true)
	step("new", false)
}

// TestLostQuestionsAreRecorded: what a killed process has left is in the audit log before
// it is forgotten, whoever finds it.
func TestLostQuestionsAreRecorded(t *testing.T) {
	s := newShared(t, nil)
	records := s.app.state(store.Approvals)
	leave := func(id string) {
		t.Helper()
		text := `[{"id":"` + id + `","process":42,"name":"fs.write","calls":3,"since":"2026-11-23T12:00:00Z","owner":"local","client":"claude","session":"work","execution":"x-1","action":"call_tool","server":"fs","item":"write"}]`
		if err := records.Write(id+".json", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	ends := func() (got []string) {
		t.Helper()
		err := audit.NewReader(s.app.AuditDir(), time.Time{}).Each(func(_ []byte, r *audit.Record) {
			if r.Type != audit.Answer {
				return
			}
			got = append(got, r.Question)
			if r.Killed != 42 || r.Calls != 3 || r.Client != "claude" || r.Session != "work" || r.Execution != "x-1" || r.Server != "fs" || r.Item != "write" || !strings.Contains(r.Reason, "none of its calls was sent") || r.Since.IsZero() || *r.Allowed {
				t.Errorf("got %+v, want all that is known", r)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}

	// A process that serves clients finds it.
	leave("aaaa")
	s.core.Approvals.Reap()
	if got := ends(); len(got) != 1 || got[0] != "aaaa" || len(s.core.Approvals.Lost()) != 1 {
		t.Errorf("got %v in the log and %v, want aaaa", got, s.core.Approvals.Lost())
	}

	// 'sallyport approvals' does.
	leave("bbbb")
	if f := s.app.FindApprovals(t.Context()); len(f.Lost) != 1 || len(f.Problems) != 0 {
		t.Errorf("got %v, %v, want bbbb", f.Lost, f.Problems)
	}
	if got := ends(); len(got) != 2 || got[1] != "bbbb" {
		t.Errorf("got %v in the log, want bbbb, too", got)
	}

	// What reads the log does, and leaves it for people to see.
	leave("dddd")
	for range 2 {
		if err := s.app.RecordLost(); err != nil {
			t.Error(err)
		}
	}
	if got := ends(); len(got) != 3 || got[2] != "dddd" {
		t.Errorf("got %v in the log, want dddd once, too", got)
	}
	if f := s.app.FindApprovals(t.Context()); len(f.Lost) != 1 || f.Lost[0].ID != "dddd" {
		t.Errorf("got %v, %v, want dddd", f.Lost, f.Problems)
	}

	// What cannot be recorded stays until it can.
	dir, aside := s.app.AuditDir().Path(""), s.app.AuditDir().Path("")+"-aside"
	if err := os.Rename(dir, aside); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	leave("cccc")
	s.app.Log = slog.New(slog.DiscardHandler)
	if f := s.app.FindApprovals(t.Context()); len(f.Lost) != 1 || len(f.Problems) != 1 || !strings.Contains(f.Problems[0], "not yet in the audit log") {
		t.Errorf("got %v, %v, want cccc, and that it is not recorded", f.Lost, f.Problems)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, dir); err != nil {
		t.Fatal(err)
	}
	if f := s.app.FindApprovals(t.Context()); len(f.Lost) != 1 || len(f.Problems) != 0 {
		t.Errorf("got %v, %v, want cccc", f.Lost, f.Problems)
	}
	if got := ends(); len(got) != 4 || got[3] != "cccc" {
		t.Errorf("got %v in the log, want cccc, too", got)
	}
	if lost, err := approval.Reap(records, func([]approval.Lost) error { return nil }); len(lost) != 0 || err != nil {
		t.Errorf("got %v, %v, want nothing left", lost, err)
	}
}
