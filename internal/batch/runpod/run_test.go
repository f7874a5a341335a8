package runpod

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/batch/runpod/runpodtest"
	"github.com/sallyport/sallyport/internal/sandbox"
)

func TestARun(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong(), play: func(_ context.Context, in *job.Input, emit func(job.Chunk)) *job.Output {
			if in.Code != "" {
				t.Error("the code stands where any worker would run it")
			}
			req := in.Sallyport
			if req.TimeoutMs != 600_000 || req.MinIsolation != "container" || req.Require["memory"] != "hard" || req.Args[0] != "-v" ||
				string(req.Files[0].Data) != "abc" || req.Limits.MemoryBytes != 1<<30 || req.Internet {
				t.Errorf("request: %+v", req)
			}
			emit(job.Chunk{Started: &job.Started{Attempt: "a1", Worker: "w1"}})
			emit(job.Chunk{Stdout: "one\n"})
			time.Sleep(5 * time.Second)
			emit(job.Chunk{Stdout: "two\n", At: 4})
			time.Sleep(5 * time.Second)
			return &job.Output{Stdout: "one\ntwo\nthree\n", Stderr: "warn\n", ReturnCode: 3, Sallyport: &job.Answer{
				Files:     []job.File{{Path: "plot.png", Data: []byte("png")}, {Path: "../x", Data: []byte("no")}, {Path: "d/e.csv", Data: []byte("1,2")}},
				Truncated: &job.Truncated{Stdout: 7}, RanMs: 9500, Notes: []string{"a note\x1b[31m"}, LeftOut: []job.Omitted{{Path: "big", Size: 9 << 20}},
				Usage: &job.Usage{CPUSeconds: 2.5, GPUModel: "NVIDIA L4", GPUs: 1, GPUJoules: 120, Region: "EU-RO-1", PeakBytes: 1 << 20},
			}}
		}})
		s := spec("print(1)")
		s.Args, s.Files, s.Limits.MemoryBytes = []string{"-v"}, []sandbox.File{{Path: "in.txt", Data: []byte("abc")}}, 1<<30
		r := f.start(s)
		var states []string
		var stdout strings.Builder
		r.Observe(func(p batch.Progress) {
			states = append(states, p.State)
			stdout.Write(p.Stdout)
		})
		res := f.result(r)
		if string(res.Stdout) != "one\ntwo\nthree\n" || string(res.Stderr) != "warn\n" || res.ExitCode != 3 || res.End != batch.Exited {
			t.Errorf("result: %+v", res)
		}
		if stdout.String() != "one\ntwo\n" || !slices.Contains(states, "running") {
			t.Errorf("observed %q, %q", stdout.String(), states)
		}
		if res.Ran != 9500*time.Millisecond || res.Truncated.Stdout != 7 || res.Usage.CPU != 2500*time.Millisecond || res.Usage.Region != "EU-RO-1" {
			t.Errorf("result: %+v, usage %+v", res, res.Usage)
		}
		notes := strings.Join(res.Notes, "\n")
		wantText(t, "the notes", notes, "endpoint ep1, worker w1, engine gvisor (isolation: kernel)", "a note", `left out for its name: "../x"`, "big (9437184 bytes) was too large")
		if strings.Contains(notes, "\x1b") {
			t.Errorf("a control character in %q", notes)
		}
		if files := fetched(t, r); !maps.Equal(files, map[string]string{"plot.png": "png", "d/e.csv": "1,2"}) {
			t.Errorf("files: %v", files)
		}
		jobs := f.codeJobs()
		if len(jobs) != 1 || jobs[0].Timeout != 10*time.Minute+margin || jobs[0].TTL != 45*time.Minute+margin || jobs[0].Sync {
			t.Errorf("jobs: %+v", jobs)
		}
		for _, e := range f.fake.Journal() {
			if e.Op != "job-take" && strings.Contains(e.Path, "EU-RO") || strings.Contains(string(e.Body), runpodtest.Key) || strings.Contains(e.Query, runpodtest.Key) {
				t.Errorf("the key is in a request besides its header: %+v", e)
			}
		}
	})
}

func TestShortRunsAreOneRequest(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong()})
		s := spec("1")
		s.Timeout = 10 * time.Second
		f.result(f.start(s))
		if f.fake.Count("runsync") != 2 || f.fake.Count("run")+f.fake.Count("status")+f.fake.Count("stream") != 0 {
			t.Errorf("requests: %d runsync, %d run, %d status, %d stream", f.fake.Count("runsync"), f.fake.Count("run"), f.fake.Count("status"), f.fake.Count("stream"))
		}
		// What the worker says is known by now, also to the next program.
		s.ID = "run-2"
		r, err := f.backend(nil).Submit(f.ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		f.result(r)
		if f.fake.Count("runsync") != 3 {
			t.Errorf("%d requests: the worker was asked again", f.fake.Count("runsync"))
		}
	})
}

// TestWhatIsRefusedIsNotSent: no code leaves for a worker that does not say
// what it enforces, or that does not enforce enough.
func TestWhatIsRefusedIsNotSent(t *testing.T) {
	plain := func(f *fixture) {
		w := &runpodtest.Worker{Server: f.fake, Endpoint: endpoint, ID: "p1", Handle: runpodtest.Seed(func(code string) (string, string, int) { return "ran " + code, "", 0 })}
		go w.Run(f.ctx)
	}
	speaking := func(change func(*job.Report)) func(f *fixture) {
		return func(f *fixture) {
			r := strong()
			change(r)
			f.work("w1", &speaker{report: r})
		}
	}
	accept := func(o *Options) { o.AcceptUnknown = true }
	for _, c := range []struct {
		name   string
		worker func(*fixture)
		with   func(*Options)
		change func(*batch.Job)
		kind   error
		want   string
	}{
		{"a plain worker", plain, nil, nil, sandbox.ErrUnavailable, "runpod.acceptUnknownWorker"},
		{"files for a plain worker", plain, accept, func(s *batch.Job) { s.Files = []sandbox.File{{Path: "a"}} }, sandbox.ErrUnsupported, "code alone"},
		{"weak isolation", speaking(func(r *job.Report) { r.Isolation = "platform" }), accept, nil, sandbox.ErrUnavailable, "isolation container (it has platform)"},
		{"an isolation nobody knows", speaking(func(r *job.Report) { r.Isolation = "superb" }), nil, nil, sandbox.ErrUnavailable, "it has none"},
		{"a soft limit", speaking(func(r *job.Report) { r.Limits["memory"] = job.LimitReport{Enforcement: "soft"} }), nil, nil, sandbox.ErrUnavailable, "hard limit on memory (it has soft)"},
		{"a network", speaking(func(r *job.Report) { r.Internet = false }), nil, func(s *batch.Job) { s.Internet = true }, sandbox.ErrUnsupported, "no network"},
		{"a GPU", speaking(func(*job.Report) {}), nil, func(s *batch.Job) { s.Accelerator = "H200" }, sandbox.ErrUnsupported, "deploy runpod --gpu"},
		{"data sets", speaking(func(*job.Report) {}), nil, func(s *batch.Job) { s.Datasets = []string{"x"} }, sandbox.ErrUnsupported, "no data sets"},
		{"no code", speaking(func(*job.Report) {}), nil, func(s *batch.Job) { s.Code = "" }, sandbox.ErrInvalidSpec, "no code"},
		{"eight days", speaking(func(*job.Report) {}), nil, func(s *batch.Job) { s.Timeout = 192 * time.Hour }, sandbox.ErrInvalidSpec, "7 days"},
		{"too large", speaking(func(*job.Report) {}), nil, func(s *batch.Job) { s.Files = []sandbox.File{{Path: "a", Data: make([]byte, 16<<20)}} }, sandbox.ErrInvalidSpec, "RunPod takes 20 MB"},
		{"no endpoint", plain, func(o *Options) { o.Endpoint = "" }, nil, sandbox.ErrUnavailable, "RUNPOD_ENDPOINT_ID"},
		{"no key", plain, func(o *Options) { o.Key = func(context.Context) (string, error) { return " ", nil } }, nil, sandbox.ErrUnavailable, "RUNPOD_API_KEY"},
		{"a wrong key", plain, func(o *Options) { o.Key = func(context.Context) (string, error) { return "rpa_WRONG", nil } }, nil, sandbox.ErrUnavailable, "refused the API key"},
		{"a wrong endpoint", plain, func(o *Options) { o.Endpoint = "nowhere" }, nil, sandbox.ErrUnavailable, "no endpoint nowhere"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, runpodtest.Options{}, c.with, func(f *fixture) {
				c.worker(f)
				s := spec("secret()")
				if c.change != nil {
					c.change(s)
				}
				_, err := f.engine.Submit(f.ctx, s)
				if !errors.Is(err, c.kind) {
					t.Fatalf("%v", err)
				}
				wantText(t, "the error", err.Error(), c.want)
				for _, e := range f.fake.Journal() {
					if strings.Contains(string(e.Body), "secret()") {
						t.Errorf("the code was sent: %s %s", e.Method, e.Path)
					}
				}
				if strings.Contains(err.Error(), "rpa_WRONG") {
					t.Error("the error shows the key")
				}
			})
		})
	}
}

func TestAPlainWorkerThatIsAccepted(t *testing.T) {
	bubble(t, runpodtest.Options{}, func(o *Options) { o.AcceptUnknown = true }, func(f *fixture) {
		w := &runpodtest.Worker{Server: f.fake, Endpoint: endpoint, ID: "p1", Handle: runpodtest.Seed(func(code string) (string, string, int) { return "ran " + code, "w", 2 })}
		go w.Run(f.ctx)
		r := f.start(spec("x"))
		res := f.result(r)
		if string(res.Stdout) != "ran x" || string(res.Stderr) != "w" || res.ExitCode != 2 || res.End != batch.Exited {
			t.Errorf("%+v", res)
		}
		wantText(t, "the notes", strings.Join(res.Notes, "\n"), "does not say how it isolates code")
		if j := f.codeJobs(); j[0].Timeout != 10*time.Minute {
			t.Errorf("executionTimeout %v", j[0].Timeout)
		}
		if files := fetched(t, r); len(files) != 0 {
			t.Errorf("files: %v", files)
		}
	})
}

// TestAWorkerThatChanges: code for a worker that said what it enforces does
// nothing at one that does not know that form, and what ran with less than is
// demanded is no good run.
func TestAWorkerThatChanges(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		s := &speaker{report: strong()}
		f.work("w1", s)
		if _, err := f.engine.Probe(f.ctx); err != nil {
			t.Fatal(err)
		}
		f.fake.Kill(endpoint, "w1")
		plain := 0
		p := &runpodtest.Worker{Server: f.fake, Endpoint: endpoint, ID: "p1", Handle: runpodtest.Seed(func(string) (string, string, int) { plain++; return "ran", "", 0 })}
		go p.Run(f.ctx)
		res := f.result(f.start(spec("x")))
		if res.End != batch.Failed || plain != 0 {
			t.Errorf("a plain worker ran it %d times: %+v", plain, res)
		}
		f.fake.Kill(endpoint, "p1")
		weak := strong()
		weak.Isolation = "platform"
		f.work("w2", &speaker{report: weak})
		sp := spec("y")
		sp.ID = "run-2"
		res = f.result(f.start(sp))
		if res.End != batch.Failed || !strings.Contains(res.Error, "less than the policy demands: isolation container (it has platform)") || string(res.Stdout) != "ran y\n" {
			t.Errorf("weaker than promised: %+v", res)
		}
		sp.ID = "run-3"
		if _, err := f.engine.Submit(f.ctx, sp); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("the next start: %v", err)
		}
	})
}

func TestEnds(t *testing.T) {
	answer := func(a job.Answer) func(context.Context, *job.Input, func(job.Chunk)) *job.Output {
		return func(context.Context, *job.Input, func(job.Chunk)) *job.Output {
			return &job.Output{Stdout: "part", ReturnCode: -9, Sallyport: &a}
		}
	}
	for _, c := range []struct {
		name string
		play func(context.Context, *job.Input, func(job.Chunk)) *job.Output
		end  batch.End
		want string
	}{
		{"the worker's limit", answer(job.Answer{End: job.EndTimedOut}), batch.TimedOut, "longer than 10m"},
		{"refused", answer(job.Answer{End: job.EndRefused, Error: "no gVisor here"}), batch.Failed, "refused to run the code: no gVisor here"},
		{"a failure", answer(job.Answer{End: job.EndFailed, Error: "out of disk"}), batch.Failed, "out of disk"},
		{"cancelled there", answer(job.Answer{End: job.EndCancelled}), batch.Cancelled, "cancelled at the worker"},
		{"RunPod's limit", func(ctx context.Context, _ *job.Input, _ func(job.Chunk)) *job.Output {
			<-ctx.Done()
			return &job.Output{}
		}, batch.TimedOut, "RunPod ended it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
				f.work("w1", &speaker{report: strong(), play: c.play})
				res := f.result(f.start(spec("x")))
				if res.End != c.end || res.ExitCode != -1 {
					t.Errorf("%+v", res)
				}
				wantText(t, "the error", res.Error, c.want)
			})
		})
	}
}

func TestFailedJobs(t *testing.T) {
	for _, c := range []struct {
		output any
		err    string
		end    batch.End
		want   string
	}{
		{nil, `{"error_type": "<class 'ValueError'>", "error_message": "boom\nbang", "hostname": "h"}`, batch.Failed, "ValueError: boom bang"},
		{nil, "Execution timed out", batch.TimedOut, "its own limit"},
		{"just a text", "", batch.Failed, `answered "just a text"`},
		{map[string]any{"status": "ok"}, "", batch.Failed, `{"status":"ok"}`},
		{map[string]any{"stdout": 5, "return_code": 0}, "", batch.Failed, "cannot be read"},
		{nil, "", batch.Failed, "answered nothing"},
		{[]any{map[string]any{"stdout": "a"}, map[string]any{"stdout": "ab", "stderr": "", "return_code": "0"}}, "", batch.Exited, ""},
	} {
		bubble(t, runpodtest.Options{}, func(o *Options) { o.AcceptUnknown = true }, func(f *fixture) {
			w := &runpodtest.Worker{Server: f.fake, Endpoint: endpoint, ID: "p1", Handle: func(context.Context, runpodtest.Job, func(any)) (any, error) {
				if c.err != "" {
					return nil, errors.New(c.err)
				}
				return c.output, nil
			}}
			go w.Run(f.ctx)
			res := f.result(f.start(spec("x")))
			if res.End != c.end {
				t.Errorf("%v %q: %+v", c.output, c.err, res)
			}
			wantText(t, "the error", res.Error, c.want)
		})
	}
}

func TestNobodyComes(t *testing.T) {
	worker := func(status string) runpodtest.WorkerRow {
		return runpodtest.WorkerRow{ID: "x-" + status, Status: status}
	}
	for _, c := range []struct {
		name  string
		fleet []runpodtest.WorkerRow
		end   batch.End
		after time.Duration
		want  string
	}{
		{"no workers", nil, batch.Expired, 5 * time.Minute, "it has no workers"},
		{"throttled", []runpodtest.WorkerRow{worker("THROTTLED")}, batch.Expired, 5 * time.Minute, "no free machine"},
		{"a crash loop", []runpodtest.WorkerRow{worker("UNHEALTHY")}, batch.Failed, crashLoop, "they start and crash"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
				s := &speaker{report: strong()}
				f.work("w1", s)
				if _, err := f.engine.Probe(f.ctx); err != nil {
					t.Fatal(err)
				}
				f.fake.Kill(endpoint, "w1")
				f.fake.SetFleet(endpoint, c.fleet...)
				r := f.start(spec("x"))
				var states []string
				r.Observe(func(p batch.Progress) { states = append(states, p.State) })
				began := time.Now()
				res := f.result(r)
				if took := time.Since(began); res.End != c.end || took < c.after || took > c.after+30*time.Second {
					t.Errorf("after %v: %+v", took, res)
				}
				wantText(t, "the error", res.Error, c.want)
				if f.codeJobs()[0].Status != runpodtest.Cancelled {
					t.Errorf("the job is %s", f.codeJobs()[0].Status)
				}
				if len(states) == 0 || !strings.HasPrefix(states[0], "queued; ") {
					t.Errorf("states: %q", states)
				}
			})
		})
	}
	t.Run("not even for the question", func(t *testing.T) {
		bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
			_, err := f.engine.Submit(f.ctx, spec("x"))
			if !errors.Is(err, sandbox.ErrStart) || len(f.codeJobs()) != 0 {
				t.Fatalf("%v", err)
			}
			wantText(t, "the error", err.Error(), "no code was sent", "no workers")
			for _, j := range f.fake.Jobs(endpoint) {
				if j.Status != runpodtest.Cancelled {
					t.Errorf("the question is left %s", j.Status)
				}
			}
		})
	})
}

// TestLargeFiles: what /run does not take goes by /runsync.
func TestLargeFiles(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		for _, c := range []struct {
			bytes   int
			timeout time.Duration
			op      string
		}{{1000, time.Minute, "run"}, {1000, shortRun, "runsync"}, {8_000_000, time.Minute, "runsync"}} {
			s := spec("x")
			s.Files = []sandbox.File{{Path: "a", Data: make([]byte, c.bytes)}}
			r := &run{b: f.engine, id: s.ID, spec: runSpec{Endpoint: endpoint, Timeout: c.timeout, Queue: time.Hour, OutputBytes: 1 << 20}}
			op, body, err := f.engine.body(r, s)
			if err != nil || op != c.op || r.spec.Sync != (op == "runsync") || len(body) < c.bytes {
				t.Errorf("%+v: %s, %d bytes, %v", c, op, len(body), err)
			}
		}
	})
}

// TestProbe: what doctor and the policy read.
func TestProbe(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		began := time.Now()
		report, err := f.engine.Probe(f.ctx)
		if err != nil || !report.Usable || !report.Remote || time.Since(began) > time.Minute {
			t.Fatalf("without workers, after %v: %+v, %v", time.Since(began), report, err)
		}
		wantText(t, "the finding", report.Findings[1].Title+report.Findings[1].Detail, "the first run waits", "no worker of endpoint ep1 took a job without code within 20s")
		f.work("w1", &speaker{report: strong()})
		report, err = f.engine.Probe(f.ctx)
		if err != nil || !report.Usable || report.Isolation != sandbox.KernelIsolation || report.Limits[sandbox.Memory].Enforcement != sandbox.Hard || report.Runtime != "3.12.1" {
			t.Errorf("%+v, %v", report, err)
		}
		short, cancel := context.WithTimeout(f.ctx, time.Second)
		defer cancel()
		f.fake.Inject(runpodtest.Fault{Op: "health", Slow: time.Minute})
		if _, err := f.engine.Probe(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("bounded by its context: %v", err)
		}
	})
}

func TestColdStart(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		go func() {
			time.Sleep(90 * time.Second)
			f.work("w1", &speaker{report: strong(), play: func(_ context.Context, in *job.Input, emit func(job.Chunk)) *job.Output {
				time.Sleep(4 * time.Second)
				return echo(context.TODO(), in, nil)
			}})
		}()
		f.fake.SetFleet(endpoint, runpodtest.WorkerRow{ID: "w0", Status: "INITIALIZING"})
		res := f.result(f.start(spec("x")))
		if res.Ran != 4*time.Second {
			t.Errorf("ran %v", res.Ran)
		}
	})
}

func TestCancel(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong(), play: func(ctx context.Context, _ *job.Input, _ func(job.Chunk)) *job.Output {
			<-ctx.Done()
			return &job.Output{}
		}})
		r := f.start(spec("x"))
		time.Sleep(3 * time.Second)
		f.fake.Inject(runpodtest.Fault{Op: "cancel", Times: 2, Status: 500})
		if err := r.Cancel(f.ctx); err != nil {
			t.Fatal(err)
		}
		if res := f.result(r); res.End != batch.Cancelled {
			t.Errorf("%+v", res)
		}
		if err := r.Destroy(f.ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestAttach: another program finds the run, its output and its files from
// the handle alone, which has no secret.
func TestAttach(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong(), play: func(_ context.Context, in *job.Input, _ func(job.Chunk)) *job.Output {
			time.Sleep(time.Minute)
			return &job.Output{Stdout: "late", Sallyport: &job.Answer{Files: []job.File{{Path: "f", Data: []byte("1")}}}}
		}})
		h := f.start(spec("x")).Handle()
		data, err := json.Marshal(h)
		if err != nil || strings.Contains(string(data), runpodtest.Key) {
			t.Fatalf("%s, %v", data, err)
		}
		time.Sleep(10 * time.Minute)
		other := f.backend(nil)
		r, err := other.Attach(f.ctx, h)
		if err != nil {
			t.Fatal(err)
		}
		if res := f.result(r); string(res.Stdout) != "late" {
			t.Errorf("%+v", res)
		}
		if files := fetched(t, r); files["f"] != "1" {
			t.Errorf("files: %v", files)
		}
		time.Sleep(31 * time.Minute)
		r, err = other.Attach(f.ctx, h)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Result(f.ctx)
		if !errors.Is(err, sandbox.ErrGone) {
			t.Fatalf("after its retention: %v", err)
		}
		wantText(t, "the error", err.Error(), "keeps results for 30 minutes")
	})
}

func TestSweep(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong()})
		if _, err := f.engine.Probe(f.ctx); err != nil {
			t.Fatal(err)
		}
		f.fake.Kill(endpoint, "w1")
		for _, id := range []string{"run-kept", "run-stray"} {
			s := spec("x")
			s.ID = id
			s.Queue = 5 * time.Hour
			f.start(s)
		}
		s := spec("x")
		s.ID = "run-of-another"
		if _, err := f.backend(func(o *Options) { o.State = o.State.Sub("other"); o.AcceptUnknown = true }).Submit(f.ctx, s); err == nil {
			t.Fatal("a worker answered that is dead")
		}
		time.Sleep(2 * time.Hour)
		swept, err := f.engine.Sweep(f.ctx, time.Hour, func(id string) bool { return id == "run-kept" })
		if err != nil || !slices.Equal(swept, []string{"run-stray"}) {
			t.Errorf("swept %q, %v", swept, err)
		}
		var left []string
		for _, j := range f.codeJobs() {
			if j.Status == runpodtest.InQueue {
				left = append(left, j.ID)
			}
		}
		if len(left) != 1 {
			t.Errorf("%d jobs are left", len(left))
		}
	})
	bubble(t, runpodtest.Options{NoRequests: true}, nil, func(f *fixture) {
		if swept, err := f.engine.Sweep(f.ctx, 0, func(string) bool { return false }); err != nil || len(swept) != 0 {
			t.Errorf("where nothing is listed: %q, %v", swept, err)
		}
	})
}
