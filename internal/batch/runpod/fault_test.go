package runpod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/batch/runpod/runpodtest"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/store"
)

// TestAnswerLost: the job is found by our own ID, and never sent again.
func TestAnswerLost(t *testing.T) {
	for name, fault := range map[string]runpodtest.Fault{
		"after": {After: true}, "cut": {Cut: true}, "garbage": {Garbage: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
				s := &speaker{report: strong()}
				f.work("w1", s)
				if _, err := f.engine.Probe(f.ctx); err != nil {
					t.Fatal(err)
				}
				fault.Op, fault.Times = "run", 1
				f.fake.Inject(fault)
				res := f.result(f.start(spec("x")))
				if res.End != batch.Exited || string(res.Stdout) != "ran x\n" || s.ran["run-1"] != 1 || f.fake.Count("run") != 1 {
					t.Errorf("%d submissions, ran %d times: %+v", f.fake.Count("run"), s.ran["run-1"], res)
				}
			})
		})
	}
}

// TestAnswerLostForGood: where RunPod does not list jobs, it is said that
// nothing is known, and a later look can still find it.
func TestAnswerLostForGood(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		s := &speaker{report: strong()}
		f.work("w1", s)
		if _, err := f.engine.Probe(f.ctx); err != nil {
			t.Fatal(err)
		}
		f.fake.Inject(runpodtest.Fault{Op: "run", Times: 1, After: true})
		undo := f.fake.Inject(runpodtest.Fault{Op: "requests", Status: 404})
		r := f.start(spec("x"))
		h := r.Handle()
		if err := r.Cancel(f.ctx); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("cancel: %v", err)
		}
		res := f.result(r)
		if res.End != batch.Lost || f.fake.Count("run") != 1 {
			t.Errorf("%d submissions: %+v", f.fake.Count("run"), res)
		}
		wantText(t, "the error", res.Error, "unknown whether RunPod has the run", "not sent again", "run-1", "ends by itself before")
		undo()
		again, err := f.backend(nil).Attach(f.ctx, h)
		if err != nil {
			t.Fatal(err)
		}
		if res := f.result(again); string(res.Stdout) != "ran x\n" {
			t.Errorf("found later: %+v", res)
		}
	})
}

// TestCrashWhileSubmitting: only the ID is known.
func TestCrashWhileSubmitting(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong()})
		f.start(spec("x"))
		r, err := f.engine.Attach(f.ctx, sandbox.Handle{Backend: Name, ID: "run-1"})
		if err != nil {
			t.Fatal(err)
		}
		if res := f.result(r); string(res.Stdout) != "ran x\n" {
			t.Errorf("%+v", res)
		}
		_, err = f.engine.Attach(f.ctx, sandbox.Handle{Backend: Name, ID: "run-never"})
		if !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("one that never was: %v", err)
		}
	})
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		for _, h := range []sandbox.Handle{
			{Backend: "gvisor", ID: "x"}, {Backend: Name, Version: 1, ID: "x", Data: json.RawMessage(`{"endpoint":"../x","job":"a"}`)},
			{Backend: Name, Version: 1, ID: "x", Data: json.RawMessage(`{"endpoint":"ep1","job":"../../purge"}`)},
		} {
			if _, err := f.engine.Attach(f.ctx, h); !errors.Is(err, sandbox.ErrGone) {
				t.Errorf("%s: %v", h.Data, err)
			}
		}
		if _, err := f.engine.Attach(f.ctx, sandbox.Handle{Backend: Name, Version: 99, ID: "x", Data: json.RawMessage(`{}`)}); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("a handle of the future: %v", err)
		}
	})
}

// TestWhatDidNotArriveIsSentAgain: that is certain of a 429 and of a
// connection that never was.
func TestWhatDidNotArriveIsSentAgain(t *testing.T) {
	for name, prepare := range map[string]func(*fixture){
		"429": func(f *fixture) {
			f.fake.Inject(runpodtest.Fault{Op: "run", Times: 3, Status: 429, Retry: 7 * time.Second})
		},
		"no connection": func(f *fixture) {
			calls, through := 0, f.fake.Transport()
			f.engine.http.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/run") {
					if calls++; calls <= 2 {
						return nil, &dialError
					}
				}
				return through.RoundTrip(r)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
				s := &speaker{report: strong()}
				f.work("w1", s)
				if _, err := f.engine.Probe(f.ctx); err != nil {
					t.Fatal(err)
				}
				prepare(f)
				began := time.Now()
				f.result(f.start(spec("x")))
				if s.ran["run-1"] != 1 {
					t.Errorf("ran %d times", s.ran["run-1"])
				}
				if name == "429" && time.Since(began) < 20*time.Second {
					t.Errorf("Retry-After was not kept: %v", time.Since(began))
				}
			})
		})
	}
}

func TestErrorsOfAStart(t *testing.T) {
	for _, c := range []struct {
		status int
		kind   error
		want   string
	}{
		{400, sandbox.ErrInvalidSpec, "refused the job (HTTP 400): injected"},
		{401, sandbox.ErrUnavailable, "refused the API key"},
		{404, sandbox.ErrUnavailable, "no endpoint ep1"},
		{413, sandbox.ErrInvalidSpec, "too large"},
		{429, sandbox.ErrUnavailable, "try again later"},
		{418, sandbox.ErrUnavailable, "HTTP 418"},
	} {
		bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
			f.work("w1", &speaker{report: strong()})
			if _, err := f.engine.Probe(f.ctx); err != nil {
				t.Fatal(err)
			}
			f.fake.Inject(runpodtest.Fault{Op: "run", Status: c.status})
			_, err := f.engine.Submit(f.ctx, spec("x"))
			if !errors.Is(err, c.kind) {
				t.Fatalf("%d: %v", c.status, err)
			}
			wantText(t, "the error", err.Error(), c.want)
		})
	}
}

// TestTroubleWhileARunLasts: what passes is waited for; what does not is said,
// and the run can be found again.
func TestTroubleWhileARunLasts(t *testing.T) {
	slow := func(_ context.Context, in *job.Input, _ func(job.Chunk)) *job.Output {
		time.Sleep(time.Minute)
		return echo(context.TODO(), in, nil)
	}
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong(), play: slow})
		r := f.start(spec("x"))
		for _, fault := range []runpodtest.Fault{{Before: true}, {After: true}, {Cut: true}, {Garbage: true}, {Status: 503, Retry: 3 * time.Second}, {Status: 429}, {Slow: 2 * time.Minute}} {
			for _, op := range []string{"status", "stream"} {
				fault.Op, fault.Times = op, 2
				f.fake.Inject(fault)
			}
		}
		if res := f.result(r); string(res.Stdout) != "ran x\n" {
			t.Errorf("%+v", res)
		}
	})
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong(), play: func(_ context.Context, in *job.Input, _ func(job.Chunk)) *job.Output {
			time.Sleep(50 * time.Minute)
			return echo(context.TODO(), in, nil)
		}})
		long := spec("x")
		long.Timeout = time.Hour
		r := f.start(long)
		for _, c := range []struct {
			fault runpodtest.Fault
			want  string
		}{{runpodtest.Fault{Before: true}, "could not be reached"}, {runpodtest.Fault{Status: 401}, "refused the API key"}, {runpodtest.Fault{Status: 500}, "failed internally"}} {
			c.fault.If = func(r *http.Request) bool { return !strings.Contains(r.URL.Path, "/job-") }
			undo := f.fake.Inject(c.fault)
			_, err := r.Result(f.ctx)
			if err == nil || errors.Is(err, sandbox.ErrGone) {
				t.Fatalf("%+v: %v", c.fault, err)
			}
			wantText(t, "the error", err.Error(), c.want)
			undo()
		}
		if res := f.result(r); string(res.Stdout) != "ran x\n" {
			t.Errorf("%+v", res)
		}
	})
}

// TestRedelivery: RunPod gives a run to another worker, which is reported.
func TestRedelivery(t *testing.T) {
	for _, streams := range []bool{true, false} {
		bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
			report := strong()
			report.Streams = streams
			var n atomic.Int64
			s := &speaker{report: report, play: func(ctx context.Context, in *job.Input, emit func(job.Chunk)) *job.Output {
				attempt := fmt.Sprint("a", n.Add(1))
				if streams {
					emit(job.Chunk{Started: &job.Started{Attempt: attempt}})
					emit(job.Chunk{Stdout: attempt})
				}
				_ = sleep(ctx, 20*time.Second) // the killed one learns of it
				return &job.Output{Stdout: attempt}
			}}
			f.work("w1", s)
			r := f.start(spec("x"))
			var seen strings.Builder
			r.Observe(func(p batch.Progress) { seen.Write(p.Stdout) })
			time.AfterFunc(10*time.Second, func() {
				f.fake.Kill(endpoint, "w1")
				f.work("w2", s)
			})
			res := f.result(r)
			if string(res.Stdout) != "a2" || n.Load() != 2 {
				t.Errorf("ran %d times: %+v", n.Load(), res)
			}
			wantText(t, "the notes", strings.Join(res.Notes, "\n"), "delivered the run 2 times")
			if streams && seen.String() != "a1" {
				t.Errorf("two workers' output was mixed: %q", seen.String())
			}
		})
	}
}

// TestTheKeyStaysHere: a redirect is not followed, and no error shows the key.
func TestTheKeyStaysHere(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a request arrived elsewhere: %v", r.Header)
	}))
	defer elsewhere.Close()
	for name, handler := range map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"echo": func(w http.ResponseWriter, r *http.Request) { http.Error(w, "bad "+r.Header.Get("Authorization"), 400) },
		"echo as JSON": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(400)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": r.Header.Get("Authorization") + "\x1b[2J\n"})
		},
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			for range maxAnswer/(1<<20) + 2 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(handler)
			defer server.Close()
			b, err := New(Options{Key: func(context.Context) (string, error) { return runpodtest.Key, nil }, Endpoint: endpoint, URL: server.URL + "/v2",
				State: store.At(t.TempDir()), Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			report, err := b.Probe(t.Context())
			if err != nil || report.Usable {
				t.Fatalf("%+v, %v", report, err)
			}
			text := report.Findings[0].Title
			if strings.Contains(text, runpodtest.Key) || strings.ContainsAny(text, "\x1b\n") {
				t.Errorf("%q", text)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	for _, o := range []Options{{URL: "http://api.example.com"}, {URL: "https://k@example.com"}, {Endpoint: "a/b"}, {Endpoint: "x y"}} {
		o.Key, o.Log = func(context.Context) (string, error) { return "k", nil }, slog.Default()
		if _, err := New(o); err == nil {
			t.Errorf("%+v", o)
		}
	}
}

// TestAThousandJobs: with connections that break, storms of 429, workers that
// are killed and jobs delivered twice, every run has one outcome, no run was
// submitted twice, and what ran twice RunPod had delivered twice, and says so.
func TestAThousandJobs(t *testing.T) {
	const jobs = 1000
	bubble(t, runpodtest.Options{Seed: 7, Silence: 30 * time.Second}, nil, func(f *fixture) {
		var attempts atomic.Int64
		s := &speaker{report: strong(), play: func(ctx context.Context, in *job.Input, emit func(job.Chunk)) *job.Output {
			n := attempts.Add(1)
			emit(job.Chunk{Started: &job.Started{Attempt: fmt.Sprint(n)}})
			_ = sleep(ctx, time.Duration(1+n%5)*time.Second)
			return echo(context.TODO(), in, nil)
		}}
		const workers = 40
		for i := range workers {
			f.work(fmt.Sprint("w", i), s)
		}
		if _, err := f.engine.Probe(f.ctx); err != nil {
			t.Fatal(err)
		}
		for _, op := range []string{"run", "status", "stream", "cancel", "requests", "job-take", "job-done", "job-stream"} {
			for _, fault := range []runpodtest.Fault{
				{Before: true, Rate: 0.01}, {After: true, Rate: 0.01}, {Cut: true, Rate: 0.005}, {Status: 500, Rate: 0.01}, {Status: 429, Rate: 0.01, Retry: time.Second},
			} {
				fault.Op = op
				f.fake.Inject(fault)
			}
		}
		// What goes wrong at RunPod itself.
		go func() {
			for i := range 20 {
				if sleep(f.ctx, 2*time.Second) != nil {
					return
				}
				undo := f.fake.Inject(runpodtest.Fault{Status: 429, Retry: time.Second, If: func(r *http.Request) bool { return !strings.Contains(r.URL.Path, "/job-") }})
				_ = sleep(f.ctx, 500*time.Millisecond)
				undo()
				f.fake.Kill(endpoint, fmt.Sprint("w", i))
				f.work(fmt.Sprint("v", i), s)
				n := 0
				for _, j := range f.fake.Jobs(endpoint) {
					if j.Status == runpodtest.InProgress && n < 2 {
						f.fake.DeliverTwice(endpoint, j.ID)
						n++
					}
				}
			}
		}()
		type outcome struct {
			res batch.Result
			err error
		}
		outcomes := make([]outcome, jobs)
		var wg sync.WaitGroup
		for i := range jobs {
			wg.Go(func() {
				sp := spec(fmt.Sprint("code ", i))
				sp.ID = fmt.Sprint("run-", i)
				sp.Queue = time.Hour
				r, err := f.engine.Submit(f.ctx, sp)
				if err != nil {
					outcomes[i].err = err
					return
				}
				outcomes[i].res, outcomes[i].err = r.Result(f.ctx)
			})
		}
		wg.Wait()

		submitted, delivered := map[string]int{}, map[string]int{}
		for _, j := range f.fake.Jobs(endpoint) {
			var in job.Input
			if json.Unmarshal(j.Input, &in) == nil && in.Sallyport != nil && in.Sallyport.Run != "" {
				submitted[in.Sallyport.Run]++
				delivered[in.Sallyport.Run] += len(j.Deliveries)
			}
		}
		good, unknown, twice := 0, 0, 0
		for i, o := range outcomes {
			id := fmt.Sprint("run-", i)
			switch {
			case o.err != nil:
				t.Errorf("%s: no outcome: %v", id, o.err)
			case o.res.End == batch.Exited && string(o.res.Stdout) == fmt.Sprintf("ran code %d\n", i):
				good++
			case o.res.End == batch.Lost && submitted[id] == 0 && s.ran[id] == 0:
				unknown++ // broken before it arrived, which nobody here can know
			case o.res.End == batch.TimedOut && s.ran[id] < delivered[id]: // the worker never got it
			case o.res.End == batch.Failed && delivered[id] >= 4 && strings.Contains(o.res.Error, "attempts"):
			default:
				t.Errorf("%s, delivered %d times: %+v", id, delivered[id], o.res)
			}
			if submitted[id] > 1 {
				t.Errorf("%s was submitted %d times", id, submitted[id])
			}
			if s.ran[id] > delivered[id] {
				t.Errorf("%s ran %d times, and was delivered %d times", id, s.ran[id], delivered[id])
			}
			if s.ran[id] > 1 {
				twice++
				if !strings.Contains(strings.Join(o.res.Notes, "\n"), "delivered the run") {
					t.Errorf("%s ran %d times, and nobody says so: %q", id, s.ran[id], o.res.Notes)
				}
			}
		}
		t.Logf("%d good, %d of unknown fate, %d ran more than once; faults: run %d, status %d, stream %d, job-done %d", good, unknown, twice,
			f.fake.Faulted("run"), f.fake.Faulted("status"), f.fake.Faulted("stream"), f.fake.Faulted("job-done"))
		if good < jobs*9/10 || twice == 0 || unknown == 0 || f.fake.Faulted("run") < 20 {
			t.Errorf("the faults did not happen, or too little went well: %d good, %d unknown, %d twice", good, unknown, twice)
		}
	})
}

// TestDoubtfulSubmission: of a submission that may have arrived it is said what
// came instead of an answer.
func TestDoubtfulSubmission(t *testing.T) {
	for want, fault := range map[string]runpodtest.Fault{
		"HTTP 500":                    {Status: 500},
		"HTTP 200: the answer is not": {Garbage: true},
		"the connection to RunPod":    {Before: true},
	} {
		bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
			f.work("w1", &speaker{report: strong()})
			if _, err := f.engine.Probe(f.ctx); err != nil {
				t.Fatal(err)
			}
			fault.Op, fault.Times = "run", 1
			f.fake.Inject(fault)
			f.fake.Inject(runpodtest.Fault{Op: "requests", Status: 404})
			res := f.result(f.start(spec("x")))
			if res.End != batch.Lost || f.fake.Count("run") != 1 || !strings.Contains(res.Error, want) || want[:4] == "HTTP" && strings.Contains(res.Error, "connection") {
				t.Errorf("got %q of %d submissions, want %q", res.Error, f.fake.Count("run"), want)
			}
		})
	}
}

// TestAnswerLostAmongLargeJobs: the list of requests has the inputs of all jobs,
// which are larger together than any answer that is held.
func TestAnswerLostAmongLargeJobs(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong()})
		for range 4 {
			large := spec("large")
			large.Files = []sandbox.File{{Path: "x", Data: make([]byte, 7<<20)}}
			f.result(f.start(large))
		}
		f.fake.Inject(runpodtest.Fault{Op: "run", Times: 1, After: true})
		s := spec("small \" \\u0041 " + strings.Repeat("\\\"\u00e9\n", 500)) // no escape is cut in two
		s.ID = "run-lost"
		if res := f.result(f.start(s)); string(res.Stdout) != "ran "+s.Code+"\n" {
			t.Errorf("got %+v, want the run's result", res)
		}
	})
}

// TestAStreamThatIsTooLarge: what the result has, too, is no failure.
func TestAStreamThatIsTooLarge(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong(), play: func(_ context.Context, _ *job.Input, emit func(job.Chunk)) *job.Output {
			part := strings.Repeat("x", 1<<20)
			for i := range 50 {
				emit(job.Chunk{Stdout: part, At: int64(i) << 20})
			}
			return &job.Output{Stdout: "the result", Sallyport: &job.Answer{Truncated: &job.Truncated{Stdout: 50<<20 - 10}}}
		}})
		res := f.result(f.start(spec("x")))
		if res.End != batch.Exited || string(res.Stdout) != "the result" || res.Truncated.Stdout != 50<<20-10 {
			t.Errorf("got %s %q, %q, %+v; want the result", res.End, res.Error, res.Stdout, res.Truncated)
		}
	})
}

// TestALostProbe: a job without code that RunPod loses is sent again.
func TestALostProbe(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		began := time.Now()
		f.fake.Inject(runpodtest.Fault{Op: "status", Status: 404, If: func(*http.Request) bool { return time.Since(began) < 40*time.Second }})
		go func() {
			time.Sleep(45 * time.Second)
			f.work("w1", &speaker{report: strong()})
		}()
		if res := f.result(f.start(spec("x"))); string(res.Stdout) != "ran x\n" || f.fake.Count("runsync") < 2 || f.fake.Count("run") != 1 {
			t.Errorf("got %+v after %d questions and %d submissions; want more than one question, and the run", res, f.fake.Count("runsync"), f.fake.Count("run"))
		}
	})
}
