package runpod

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/batch/runpod/runpodtest"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/store"
)

const endpoint = "ep1"

// fixture is an engine and its RunPod, without a network and with a clock of
// its own.
type fixture struct {
	t      *testing.T
	fake   *runpodtest.Server
	engine *Service
	state  store.Dir
	ctx    context.Context
	stop   context.CancelFunc
	log    *lockedWriter
}

// bubble runs a test in a bubble of time.
func bubble(t *testing.T, opts runpodtest.Options, with func(*Options), test func(*fixture)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		opts.Endpoints = append(opts.Endpoints, endpoint)
		f := &fixture{t: t, fake: runpodtest.New(opts), state: store.At(dir), log: &lockedWriter{}}
		f.ctx, f.stop = context.WithCancel(t.Context())
		f.engine = f.backend(with)
		test(f)
		f.stop()
		if err := f.engine.Close(); err != nil {
			t.Error(err)
		}
		if log := f.log.text(); strings.Contains(log, runpodtest.Key) {
			t.Errorf("the key is in the log: %s", log)
		}
		synctest.Wait()
	})
}

func (f *fixture) backend(with func(*Options)) *Service {
	f.t.Helper()
	o := Options{
		Key:      func(context.Context) (string, error) { return runpodtest.Key, nil },
		Endpoint: endpoint, State: f.state, Transport: f.fake.Transport(),
		Log: slog.New(slog.NewTextHandler(f.log, nil)),
	}
	if with != nil {
		with(&o)
	}
	b, err := New(o)
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

type lockedWriter struct {
	mu sync.Mutex
	w  strings.Builder
}

func (l *lockedWriter) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.String()
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// speaker is a worker that knows our form. What the code does is what play
// says; executions are counted by run.
type speaker struct {
	report *job.Report
	play   func(ctx context.Context, in *job.Input, emit func(job.Chunk)) *job.Output

	mu  sync.Mutex
	ran map[string]int
}

func strong() *job.Report {
	r := &job.Report{Engine: "gvisor", Isolation: "kernel", Runtime: "3.12.1", Streams: true, Internet: true, Limits: map[string]job.LimitReport{}}
	for _, res := range []string{"memory", "processes", "disk", "open-files", "cpu"} {
		r.Limits[res] = job.LimitReport{Enforcement: "hard", By: "test"}
	}
	return r
}

func echo(_ context.Context, in *job.Input, _ func(job.Chunk)) *job.Output {
	return &job.Output{Stdout: "ran " + in.Program() + "\n"}
}

// work starts a worker of that name.
func (f *fixture) work(name string, s *speaker) {
	if s.play == nil {
		s.play = echo
	}
	w := &runpodtest.Worker{Server: f.fake, Endpoint: endpoint, ID: name, Handle: func(ctx context.Context, j runpodtest.Job, emit func(any)) (any, error) {
		var in job.Input
		if err := json.Unmarshal(j.Input, &in); err != nil {
			return nil, err
		}
		req := in.Sallyport
		if req == nil {
			return nil, errors.New("not one of ours")
		}
		answer := &job.Answer{Version: job.Version, Worker: "test 1", Run: req.Run, Report: s.report}
		if req.Probe == 1 {
			return &job.Output{Sallyport: answer}, nil
		}
		s.mu.Lock()
		if s.ran == nil {
			s.ran = map[string]int{}
		}
		s.ran[req.Run]++
		s.mu.Unlock()
		out := s.play(ctx, &in, func(c job.Chunk) { emit(c) })
		if out.Sallyport != nil {
			a := *out.Sallyport
			a.Version, a.Worker, a.Run, a.Report = answer.Version, answer.Worker, answer.Run, answer.Report
			answer = &a
		}
		out.Sallyport = answer
		return out, nil
	}}
	go w.Run(f.ctx)
}

func spec(code string) *batch.Job {
	return &batch.Job{ID: "run-1", Code: code,
		Timeout: 10 * time.Minute, Queue: 5 * time.Minute, MinIsolation: sandbox.ContainerIsolation,
		Require: map[sandbox.Resource]sandbox.Enforcement{sandbox.Memory: sandbox.Hard},
	}
}

func (f *fixture) start(s *batch.Job) *run {
	f.t.Helper()
	r, err := f.engine.Submit(f.ctx, s)
	if err != nil {
		f.t.Fatalf("start: %v", err)
	}
	return r.(*run)
}

func (f *fixture) result(r batch.Run) batch.Result {
	f.t.Helper()
	res, err := r.Result(f.ctx)
	if err != nil {
		f.t.Fatalf("result: %v", err)
	}
	return res
}

// codeJobs are the jobs that had code.
func (f *fixture) codeJobs() (list []runpodtest.JobInfo) {
	for _, j := range f.fake.Jobs(endpoint) {
		var in job.Input
		if json.Unmarshal(j.Input, &in) == nil && in.Program() != "" {
			list = append(list, j)
		}
	}
	return list
}

func wantText(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s lacks %q: %s", what, p, text)
		}
	}
	if strings.Contains(text, runpodtest.Key) {
		t.Errorf("%s has the key: %s", what, text)
	}
}

func fetched(t *testing.T, r batch.Run) map[string]string {
	t.Helper()
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	list, err := r.Fetch(t.Context(), dir)
	if err != nil {
		t.Fatalf("fetch: %v", err)
	}
	files := map[string]string{}
	for _, file := range list {
		data, err := dir.ReadFile(file.Path)
		if err != nil || int64(len(data)) != file.Size {
			t.Errorf("%s: %d bytes, %v", file.Path, len(data), err)
		}
		files[file.Path] = string(data)
	}
	return files
}

// roundTripper is a function as a http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var dialError = net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
