package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/store"
)

// service is a batch service whose runs end when a test says so.
type service struct {
	mu        sync.Mutex
	runs      map[string]*remote
	startErr  error
	gone      map[string]bool
	uncancels bool // it cannot cancel
	strays    []string
	swept     []string
}

type remote struct {
	s         *service
	id        string
	spec      batch.Job
	done      chan struct{}
	once      sync.Once
	result    batch.Result
	files     map[string]string
	fetchErr  error
	fetching  func(context.Context)
	list      []batch.File // in place of files
	destroyed int
	observe   func(batch.Progress)
}

func newService() *service { return &service{runs: map[string]*remote{}, gone: map[string]bool{}} }

func (s *service) Name() string { return "far" }
func (s *service) Probe(context.Context) (*sandbox.Report, error) {
	return &sandbox.Report{Backend: "far", Usable: true, Remote: true}, nil
}
func (s *service) Close() error { return nil }

func (s *service) Submit(_ context.Context, spec *batch.Job) (batch.Run, error) {
	if s.startErr != nil {
		return nil, s.startErr
	}
	r := &remote{s: s, id: spec.ID, spec: *spec, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[spec.ID] = r
	return r, nil
}

func (s *service) Attach(_ context.Context, h sandbox.Handle) (batch.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[h.ID]
	if r == nil || s.gone[h.ID] {
		return nil, &sandbox.Error{Op: "attach", Backend: "far", Kind: sandbox.ErrGone, Err: errors.New("its result has expired")}
	}
	return r, nil
}

func (s *service) Sweep(_ context.Context, _ time.Duration, known func(string) bool) ([]string, error) {
	for _, id := range s.strays {
		if !known(id) {
			s.swept = append(s.swept, id)
		}
	}
	return s.swept, nil
}

func (r *remote) Handle() sandbox.Handle {
	return sandbox.Handle{Backend: "far", Version: 1, ID: r.id, Data: []byte(`{"job":"j1"}`)}
}
func (r *remote) Destroy(context.Context) error { r.destroyed++; return nil }
func (r *remote) Result(ctx context.Context) (batch.Result, error) {
	if r.observe != nil {
		select {
		case <-r.done: // nothing is told of a run that has ended
		default:
			r.observe(batch.Progress{State: "running", Running: true})
		}
	}
	select {
	case <-r.done:
		return r.result, nil
	case <-ctx.Done():
		return batch.Result{}, ctx.Err()
	}
}
func (r *remote) Observe(f func(batch.Progress)) { r.observe = f }
func (r *remote) Cancel(context.Context) error {
	if r.s.uncancels {
		return &sandbox.Error{Op: "cancel", Backend: "far", Kind: sandbox.ErrUnsupported}
	}
	r.end(batch.Result{End: batch.Cancelled, Error: "cancelled"})
	return nil
}
func (r *remote) Fetch(ctx context.Context, dir *os.Root) ([]batch.File, error) {
	if r.fetching != nil {
		r.fetching(ctx)
	}
	if r.list != nil {
		return r.list, nil
	}
	if r.fetchErr != nil {
		return nil, r.fetchErr
	}
	var list []batch.File
	for name, text := range r.files {
		if err := dir.WriteFile(name, []byte(text), 0o600); err != nil {
			return nil, err
		}
		list = append(list, batch.File{Path: name, Size: int64(len(text))})
	}
	return list, nil
}
func (r *remote) end(b batch.Result) {
	r.once.Do(func() { r.result = b; close(r.done) })
}

func newStore(t *testing.T, s *service) *Store {
	t.Helper()
	return storeIn(filepath.Join(t.TempDir(), "runs"), s)
}

func storeIn(dir string, s *service) *Store {
	return NewStore(store.At(dir), map[string]batch.Service{"far": s}, 24*time.Hour, Limits{}, slog.New(slog.NewTextHandler(io.Discard, nil)))
}

func begin(t *testing.T, s *Store, opts Options) (*Follower, *remote) {
	t.Helper()
	j, err := s.Start(t.Context(), "far", batch.Job{Code: "1", Timeout: time.Minute}, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j, s.services["far"].(*service).runs[j.ID()]
}

func text(t *testing.T, s *Store, id string, stderr bool) string {
	t.Helper()
	f, err := s.Output(id, stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestARunFromStartToFiles(t *testing.T) {
	svc := newService()
	s := newStore(t, svc)
	j, r := begin(t, s, Options{Program: "plot.py"})
	before, err := s.Get(j.ID())
	if err != nil || before.State != Queued || before.Handle == nil || string(before.Handle.Data) != `{"job":"j1"}` || before.Timeout != 60 || before.Program != "plot.py" {
		t.Fatalf("%+v, %v", before, err)
	}
	r.files = map[string]string{"plot.png": "picture"}
	r.end(batch.Result{
		Stdout: []byte("out\n"), Stderr: []byte("err\n"), ExitCode: 3, Queued: 2 * time.Second, Ran: 5 * time.Second,
		Usage: &batch.Usage{CPU: 4 * time.Second, GPUModel: "T4", GPUs: 2}, Notes: []string{"n"},
	})
	record, err := j.Wait(t.Context(), nil)
	if err != nil || record.State != Ended || record.Result.ExitCode != 3 || record.Result.QueuedSeconds != 2 || record.Result.RanSeconds != 5 || !record.Fetched {
		t.Fatalf("%+v, %v", record, err)
	}
	if got := record.Result.Usage(); got.CPU != 4*time.Second || got.GPUModel != "T4" || got.GPUs != 2 {
		t.Errorf("usage %+v", got)
	}
	if text(t, s, j.ID(), false) != "out\n" || text(t, s, j.ID(), true) != "err\n" {
		t.Error("the output was not kept")
	}
	root, err := s.Files(j.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if b, err := root.ReadFile("plot.png"); err != nil || string(b) != "picture" {
		t.Errorf("%s, %v", b, err)
	}
	if r.destroyed != 1 {
		t.Errorf("destroyed %d times", r.destroyed)
	}
	j.Close()
	if err := s.Remove(j.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(j.ID()); !errors.Is(err, ErrUnknown) {
		t.Errorf("after its removal: %v", err)
	}
	if _, err := os.Stat(s.dir.Sub(j.record.ID).Path("")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its files are left: %v", err)
	}
}

func TestProgressIsInTheRecord(t *testing.T) {
	s := newStore(t, newService())
	j, _ := begin(t, s, Options{})
	j.note(batch.Progress{State: "queued, 2 workers are starting"})
	j.note(batch.Progress{Running: true, Handle: &sandbox.Handle{Backend: "far", ID: j.ID(), Data: []byte(`{"job":"j2"}`)}})
	r, err := s.Get(j.ID())
	if err != nil || r.State != Running || r.Began.IsZero() || r.Status == "" || string(r.Handle.Data) != `{"job":"j2"}` {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestAStartThatFailsLeavesNothing(t *testing.T) {
	svc := newService()
	svc.startErr = errors.New("no quota")
	s := newStore(t, svc)
	if _, err := s.Start(t.Context(), "far", batch.Job{Code: "1"}, Options{}); err == nil || !strings.Contains(err.Error(), "no quota") {
		t.Fatal(err)
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := s.Start(t.Context(), "near", batch.Job{}, Options{}); !errors.Is(err, ErrOff) {
		t.Errorf("an engine that is off: %v", err)
	}
}

func TestOneFollows(t *testing.T) {
	svc := newService()
	dir := filepath.Join(t.TempDir(), "runs")
	one, other := storeIn(dir, svc), storeIn(dir, svc)
	j, r := begin(t, one, Options{})
	if _, err := other.Attach(t.Context(), j.ID()); !errors.Is(err, ErrFollowed) {
		t.Fatalf("two follow: %v", err)
	}
	// Cancelling needs no following.
	if err := other.Cancel(t.Context(), j.ID()); err != nil {
		t.Fatal(err)
	}
	record, err := j.Wait(t.Context(), nil)
	if err != nil || record.Result.End != batch.Cancelled {
		t.Fatalf("%+v, %v", record, err)
	}
	if err := other.Remove(j.ID()); !errors.Is(err, ErrFollowed) {
		t.Errorf("removed what is followed: %v", err)
	}
	j.Close()
	again, err := other.Attach(t.Context(), j.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if record, err := again.Wait(t.Context(), nil); err != nil || record.State != Ended || r.destroyed != 1 {
		t.Errorf("%+v, %v, destroyed %d times", record, err, r.destroyed)
	}
}

// TestCancelOfADetachedRun: the record of a run that nobody follows says so.
func TestCancelOfADetachedRun(t *testing.T) {
	s := newStore(t, newService())
	j, _ := begin(t, s, Options{Detached: true})
	j.Close()
	if err := s.Cancel(t.Context(), j.ID()); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Get(j.ID()); err != nil || r.State != Ended || r.Result.End != batch.Cancelled {
		t.Errorf("%+v, %v", r, err)
	}
	if err := s.Remove(j.ID()); err != nil {
		t.Error(err)
	}
}

func TestFilesThatCouldNotBeFetchedStayThere(t *testing.T) {
	s := newStore(t, newService())
	j, r := begin(t, s, Options{})
	r.fetchErr = errors.New("the network is down")
	r.end(batch.Result{})
	record, err := j.Wait(t.Context(), nil)
	if err != nil || !strings.Contains(record.Trouble, "the network is down") || r.destroyed != 0 {
		t.Fatalf("%+v, %v, destroyed %d times", record, err, r.destroyed)
	}
	j.Close()
	r.fetchErr, r.files = nil, map[string]string{"a": "b"}
	again, err := s.Attach(t.Context(), j.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	record, err = again.Wait(t.Context(), nil)
	if err != nil || record.Trouble != "" || len(record.Files) != 1 || r.destroyed != 1 {
		t.Errorf("%+v, %v, destroyed %d times", record, err, r.destroyed)
	}
}

func TestWhatTheServiceForgot(t *testing.T) {
	svc := newService()
	s := newStore(t, svc)
	j, _ := begin(t, s, Options{})
	j.Close()
	svc.gone[j.ID()] = true
	again, err := s.Attach(t.Context(), j.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	record, err := again.Wait(t.Context(), nil)
	if err != nil || record.Result.End != batch.Lost || !strings.Contains(record.Result.Error, "expired") {
		t.Errorf("%+v, %v", record.Result, err)
	}
}

func TestSweep(t *testing.T) {
	svc := newService()
	svc.strays = []string{"run-aaaaaaaaaaaa"}
	s := newStore(t, svc)
	left, _ := begin(t, s, Options{})
	left.Close() // its program died
	alone, _ := begin(t, s, Options{Detached: true})
	alone.Close()
	followed, _ := begin(t, s, Options{})
	old, r := begin(t, s, Options{})
	r.end(batch.Result{})
	if _, err := old.Wait(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	old.mu.Lock()
	old.record.Ended = time.Now().Add(-25 * time.Hour)
	old.save()
	old.mu.Unlock()
	old.Close()

	s.Sweep(t.Context())
	for id, want := range map[string]string{left.ID(): "ended cancelled", alone.ID(): "queued ", followed.ID(): "queued "} {
		r, err := s.Get(id)
		if err != nil {
			t.Fatal(err)
		}
		got := string(r.State) + " "
		if r.Result != nil {
			got += string(r.Result.End)
		}
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if _, err := s.Get(old.ID()); !errors.Is(err, ErrUnknown) {
		t.Errorf("an old run is still there: %v", err)
	}
	if fmt.Sprint(svc.swept) != "[run-aaaaaaaaaaaa]" {
		t.Errorf("swept %v", svc.swept)
	}
}

// A service that cannot cancel lets the run go on, and the record says so.
// A process may die between a run's end and telling of it: whoever looks at runs
// next tells of it again.
func TestTheEndIsToldAgain(t *testing.T) {
	svc := newService()
	dir := t.TempDir()
	first := storeIn(dir, svc)
	var ids []string
	for _, age := range []time.Duration{time.Minute, 23 * time.Hour} {
		j, r := begin(t, first, Options{})
		r.end(batch.Result{ExitCode: 3})
		if _, err := j.Wait(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		j.mu.Lock()
		j.record.Ended = time.Now().Add(-age)
		j.save()
		j.mu.Unlock()
		j.Close()
		ids = append(ids, j.ID())
	}
	running, _ := begin(t, first, Options{Detached: true})
	defer running.Close()

	second := storeIn(dir, svc)
	told := map[string]int{}
	second.OnEnd(func(r *Record) { told[r.ID] += r.Result.ExitCode })
	second.Sweep(t.Context())
	j, err := second.Attach(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if _, err := j.Wait(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || told[ids[0]] != 6 || told[ids[1]] != 3 {
		t.Errorf("%v", told)
	}
	// One that ended long ago is an old story.
	second.reportEnd(Record{ID: "old", Ended: time.Now().Add(-25 * time.Hour), Result: &Result{}})
	if len(told) != 2 {
		t.Errorf("%v", told)
	}
}

func TestSweepOfWhatCannotBeCancelled(t *testing.T) {
	svc := newService()
	svc.uncancels = true
	s := newStore(t, svc)
	j, _ := begin(t, s, Options{})
	j.Close()
	s.Sweep(t.Context())
	r, err := s.Get(j.ID())
	if err != nil || r.State == Ended || !r.Detached {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestBrokenRecords(t *testing.T) {
	s := newStore(t, newService())
	j, _ := begin(t, s, Options{})
	for _, content := range []string{"", "{", `{"version":9,"id":"` + j.ID() + `"}`, `{"version":1,"id":"run-bbbbbbbbbbbb"}`} {
		if err := s.dir.Write(recordName(j.ID()), []byte(content)); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Get(j.ID()); err == nil {
			t.Errorf("%q was read as %+v", content, r)
		}
	}
	if _, err := s.List(); err == nil {
		t.Error("a list hides what could not be read")
	}
	for _, id := range []string{"", "../x", "run-1", "run-AAAAAAAAAAAA", "run-aaaaaaaaaaaa/.."} {
		if _, err := s.Get(id); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestURI(t *testing.T) {
	const id = "run-abcdefghij23"
	for _, path := range []string{"plot.png", "a/b c.txt", "ü%20.csv", "a/../b"} {
		gotID, gotPath, ok := ParseURI(URI(id, path))
		if !ok || gotID != id || gotPath != path {
			t.Errorf("%s: %s, %s, %v", path, gotID, gotPath, ok)
		}
	}
	for _, uri := range []string{"", "sallyport://runs/", "sallyport://runs/x/files/a", "sallyport://runs/" + id + "/files/", "file:///etc/passwd", "sallyport://runs/" + id + "/files/%zz"} {
		if _, _, ok := ParseURI(uri); ok {
			t.Errorf("%q was accepted", uri)
		}
	}
}

// TestRefresh: records say what the services say, and runs of programs that
// were killed are ended.
func TestRefresh(t *testing.T) {
	svc := newService()
	s := newStore(t, svc)
	ended, endedRun := begin(t, s, Options{Detached: true})
	goes, _ := begin(t, s, Options{Detached: true})
	left, leftRun := begin(t, s, Options{})
	followed, followedRun := begin(t, s, Options{})
	for _, j := range []*Follower{ended, goes, left} {
		j.Close() // its program has ended, somehow
	}
	endedRun.files = map[string]string{"plot.png": "picture"}
	endedRun.end(batch.Result{Stdout: []byte("out"), ExitCode: 3})
	if !s.Orphans() {
		t.Error("no run is to be ended, want one")
	}
	if err := s.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	if s.Orphans() {
		t.Error("a run is still to be ended")
	}
	for _, want := range []struct {
		j     *Follower
		state State
		end   batch.End
	}{{ended, Ended, ""}, {goes, Running, ""}, {left, Ended, batch.Cancelled}, {followed, Queued, ""}} {
		r, err := s.Get(want.j.ID())
		if err != nil || r.State != want.state || r.Result != nil && r.Result.End != want.end {
			t.Errorf("got %+v, %v; want %s %s", r, err, want.state, want.end)
		}
	}
	if r, _ := s.Get(ended.ID()); !r.Fetched || r.Result.ExitCode != 3 || endedRun.destroyed != 1 || text(t, s, ended.ID(), false) != "out" {
		t.Errorf("the run that had ended: %+v, removed %d times", r, endedRun.destroyed)
	}
	select {
	case <-leftRun.done:
	default:
		t.Error("the run of a killed program was not cancelled")
	}
	select {
	case <-followedRun.done:
		t.Error("a run that a program follows was ended")
	default:
	}
}
