package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/batch/runpod/runpodtest"
	"github.com/sallyport/sallyport/internal/store"
)

const token = "worker-token"

// bench is a worker, its RunPod and a clock of their own.
type bench struct {
	t      *testing.T
	fake   *runpodtest.Server
	log    *lockedBuffer
	dir    store.Dir
	cancel context.CancelFunc
	done   chan error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type doer func(ctx context.Context, j Job, emit func(job.Chunk)) Result

// ran is the result of a job that printed its ID.
func ran(j Job) Result {
	return Result{Output: &job.Output{Stdout: j.ID + "\n", Sallyport: &job.Answer{Version: 1}}}
}

func simple(_ context.Context, j Job, _ func(job.Chunk)) Result { return ran(j) }

// bubble runs a test with a worker in a bubble of time.
func bubble(t *testing.T, do doer, with func(*Options), test func(*bench)) {
	t.Helper()
	dir := store.At(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, fake: runpodtest.New(runpodtest.Options{Key: "rp-key", WorkerKey: token, Endpoints: []string{"ep"}, TakeWait: 20 * time.Second}), log: &lockedBuffer{}, dir: dir}
		b.start(do, with)
		test(b)
		b.stop()
		if strings.Contains(b.log.String(), token) {
			t.Errorf("the token is in the log:\n%s", b.log)
		}
	})
}

// environment reads what RunPod gives a worker.
func environment(list []string) Place {
	m := map[string]string{}
	for _, kv := range list {
		k, v, _ := strings.Cut(kv, "=")
		m[k] = v
	}
	return Place{GetJob: m["RUNPOD_WEBHOOK_GET_JOB"], PostOutput: m["RUNPOD_WEBHOOK_POST_OUTPUT"], PostStream: m["RUNPOD_WEBHOOK_POST_STREAM"],
		Ping: m["RUNPOD_WEBHOOK_PING"], Token: m["RUNPOD_AI_API_KEY"], WorkerID: m["RUNPOD_POD_ID"], PingEvery: 10 * time.Second}
}

func (b *bench) start(do doer, with func(*Options)) {
	o := Options{
		Place: environment(b.fake.WorkerEnv("http://runpod.test", "ep", "w1")), Do: do,
		Logger: slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		HTTP:   &http.Client{Transport: b.fake.Transport()}, Version: "1.0",
		Drain: 30 * time.Second, KeepResults: 10 * time.Minute, Outbox: b.dir,
	}
	if with != nil {
		with(&o)
	}
	w, err := New(o)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	b.cancel, b.done = cancel, make(chan error, 1)
	go func() { b.done <- w.Run(ctx) }()
}

func (b *bench) stop() {
	b.cancel()
	if err := <-b.done; err != nil {
		b.t.Error(err)
	}
}

// api calls the job API.
func (b *bench) api(method, op, body string) map[string]any {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, "http://runpod.test/v2/ep/"+op, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer rp-key")
	req.Header.Set("Content-Type", "application/json")
	res, err := b.fake.Transport().RoundTrip(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	var out map[string]any
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil && err != io.EOF {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) submit() string {
	b.t.Helper()
	id, _ := b.api("POST", "run", `{"input":{"code":"x"}}`)["id"].(string)
	if id == "" {
		b.t.Fatal("no job")
	}
	return id
}

// ends waits for a job's end and returns its state.
func (b *bench) ends(id string, within time.Duration) map[string]any {
	b.t.Helper()
	for began := time.Now(); ; time.Sleep(time.Second) {
		s := b.api("GET", "status/"+id, "")
		switch s["status"] {
		case "IN_QUEUE", "IN_PROGRESS":
			if time.Since(began) > within {
				b.t.Fatalf("after %v: %v\n%s", within, s, b.log)
			}
		default:
			return s
		}
	}
}

func stdout(s map[string]any) string {
	out, _ := s["output"].(map[string]any)
	text, _ := out["stdout"].(string)
	return text
}

// TestOnTheWire compares the requests with those that RunPod's own worker
// makes: internal/worker/testdata/captured.txt.
func TestOnTheWire(t *testing.T) {
	bubble(t, func(_ context.Context, j Job, emit func(job.Chunk)) Result {
		emit(job.Chunk{Started: &job.Started{Attempt: "a", Worker: "w1"}})
		return ran(j)
	}, nil, func(b *bench) {
		id := b.submit()
		b.ends(id, time.Minute)
		b.stop()
		b.start(simple, nil) // bubble stops it again
		seen := map[string]runpodtest.Entry{}
		for _, e := range b.fake.Journal() {
			if _, there := seen[e.Op]; !there {
				seen[e.Op] = e
			}
		}
		for op, want := range map[string]struct{ method, path, query string }{
			"job-take":   {"GET", "/v2/ep/job-take/w1", "gpu=NVIDIA+Test&job_in_progress=0"},
			"job-stop":   {"GET", "/v2/ep/job-stop/w1", "gpu=NVIDIA+Test"},
			"ping":       {"GET", "/v2/ep/ping/w1", "runpod_version=" + protocol},
			"job-stream": {"POST", "/v2/ep/job-stream/w1/" + id, "gpu=NVIDIA+Test&isStream=false"},
			"job-done":   {"POST", "/v2/ep/job-done/w1/" + id, "gpu=NVIDIA+Test&isStream=false"},
		} {
			e := seen[op]
			if e.Method != want.method || e.Path != want.path || e.Query != want.query || e.Authorization != token || !strings.HasPrefix(e.UserAgent, "sallyport/1.0 ") {
				t.Errorf("%s: %+v", op, e)
			}
		}
		var body map[string]any
		if err := json.Unmarshal(seen["job-done"].Body, &body); err != nil || len(body) != 1 || body["output"] == nil {
			t.Errorf("result %s", seen["job-done"].Body)
		}
	})
}

func TestConcurrency(t *testing.T) {
	var mu sync.Mutex
	now, most := 0, 0
	bubble(t, func(ctx context.Context, j Job, _ func(job.Chunk)) Result {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		time.Sleep(3 * time.Second)
		mu.Lock()
		now--
		mu.Unlock()
		return ran(j)
	}, func(o *Options) { o.Concurrency = 3 }, func(b *bench) {
		var ids []string
		for range 9 {
			ids = append(ids, b.submit())
		}
		for _, id := range ids {
			if s := b.ends(id, time.Minute); s["status"] != "COMPLETED" || stdout(s) != id+"\n" {
				t.Errorf("%v", s)
			}
		}
		if most != 3 || b.fake.Count("job-take") > 0 || b.fake.Count("job-take-batch") == 0 {
			t.Errorf("%d at a time, %d takes", most, b.fake.Count("job-take"))
		}
	})
}

func TestStop(t *testing.T) {
	causes := make(chan error, 1)
	bubble(t, func(ctx context.Context, j Job, _ func(job.Chunk)) Result {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return Result{Stopped: true}
	}, nil, func(b *bench) {
		id := b.submit()
		time.Sleep(2 * time.Second)
		b.api("POST", "cancel/"+id, "")
		if err := <-causes; err != ErrStopped {
			t.Errorf("the job's context ended with %v", err)
		}
		if n := b.fake.Count("job-done"); n > 0 {
			t.Errorf("%d results of a stopped job were posted", n)
		}
		// The worker goes on.
		id = b.submit()
		time.Sleep(time.Second)
		b.api("POST", "cancel/"+id, "")
		<-causes
	})
}

// TestFaults: whatever the service does wrong for a while, the result arrives.
func TestFaults(t *testing.T) {
	for name, f := range map[string]runpodtest.Fault{
		"take 429":            {Op: "job-take", Times: 3, Status: 429},
		"take 400":            {Op: "job-take", Times: 3, Status: 400},
		"take 500":            {Op: "job-take", Times: 3, Status: 500},
		"take broken":         {Op: "job-take", Times: 3, Before: true},
		"result 500":          {Op: "job-done", Times: 8, Status: 500},
		"result 429":          {Op: "job-done", Times: 3, Status: 429, Retry: 20 * time.Second},
		"result 401":          {Op: "job-done", Times: 5, Status: 401},
		"result broken":       {Op: "job-done", Times: 8, Before: true},
		"result taken, broke": {Op: "job-done", Times: 1, After: true},
		"ping 500":            {Op: "ping", Times: 5, Status: 500},
		"stop 500":            {Op: "job-stop", Times: 5, Status: 500},
		"stop garbage":        {Op: "job-stop", Times: 5, Garbage: true},
		"stream 500":          {Op: "job-stream", Times: 50, Status: 500},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			runs := 0
			bubble(t, func(_ context.Context, j Job, emit func(job.Chunk)) Result {
				mu.Lock()
				runs++
				mu.Unlock()
				emit(job.Chunk{Stdout: "x"})
				return ran(j)
			}, nil, func(b *bench) {
				b.fake.Inject(f)
				id := b.submit()
				if s := b.ends(id, 10*time.Minute); s["status"] != "COMPLETED" || stdout(s) != id+"\n" {
					t.Errorf("%v\n%s", s, b.log)
				}
				if runs != 1 {
					t.Errorf("it ran %d times", runs)
				}
			})
		})
	}
}

// TestKeptResult: a result that is not taken outlives the process.
func TestKeptResult(t *testing.T) {
	bubble(t, simple, func(o *Options) { o.Drain = 2 * time.Second }, func(b *bench) {
		undo := b.fake.Inject(runpodtest.Fault{Op: "job-done", Status: 503})
		id := b.submit()
		time.Sleep(time.Minute)
		b.stop()
		if left, err := b.dir.List(); err != nil || len(left) != 1 {
			t.Fatalf("on disk: %v, %v", left, err)
		}
		if !strings.Contains(b.log.String(), "left on disk") {
			t.Errorf("the log says nothing of it:\n%s", b.log)
		}
		undo()
		b.start(simple, nil)
		if s := b.ends(id, time.Minute); s["status"] != "COMPLETED" || stdout(s) != id+"\n" {
			t.Errorf("%v", s)
		}
		synctest.Wait()
		if left, err := b.dir.List(); err != nil || len(left) != 0 {
			t.Errorf("still on disk: %v, %v", left, err)
		}
	})
}

// TestLostResult: that a result is lost is said.
func TestLostResult(t *testing.T) {
	bubble(t, simple, func(o *Options) { o.KeepResults = 5 * time.Minute }, func(b *bench) {
		b.fake.Inject(runpodtest.Fault{Op: "job-done", Status: 503})
		b.submit()
		time.Sleep(7 * time.Minute)
		if !strings.Contains(b.log.String(), "LOST: the service did not accept it") {
			t.Errorf("the log says nothing of it:\n%s", b.log)
		}
		if left, err := b.dir.List(); err != nil || len(left) != 0 {
			t.Errorf("on disk: %v, %v", left, err)
		}
	})
	bubble(t, simple, nil, func(b *bench) {
		b.fake.Inject(runpodtest.Fault{Op: "job-done", Status: 413})
		b.submit()
		time.Sleep(time.Minute)
		if !strings.Contains(b.log.String(), "LOST: the service does not want it") {
			t.Errorf("the log says nothing of it:\n%s", b.log)
		}
	})
}

func TestDrain(t *testing.T) {
	began := make(chan string, 4)
	slow := func(d time.Duration) doer {
		return func(ctx context.Context, j Job, _ func(job.Chunk)) Result {
			began <- j.ID
			select {
			case <-time.After(d):
				return ran(j)
			case <-ctx.Done():
				r := ran(j)
				r.Output.Sallyport.End, r.Output.Sallyport.Error = job.EndCancelled, context.Cause(ctx).Error()
				return r
			}
		}
	}
	t.Run("in time", func(t *testing.T) {
		bubble(t, slow(20*time.Second), nil, func(b *bench) {
			id := b.submit()
			<-began
			rest := b.submit()
			b.stop()
			if s := b.ends(id, time.Second); s["status"] != "COMPLETED" || stdout(s) != id+"\n" {
				t.Errorf("%v", s)
			}
			if s := b.api("GET", "status/"+rest, ""); s["status"] != "IN_QUEUE" {
				t.Errorf("a job was taken meanwhile: %v", s)
			}
			b.start(simple, nil)
		})
	})
	t.Run("too slow", func(t *testing.T) {
		bubble(t, slow(time.Hour), nil, func(b *bench) {
			id := b.submit()
			<-began
			at := time.Now()
			b.stop()
			if took := time.Since(at); took > time.Minute {
				t.Errorf("it took %v", took)
			}
			s := b.ends(id, time.Second)
			answer, _ := s["output"].(map[string]any)["sallyport"].(map[string]any)
			if answer["end"] != job.EndCancelled || !strings.Contains(fmt.Sprint(answer["error"]), "shutting down") {
				t.Errorf("%v", s)
			}
			b.start(simple, nil)
		})
	})
}

func TestRefresh(t *testing.T) {
	bubble(t, simple, func(o *Options) { o.Refresh = true }, func(b *bench) {
		id := b.submit()
		b.ends(id, time.Minute)
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		i := slices.IndexFunc(b.fake.Journal(), func(e runpodtest.Entry) bool { return e.Op == "job-done" })
		if body := b.fake.Journal()[i].Body; !strings.Contains(string(body), `"stopPod":true`) {
			t.Errorf("%s", body)
		}
		b.start(simple, nil)
	})
}

func TestProgressAndPings(t *testing.T) {
	bubble(t, func(_ context.Context, j Job, _ func(job.Chunk)) Result {
		time.Sleep(35 * time.Second)
		return ran(j)
	}, func(o *Options) { o.Progress = 10 * time.Second }, func(b *bench) {
		id := b.submit()
		time.Sleep(25 * time.Second)
		s := b.api("GET", "status/"+id, "")
		if out, _ := s["output"].(map[string]any); s["status"] != "IN_PROGRESS" || out["seconds"] == nil {
			t.Errorf("%v", s)
		}
		b.ends(id, time.Minute)
		named := 0
		for _, e := range b.fake.Journal() {
			if q, _ := url.ParseQuery(e.Query); e.Op == "ping" && q.Get("job_id") == id {
				named++
			}
		}
		if named < 3 {
			t.Errorf("%d pings named the job", named)
		}
	})
}

func TestUnhealthy(t *testing.T) {
	bubble(t, simple, nil, func(b *bench) {
		w, err := New(Options{
			Place: environment(b.fake.WorkerEnv("http://runpod.test", "ep", "w9")), Do: simple, Logger: slog.New(slog.DiscardHandler),
			HTTP: &http.Client{Transport: b.fake.Transport()},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Unhealthy(b.t.Context(), "sandbox", "no Python & more")
		if got := b.fake.Unhealthy("ep", "w9"); got != "sandbox: no Python & more" {
			t.Errorf("%q", got)
		}
	})
}

func TestAddresses(t *testing.T) {
	for _, p := range []Place{
		{},
		{GetJob: "https://x/job-take/$ID?a=b"},
		{GetJob: "file:///etc/passwd", PostOutput: "https://x/"},
		{GetJob: "https://x/job-take/$ID?", PostOutput: "https://x/", Ping: "nonsense"},
	} {
		if _, err := New(Options{Place: p, Do: simple, Logger: slog.New(slog.DiscardHandler)}); err == nil {
			t.Errorf("%+v was taken", p)
		}
	}
	c, err := newClient(Place{GetJob: "https://x/v2/ep/job-take/$ID?gpu=X", PostOutput: "https://x/v2/ep/job-done/$RUNPOD_POD_ID/$ID?gpu=X", WorkerID: "w/1"}, nil, "1")
	if err != nil {
		t.Fatal(err)
	}
	if c.stop != "https://x/v2/ep/job-stop/w%2F1?gpu=X" || c.of(c.place.PostOutput, "../a") != "https://x/v2/ep/job-done/w%2F1/..%2Fa?gpu=X" {
		t.Errorf("%s, %s", c.stop, c.of(c.place.PostOutput, "../a"))
	}
}

func FuzzDecodeJobs(f *testing.F) {
	for _, s := range []string{`{"id":"a","input":{}}`, `[{"id":"a","input":{"code":"x"}},{"id":5}]`, `null`, `[]`, `[null]`, `{`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		jobs, _ := decodeJobs(b)
		for _, j := range jobs {
			if j.ID == "" || len(j.Input) == 0 {
				t.Errorf("%+v of %q", j, b)
			}
		}
	})
}
