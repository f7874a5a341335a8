package worker

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/batch/runpod/runpodtest"
	"github.com/sallyport/sallyport/internal/store"
)

// TestThousandJobs: whatever breaks, each job has one outcome, and none runs
// twice unless RunPod has given it to two workers.
func TestThousandJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("depends on speed: some jobs must be delivered twice by chance")
	}
	const jobs, workers = 1000, 4
	places := make([]store.Dir, workers)
	for i := range places {
		places[i] = store.At(t.TempDir())
	}
	synctest.Test(t, func(t *testing.T) {
		fake := runpodtest.New(runpodtest.Options{
			Key: "rp-key", WorkerKey: token, Endpoints: []string{"ep"}, TakeWait: 20 * time.Second, Silence: 2 * time.Minute, Seed: 7,
			Rates: map[string]runpodtest.Rate{"run": {}, "status": {}},
		})
		for _, f := range []runpodtest.Fault{
			{Op: "job-take", Rate: 0.05, Before: true}, {Op: "job-take-batch", Rate: 0.05, Before: true},
			{Op: "job-take-batch", Rate: 0.05, Status: 429}, {Op: "job-take-batch", Rate: 0.03, Status: 500},
			{Op: "job-done", Rate: 0.1, Before: true}, {Op: "job-done", Rate: 0.1, After: true},
			{Op: "job-done", Rate: 0.1, Status: 503}, {Op: "job-done", Rate: 0.1, Status: 429, Retry: 2 * time.Second},
			{Op: "ping", Rate: 0.2, Status: 500}, {Op: "job-stop", Rate: 0.1, Before: true},
		} {
			fake.Inject(f)
		}
		var mu sync.Mutex
		runs := map[string][]int{} // job -> the workers that ran it
		log := &lockedBuffer{}
		logger := slog.New(slog.NewTextHandler(log, nil))
		var ends []func()
		begin := func(i int) {
			seen := NewSeen(places[i].Sub("seen"), logger)
			do := func(ctx context.Context, j Job, emit func(job.Chunk)) Result {
				first, known, err := seen.Begin(ctx, j.ID, "")
				if err != nil {
					return Result{Error: err.Error(), Stopped: true}
				}
				if !first {
					if known == nil {
						t.Errorf("job %s was given again, and what came of it is not known", j.ID)
						return Result{Error: "not known"}
					}
					return *known
				}
				mu.Lock()
				runs[j.ID] = append(runs[j.ID], i)
				mu.Unlock()
				time.Sleep(2 * time.Second)
				r := ran(j)
				seen.End(j.ID, "", r)
				return r
			}
			id := []string{"w0", "w1", "w2", "w3"}[i]
			w, err := New(Options{
				Place: environment(fake.WorkerEnv("http://runpod.test", "ep", id)), Do: do, Logger: logger,
				HTTP: &http.Client{Transport: fake.Transport()}, Concurrency: 8, Drain: time.Minute, KeepResults: 20 * time.Minute, Outbox: places[i].Sub("results"),
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			ends = append(ends, func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		}
		b := &bench{t: t, fake: fake, log: log}
		for i := range workers {
			begin(i)
		}
		// One worker is lost while it works, and some jobs are delivered twice.
		var ids []string
		for len(ids) < jobs {
			for range 25 {
				ids = append(ids, b.submit())
			}
			time.Sleep(time.Second)
			for _, id := range ids[len(ids)-25 : len(ids)-20] {
				fake.DeliverTwice("ep", id) // where it runs already
			}
			if len(ids) == jobs/2 {
				fake.Kill("ep", "w3")
			}
			time.Sleep(2 * time.Second)
		}
		for _, id := range ids {
			if s := b.ends(id, time.Hour); s["status"] != "COMPLETED" || stdout(s) != id+"\n" {
				t.Errorf("%v", s)
			}
		}
		for _, end := range ends {
			end()
		}
		redelivered, twice := 0, 0
		known := map[string]runpodtest.JobInfo{}
		for _, j := range fake.Jobs("ep") {
			known[j.ID] = j
		}
		for _, id := range ids {
			to := map[string]bool{}
			for _, w := range known[id].Deliveries {
				to[w] = true
			}
			if len(known[id].Deliveries) > 1 {
				redelivered++
			}
			by := map[int]bool{}
			for _, i := range runs[id] {
				if by[i] {
					t.Errorf("job %s ran twice on worker %d", id, i)
				}
				by[i] = true
			}
			if n := len(runs[id]); n == 0 || n > len(to) {
				t.Errorf("job %s ran %d times; RunPod gave it to %v", id, n, known[id].Deliveries)
			} else if n > 1 {
				twice++
			}
		}
		if redelivered == 0 {
			t.Error("no job was delivered twice: the test tries nothing")
		}
		t.Logf("%d jobs, each with its outcome; RunPod delivered %d more than once; %d ran on two workers", jobs, redelivered, twice)
	})
}
