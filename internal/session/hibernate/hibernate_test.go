package hibernate

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session/clock"
	"github.com/sallyport/sallyport/internal/snapshot"
	"github.com/sallyport/sallyport/internal/store"
)

// processes returns a maker of stores on one disk, as each process has one, with
// a clock that the test sets.
func processes(t *testing.T, change func(*Config)) (open func() *Store, now *time.Time) {
	t.Helper()
	dir := t.TempDir()
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	return func() *Store {
		config := Config{
			Snapshots: snapshot.At(filepath.Join(dir, "snapshots")), Records: store.At(filepath.Join(dir, "sessions")), MaxDisk: 1 << 30,
			Clock: clock.New(func() time.Time { return at }), Logger: slog.New(slog.DiscardHandler),
			File: func(_, name string) string { return name },
		}
		if change != nil {
			change(&config)
		}
		s := New(config)
		t.Cleanup(s.Close)
		return s
	}, &at
}

func named(name string) Session {
	return Session{Name: name, File: name, Label: name, Engine: "e", Template: "t"}
}

// claim takes a session that must be free.
func claim(t *testing.T, s *Store, name string) (*Checkpoint, string) {
	t.Helper()
	c := s.Checkpoint(named(name))
	lost, err := c.Claim()
	if err != nil {
		t.Fatalf("claiming %s: %v", name, err)
	}
	return c, lost
}

// save writes a snapshot of that many bytes.
func save(t *testing.T, c *Checkpoint, bytes int) error {
	t.Helper()
	return c.Save(t.Context(), Save{
		Binding: "b", Note: struct{}{}, Limits: sandbox.Limits{MemoryBytes: 7},
		Measure: func() (int64, bool) { return int64(bytes), true },
		Take:    func(dir string) error { return os.WriteFile(filepath.Join(dir, "memory"), make([]byte, bytes), 0o600) },
	})
}

// A session is claimed by one process at a time, and each learns what became of
// its state.
func TestCheckpoint(t *testing.T) {
	open, _ := processes(t, nil)
	one, two := open(), open()
	c, lost := claim(t, one, "work")
	if lost != "" || c.Suspended || !c.Held() {
		t.Errorf("a new session: got lost %q, suspended %t, held %t", lost, c.Suspended, c.Held())
	}
	if _, err := two.Checkpoint(named("work")).Claim(); !errors.Is(err, ErrElsewhere) {
		t.Errorf("in another process: got %v, want ErrElsewhere", err)
	}
	c.Leave("")
	if r, err := one.Read("work"); r != nil || err != nil {
		t.Errorf("left without state: got record %+v (%v), want none", r, err)
	}

	c, _ = claim(t, one, "work")
	if err := save(t, c, 1000); err != nil {
		t.Fatal(err)
	}
	c.Leave("")
	r, err := two.Read("work")
	if err != nil || r.Status != Suspended || r.Engine != "e" || r.Template != "t" || r.Limits.MemoryBytes != 7 || r.Bytes < 1000 || r.Bytes != c.Size() {
		t.Errorf("suspended: got record %+v (%v) and a snapshot of %d bytes", r, err, c.Size())
	}

	c, lost = claim(t, two, "work")
	if lost != "" || !c.Suspended {
		t.Errorf("the next process: got lost %q, suspended %t, want a suspended session", lost, c.Suspended)
	}
	if found, err := c.Open("another"); err == nil {
		found.Close()
		t.Error("a snapshot of another binding was opened")
	}
	// What passes leaves it suspended; a defect does not.
	for _, passes := range []error{syscall.ENOSPC, sandbox.ErrFolder} {
		if err := c.Resume(t.Context(), func() error { return passes }); !errors.Is(err, passes) || !c.Suspended || c.Size() == 0 {
			t.Errorf("%v: got %v, suspended %t, %d bytes, want it suspended still", passes, err, c.Suspended, c.Size())
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Resume(gone, func() error { return errors.New("x") }); err == nil || !c.Suspended {
		t.Errorf("given up: got %v, suspended %t, want it suspended still", err, c.Suspended)
	}
	if err := c.Resume(t.Context(), func() error { return errors.New("defect") }); err == nil || c.Suspended || c.Size() != 0 {
		t.Errorf("a defect: got %v, suspended %t, %d bytes, want nothing left", err, c.Suspended, c.Size())
	}
	c.Leave("defect")
	c, lost = claim(t, one, "work")
	if lost != "defect" {
		t.Errorf("got lost %q, want defect", lost)
	}
	if err := c.Forget(); err != nil || c.Held() {
		t.Errorf("forget: got %v, held %t", err, c.Held())
	}
	if r, err := one.Read("work"); r != nil || err != nil {
		t.Errorf("forgotten: got record %+v (%v), want none", r, err)
	}
}

// What a process that died, or a power cut, left is reported as lost.
func TestLost(t *testing.T) {
	open, _ := processes(t, nil)
	s := open()
	c, _ := claim(t, s, "dead")
	c.Release() // as the kernel does when the process dies
	if _, lost := claim(t, open(), "dead"); !strings.Contains(lost, "ended without saving") {
		t.Errorf("a dead process's: got %q", lost)
	}
	if err := os.WriteFile(s.RecordPath("torn"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read("torn"); !errors.Is(err, ErrDamaged) {
		t.Errorf("a torn record: got %v, want ErrDamaged", err)
	}
	if _, lost := claim(t, s, "torn"); !strings.Contains(lost, "damaged") {
		t.Errorf("a torn record: got lost %q", lost)
	}
}

// A session in memory only has nothing on disk.
func TestNoCheckpoint(t *testing.T) {
	c := (*Store)(nil).Checkpoint(named("work"))
	lost, err := c.Claim()
	if c != nil || lost != "" || err != nil || c.Held() || c.Forget() != nil {
		t.Errorf("got %+v, %q, %v, want nothing", c, lost, err)
	}
	c.Leave("x")
	c.Release()
}

// The sessions that were suspended longest make room, if that is enough.
func TestMakeRoom(t *testing.T) {
	open, now := processes(t, func(c *Config) { c.MaxDisk = SpareDisk + 5000 })
	s := open()
	for _, name := range []string{"first", "second", "third"} {
		c, _ := claim(t, s, name)
		if err := save(t, c, 1000); err != nil {
			t.Fatal(err)
		}
		c.Leave("")
		if err := s.Snapshots.Touch(SessionPrefix+name, *now); err != nil {
			t.Fatal(err)
		}
		*now = now.Add(time.Minute)
	}
	statuses := func() string {
		var got []string
		for _, name := range []string{"first", "second", "third"} {
			r, err := s.Read(name)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(r.Status))
		}
		return strings.Join(got, " ")
	}
	if err := s.MakeRoom(SpareDisk + 6000); err == nil || !strings.Contains(err.Error(), "sessions.maxDisk") || statuses() != "suspended suspended suspended" {
		t.Errorf("more than there is: got %v and %s, want sessions.maxDisk and nothing removed", err, statuses())
	}
	total, err := s.Total()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.MakeRoom(s.MaxDisk - total + 1); err != nil || statuses() != "gone suspended suspended" {
		t.Errorf("a byte too much: got %v and %s, want the first one gone", err, statuses())
	}
	if _, lost := claim(t, s, "first"); !strings.Contains(lost, "sessions.maxDisk") {
		t.Errorf("got lost %q, want sessions.maxDisk", lost)
	}
}

// Tidy removes what was suspended too long and what dead processes left, and
// nothing of living ones.
func TestTidy(t *testing.T) {
	open, now := processes(t, func(c *Config) { c.Keep = time.Hour })
	dead, s := open(), open()
	own := func(s *Store) *Checkpoint {
		c := s.Checkpoint(Session{Name: "default", Label: "default"})
		if err := save(t, c, 10); err != nil {
			t.Fatal(err)
		}
		return c
	}
	left, kept := own(dead), own(s)
	for _, name := range []string{"old", "held", "new"} {
		c, _ := claim(t, s, name)
		if err := save(t, c, 10); err != nil {
			t.Fatal(err)
		}
		at := *now
		if name != "new" {
			at = at.Add(-2 * time.Hour)
		}
		if err := s.Snapshots.Touch(SessionPrefix+name, at); err != nil {
			t.Fatal(err)
		}
		if name != "held" {
			c.Leave("")
			continue
		}
		defer c.Release() // it is being resumed
		if err := c.note(Suspended, "", s.Write); err != nil {
			t.Fatal(err)
		}
	}
	dead.Close()
	if err := s.Tidy(); err != nil {
		t.Fatal(err)
	}
	if left.Size() != 0 || kept.Size() == 0 {
		t.Errorf("of clients: got %d bytes of a dead process and %d of a living one, want 0 and some", left.Size(), kept.Size())
	}
	for name, want := range map[string]Status{"old": Gone, "held": Suspended, "new": Suspended} {
		if r, err := s.Read(name); err != nil || r.Status != want || (s.Snapshots.Size(SessionPrefix+name) == 0) != (want == Gone) {
			t.Errorf("%s: got %+v (%v), want %s", name, r, err, want)
		}
	}
}
