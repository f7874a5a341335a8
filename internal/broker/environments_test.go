//go:build unix

package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/snapshot"
	"github.com/sallyport/sallyport/internal/store"
)

// stubEnvironments are environments whose code finds their name in WHICH.
type stubEnvironments struct {
	engine    *engine
	byDefault string
	build     func(ctx context.Context, tell func(string)) error // nil: succeeds at once

	mu      sync.Mutex
	built   map[string]*session.Template // nil: not yet
	failing map[string]error             // of Template
	builds  int
}

func (s *stubEnvironments) template(name string) *session.Template {
	return &session.Template{Engine: s.engine, Program: python.Program(), Env: map[string]string{"WHICH": name}, Environment: name}
}

func (s *stubEnvironments) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.built)), func(name string) bool { return name == "1d" })
}

func (s *stubEnvironments) Default() string { return s.byDefault }

func (s *stubEnvironments) Template(name string) (*session.Template, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, known := s.built[name]
	switch {
	case s.failing[name] != nil:
		return nil, s.failing[name]
	case !known:
		return nil, errors.New("unknown")
	case t == nil:
		return nil, ErrUnbuilt
	}
	return t, nil
}

func (s *stubEnvironments) Build(ctx context.Context, name string, tell func(string)) error {
	s.mu.Lock()
	s.builds++
	s.mu.Unlock()
	if s.build != nil {
		if err := s.build(ctx, tell); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.built[name] = s.template(name)
	return nil
}

func (s *stubEnvironments) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.builds
}

// environments returns a broker with the environments data and ml, of which data is
// built, and one of a script, whose ID is 1d.
func environments(t *testing.T, change func(*stubEnvironments, *parts)) (*desk, *stubEnvironments) {
	s := &stubEnvironments{failing: map[string]error{}}
	b, _ := newBroker(t, func(p *parts) {
		s.engine = p.Template.Engine.(*engine)
		s.built = map[string]*session.Template{"data": s.template("data"), "ml": nil, "1d": s.template("1d")}
		p.Environments = s
		if change != nil {
			change(s, p)
		}
	})
	return b, s
}

const which = "import os; print(os.environ.get('WHICH', 'host'))"

// in runs code in a session of an environment.
func in(t *testing.T, b *desk, name, env, code string) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return b.Execute(ctx, Request{Principal: user, Session: name, Env: env, Submission: Submission{Code: code}})
}

// A session gets the environment that its first request chooses, and keeps it.
func TestChooseEnvironment(t *testing.T) {
	t.Parallel()
	type step struct{ session, env, want string } // want: what is printed, or after "!" a part of the error
	for _, tt := range []struct {
		name      string
		byDefault string
		steps     []step
	}{
		{"none is chosen", "", []step{{"", "", "host"}, {"", "host", "host"}, {"work", "", "host"}}},
		{"the default", "data", []step{{"", "", "data"}, {"work", "host", "host"}, {"work", "", "host"}, {"", "data", "data"}}},
		{"by name and by ID", "", []step{{"a", "data", "data"}, {"a", "", "data"}, {"b", "ml", "ml"}, {"c", "1d", "1d"}, {"c", "", "1d"}}},
		{"an unknown one", "", []step{
			{"", "dta", `!There is no environment "dta". Nearest: "data". There are: data, ml, host`},
			{"a", "data", "data"}, {"a", "nope", "!no environment \"nope\""},
		}},
		{"another than the session's", "", []step{
			{"", "", "host"}, {"", "data", "!Session default has environment host, and cannot change to data. Leave 'env' out to go on in host, or name another 'session' for data"},
			{"a", "data", "data"}, {"a", "host", "!has environment data, and cannot change to host"}, {"a", "ml", "!sallyport sessions rm a"}, {"a", "", "data"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, _ := environments(t, func(s *stubEnvironments, _ *parts) { s.byDefault = tt.byDefault })
			for _, step := range tt.steps {
				r := in(t, b, step.session, step.env, which)
				got := strings.Join(r.Stdout, "\n")
				if r.Status != Success {
					got = "!" + r.Error
				}
				if wrong, ok := strings.CutPrefix(step.want, "!"); got != step.want && (!ok || r.Status != ValidationError || !strings.Contains(r.Error, wrong)) {
					t.Errorf("session %q, env %q: got %s %q, want %q", step.session, step.env, r.Status, got, step.want)
				}
			}
		})
	}
	b, _ := newBroker(t, nil)
	if r := in(t, b, "", "data", "1"); r.Status != ValidationError || !strings.Contains(r.Error, "none is configured") {
		t.Errorf("without environments: got %s, %q", r.Status, r.Error)
	}
	if r := in(t, b, "", "host", which); r.Status != Success {
		t.Errorf("host without environments: got %s, %q", r.Status, r.Error)
	}
}

// A session in memory goes on in the environment that it began with, whatever became
// of that. One on disk needs it.
func TestEnvironmentThatChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, s := environments(t, func(_ *stubEnvironments, p *parts) {
		p.sessions.Snapshots, p.sessions.Records = snapshot.At(filepath.Join(dir, "snapshots")), store.At(dir)
	})
	want(t, in(t, b, "a", "data", "x = 1"), Success, 0, "")
	s.mu.Lock()
	s.failing["data"] = errors.New("the lock is old: sallyport env lock data")
	s.mu.Unlock()
	for _, env := range []string{"", "data"} {
		want(t, in(t, b, "a", env, "print(x)"), Success, 0, "1")
	}
	if r := in(t, b, "b", "data", "1"); r.Status != Failed || !strings.Contains(r.Error, "sallyport env lock data") {
		t.Errorf("a new session: got %s, %q, want the reason", r.Status, r.Error)
	}
	for name, env := range map[string]string{"old": "data", "gone": "nope", "later": "ml"} {
		record := fmt.Sprintf(`{"name":%q,"status":"suspended","engine":"fake","environment":%q}`, name, env)
		if err := os.WriteFile(filepath.Join(dir, store.FileName(name, "")+".json"), []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ session, env, want string }{
		{"old", "", "sallyport env lock data"},
		{"old", "ml", "Session old has environment data, and cannot change to ml"},
		{"gone", "", "needs environment nope, which is gone"},
	} {
		if r := in(t, b, tt.session, tt.env, "1"); r.Status == Success || !strings.Contains(r.Error, tt.want) {
			t.Errorf("session %s, env %q: got %s, %q, want %q", tt.session, tt.env, r.Status, r.Error, tt.want)
		}
	}
	if r := in(t, b, "later", "", which); s.count() != 1 || strings.Join(r.Stdout, "") != "ml" {
		t.Errorf("a suspended session's environment: got %d builds, %s %q (%s), want it built", s.count(), r.Status, r.Stdout, r.Error)
	}
}

// Calls wait for the one build of their environment, and keep their order.
func TestBuildOnFirstUse(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}, 8), make(chan error)
	b, s := environments(t, func(s *stubEnvironments, _ *parts) {
		s.build = func(ctx context.Context, tell func(string)) error {
			tell("downloading wheels\n")
			begun <- struct{}{}
			select {
			case err := <-end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	submit := func(name, env, code string, within time.Duration) (*Activity, chan *Result, context.CancelFunc) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		activity, done := &Activity{}, make(chan *Result, 1)
		run := b.Submit(Request{Principal: user, Session: name, Env: env, Activity: activity, Within: within, Submission: Submission{Code: code}})
		go func() { done <- run(ctx) }()
		return activity, done, cancel
	}
	activity, first, _ := submit("work", "ml", "x = ['first']", 0)
	<-begun
	const building = "building environment ml: downloading wheels"
	got := activity.String()
	for range 60_000 { // who asked for it may learn of it after it has begun
		if got == building {
			break
		}
		time.Sleep(time.Millisecond)
		got = activity.String()
	}
	if got != building {
		t.Errorf("while it is built: got %q, want %q", got, building)
	}
	_, second, _ := submit("work", "", "x.append('second')", 0)
	_, third, _ := submit("work", "ml", "x.append('third')", 0)
	_, misfit, _ := submit("work", "data", "1", 0)
	_, left, leave := submit("work", "", "x.append('left')", 0)
	_, other, _ := submit("other", "ml", which, 0)
	_, patient, _ := submit("patient", "ml", which, time.Millisecond)
	_, last, _ := submit("work", "", "x.append('last')\nprint(x)", 0)
	leave()
	if r := <-left; r.Error != "Cancelled before the code ran" {
		t.Errorf("one that gave up: got %+v", r)
	}
	r := <-patient
	for range 10000 { // it may not have come that far
		if r.Status != Running || strings.Contains(r.Summary, "building") {
			break
		}
		r = b.Execute(t.Context(), Request{Principal: user, Session: "patient", Within: time.Millisecond})
	}
	if r.Status != Running || !strings.Contains(r.Summary, "building environment ml: downloading wheels") {
		t.Errorf("one that does not wait: got %s, %q", r.Status, r.Summary)
	}
	want(t, in(t, b, "free", "data", which), Success, 0, "data")
	end <- nil
	for _, done := range []chan *Result{first, second, third} {
		want(t, <-done, Success, 0, "")
	}
	if r := <-misfit; r.Status != ValidationError || !strings.Contains(r.Error, "has environment ml, and cannot change to data") {
		t.Errorf("another environment meanwhile: got %s, %q", r.Status, r.Error)
	}
	want(t, <-other, Success, 0, "ml")
	want(t, <-last, Success, 0, "['first', 'second', 'third', 'last']")
	if r := b.Execute(t.Context(), Request{Principal: user, Session: "patient", Within: time.Minute}); strings.Join(r.Stdout, "") != "ml" {
		t.Errorf("a call without code: got %s, %q (%s), want the rest", r.Status, r.Stdout, r.Error)
	}
	if s.count() != 1 || len(begun) != 0 || len(b.arrivals.last) != 0 || len(b.builds.all) != 0 {
		t.Errorf("got %d builds, %d sessions and %d builds left, want 1, 0 and 0", s.count(), len(b.arrivals.last), len(b.builds.all))
	}
}

// A build that fails runs nothing, and the next call tries again. One that no call
// waits for ends.
func TestBuildFails(t *testing.T) {
	t.Parallel()
	var fail error
	begun := make(chan struct{})
	b, s := environments(t, func(s *stubEnvironments, _ *parts) {
		s.build = func(ctx context.Context, _ func(string)) error {
			if fail == nil {
				close(begun)
				<-ctx.Done()
				return ctx.Err()
			}
			if fail == errDefect {
				panic("defect")
			}
			return fail
		}
	})
	for _, fail = range []error{errors.New("the index does not answer"), errDefect} {
		r := in(t, b, "", "ml", "1")
		if r.Status != Failed || !strings.Contains(r.Error, "environment ml could not be built: "+fail.Error()) || !strings.Contains(r.Error, "Nothing was run") {
			t.Errorf("got %s, %q, want the reason %q", r.Status, r.Error, fail)
		}
	}
	fail = nil
	ctx, cancel := context.WithCancel(t.Context())
	run := b.Submit(Request{Principal: user, Env: "ml", Submission: Submission{Code: "1"}})
	done := make(chan *Result)
	go func() { done <- run(ctx) }()
	<-begun
	cancel()
	if r := <-done; r.Error != "Cancelled before the code ran" {
		t.Errorf("cancelled: got %+v", r)
	}
	b.builds.work.Wait()
	if n := s.count(); n != 3 || s.built["ml"] != nil {
		t.Errorf("got %d builds, built: %t; want 3 that failed", n, s.built["ml"] != nil)
	}
	s.build = nil
	want(t, in(t, b, "", "ml", which), Success, 0, "ml")
}
