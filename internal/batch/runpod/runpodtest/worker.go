package runpodtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Job is what a worker is given.
type Job struct {
	ID    string          `json:"id"`
	Input json.RawMessage `json:"input"`
}

// Worker is a small worker for tests of clients: one job at a time, and a
// result that it posts until it is accepted.
type Worker struct {
	Server   *Server
	Endpoint string
	ID       string
	// Handle runs a job. emit sends a chunk of its stream. ctx ends when the
	// job is to stop; its result is then not sent.
	Handle func(ctx context.Context, j Job, emit func(chunk any)) (output any, err error)
}

// Run works until ctx is done, or until the worker was killed.
func (w *Worker) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	var mu sync.Mutex
	stops := map[string]context.CancelFunc{}
	wg.Go(func() {
		for ctx.Err() == nil {
			status, body, err := w.call(ctx, "GET", "job-stop/"+w.ID, nil)
			if err != nil || status != 200 {
				if status == 404 {
					cancel()
				}
				w.pause(ctx, err != nil || status != 204)
				continue
			}
			var list struct{ JobsToStop []string }
			_ = json.Unmarshal(body, &list)
			mu.Lock()
			for _, id := range list.JobsToStop {
				if stop := stops[id]; stop != nil {
					stop()
				}
			}
			mu.Unlock()
		}
	})
	wg.Go(func() {
		for ctx.Err() == nil {
			_, _, _ = w.call(ctx, "GET", "ping/"+w.ID, nil)
			select {
			case <-ctx.Done():
			case <-w.Server.clock.After(10 * time.Second):
			}
		}
	})
	for ctx.Err() == nil {
		status, body, err := w.call(ctx, "GET", "job-take/"+w.ID+"?job_in_progress=0", nil)
		var j Job
		if err != nil || status != 200 || json.Unmarshal(body, &j) != nil {
			w.pause(ctx, err != nil || status != 204)
			continue
		}
		jctx, stop := context.WithCancel(ctx)
		mu.Lock()
		stops[j.ID] = stop
		mu.Unlock()
		output, err := w.Handle(jctx, j, func(chunk any) {
			_, _, _ = w.call(jctx, "POST", "job-stream/"+w.ID+"/"+j.ID+"?isStream=false", map[string]any{"output": chunk})
		})
		result := map[string]any{"output": output}
		if err != nil {
			result = map[string]any{"error": err.Error()}
		}
		for jctx.Err() == nil {
			status, _, err := w.call(jctx, "POST", "job-done/"+w.ID+"/"+j.ID+"?isStream=false", result)
			if err == nil && (status < 500 && status != 429) {
				break
			}
			w.pause(jctx, true)
		}
		stop()
		mu.Lock()
		delete(stops, j.ID)
		mu.Unlock()
	}
}

func (w *Worker) pause(ctx context.Context, long bool) {
	if long {
		select {
		case <-ctx.Done():
		case <-w.Server.clock.After(50 * time.Millisecond):
		}
	}
}

func (w *Worker) call(ctx context.Context, method, path string, body any) (int, []byte, error) {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://runpod.test/v2/"+w.Endpoint+"/"+path, r)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", w.Server.opts.WorkerKey)
	res, err := w.Server.Transport().RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, b, err
}

// Seed is the handler of a plain worker, as the first ones were: it knows
// {"code": …} and answers stdout, stderr and return_code. It runs nothing:
// run is asked what the code does.
func Seed(run func(code string) (stdout, stderr string, returnCode int)) func(context.Context, Job, func(any)) (any, error) {
	return func(_ context.Context, j Job, _ func(any)) (any, error) {
		var in struct{ Code *string }
		if err := json.Unmarshal(j.Input, &in); err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
		if in.Code == nil {
			return nil, errors.New("no code provided")
		}
		stdout, stderr, rc := run(*in.Code)
		return map[string]any{"stdout": stdout, "stderr": stderr, "return_code": rc}, nil
	}
}
