package runpod

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runpod/runpodtest"
)

// trickle is a body that takes its time.
type trickle struct {
	io.Reader
	each time.Duration
}

func (r trickle) Read(p []byte) (int, error) {
	time.Sleep(r.each)
	return r.Reader.Read(p[:min(len(p), 1<<20)])
}

func (trickle) Close() error { return nil }

// TestSlowConnection: what is large may take longer, and nothing takes for ever.
func TestSlowConnection(t *testing.T) {
	large := `"` + strings.Repeat("x", 10<<20) + `"`
	call := func(upload, each time.Duration, body []byte) (n int, failed *trouble) {
		synctest.Test(t, func(t *testing.T) {
			a := &api{base: "https://x/e", key: func(context.Context) (string, error) { return "k", nil }, gates: newGates(),
				http: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					select {
					case <-time.After(upload):
					case <-r.Context().Done():
						return nil, r.Context().Err()
					}
					return &http.Response{StatusCode: 200, Header: http.Header{}, Body: trickle{strings.NewReader(large), each}}, nil
				})}}
			var answer []byte
			answer, failed = a.call(t.Context(), "run", "", nil, body)
			n = len(answer)
		})
		return n, failed
	}
	if n, failed := call(100*time.Second, 15*time.Second, make([]byte, 10<<20)); failed != nil || n != len(large) {
		t.Errorf("%d bytes, %v", n, failed)
	}
	if _, failed := call(100*time.Second, 0, nil); failed == nil || !errors.Is(failed.err, context.DeadlineExceeded) || !failed.sent {
		t.Errorf("%v", failed)
	}
}

// TestOneWrongWord: that RunPod does not know a job is believed when it says so
// more than once.
func TestOneWrongWord(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong()})
		r := f.start(spec("x"))
		time.Sleep(time.Minute)
		for _, op := range []string{"status", "stream"} {
			f.fake.Inject(runpodtest.Fault{Op: op, Times: 1, Status: 404})
		}
		if res := f.result(r); string(res.Stdout) != "ran x\n" {
			t.Errorf("%+v", res)
		}
	})
}

// TestStrangeStates: a service that never says that a run has ended is not
// listened to for ever.
func TestStrangeStates(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong()})
		if _, err := f.engine.Probe(f.ctx); err != nil {
			t.Fatal(err)
		}
		r := f.start(spec("x"))
		real := f.engine.http.Transport
		f.engine.http.Transport = roundTripper(func(q *http.Request) (*http.Response, error) {
			if strings.Contains(q.URL.Path, "/status/") || strings.Contains(q.URL.Path, "/stream/") {
				return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"id": "x", "status": "PONDERING"}`))}, nil
			}
			return real.RoundTrip(q)
		})
		began := time.Now()
		res := f.result(r)
		if res.End != batch.Failed || time.Since(began) > r.spec.TTL+10*time.Minute {
			t.Errorf("after %v: %+v", time.Since(began), res)
		}
		wantText(t, "the error", res.Error, "PONDERING", "cancelled")
	})
}

// TestGivenUpAndOutOfReach: a run that was given up while it was submitted and
// that could not be cancelled is not forgotten.
func TestGivenUpAndOutOfReach(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong()})
		if _, err := f.engine.Probe(f.ctx); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(f.ctx)
		f.fake.Inject(runpodtest.Fault{Op: "cancel", Before: true})
		f.fake.Inject(runpodtest.Fault{Op: "run", Times: 1, Slow: 2 * time.Second})
		time.AfterFunc(time.Second, cancel)
		r, err := f.engine.Submit(ctx, spec("x"))
		if err != nil || !strings.Contains(string(r.Handle().Data), `"job":`) {
			t.Fatalf("%v, %v", r, err)
		}
	})
}

// TestKeyThatCannotBeRead: it is not RunPod that could not be reached.
func TestKeyThatCannotBeRead(t *testing.T) {
	b, err := New(Options{
		Key:      func(context.Context) (string, error) { return "", errors.New("runpod.key: it is not a regular file") },
		Endpoint: endpoint, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	report, err := b.Probe(t.Context())
	if err != nil || report.Usable || report.Findings[0].Title != "runpod.key: it is not a regular file" {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestRedirectedSubmission: nobody has taken the run, and that is said.
func TestRedirectedSubmission(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong()})
		if _, err := f.engine.Probe(f.ctx); err != nil {
			t.Fatal(err)
		}
		f.fake.Inject(runpodtest.Fault{Op: "run", Times: 1, Status: 307})
		_, err := f.engine.Submit(f.ctx, spec("x"))
		if err == nil || !strings.Contains(err.Error(), "redirects to another address") || f.fake.Count("run") != 1 {
			t.Errorf("%v", err)
		}
	})
}

// TestOutOfTime: what went wrong is said, and not that there was no time left.
func TestOutOfTime(t *testing.T) {
	bubble(t, runpodtest.Options{}, nil, func(f *fixture) {
		f.work("w1", &speaker{report: strong()})
		r := f.start(spec("x"))
		f.fake.Inject(runpodtest.Fault{Op: "cancel", Status: 503})
		ctx, cancel := context.WithTimeout(f.ctx, 10*time.Second)
		defer cancel()
		if err := r.Cancel(ctx); err == nil || !strings.Contains(err.Error(), "HTTP 503") {
			t.Errorf("%v", err)
		}
		ctx, cancel = context.WithCancel(f.ctx)
		time.AfterFunc(5*time.Second, cancel)
		if err := r.Cancel(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}
