package worker

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/batch/runpod/runpodtest"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/wire"
)

// TestSeenOnDisk: results do not fill the disk. What is given up of a run is
// its result, and not that it ran.
func TestSeenOnDisk(t *testing.T) {
	dir := store.At(t.TempDir())
	s := NewSeen(dir, slog.New(slog.DiscardHandler))
	s.disk = 40_000
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
	for i, id := range ids {
		if first, _, err := s.Begin(t.Context(), "job", id); err != nil || !first {
			t.Fatal(first, err)
		}
		s.End("job", id, Result{Output: &job.Output{Stdout: strings.Repeat("x", 10_000)}})
		at := time.Now().Add(time.Duration(i-100) * time.Second) // clocks of file systems are coarse
		if err := os.Chtimes(dir.Path(name("job", id)), at, at); err != nil {
			t.Fatal(err)
		}
	}
	names, err := dir.List()
	if err != nil || len(names) != len(ids) {
		t.Fatalf("%v, %v", names, err)
	}
	total := int64(0)
	for _, n := range names {
		fi, err := os.Stat(dir.Path(n))
		if err != nil {
			t.Fatal(err)
		}
		total += fi.Size()
	}
	if total > s.disk+2*11_000 {
		t.Errorf("%d bytes on disk", total)
	}
	later := NewSeen(dir, slog.New(slog.DiscardHandler))
	if first, known, err := later.Begin(t.Context(), "job", "a"); first || known != nil || err != nil {
		t.Errorf("the first: %v, %v, %v", first, known, err)
	}
	if first, known, err := later.Begin(t.Context(), "job", "l"); first || known == nil || err != nil {
		t.Errorf("the last: %v, %v, %v", first, known, err)
	}
}

// TestStreamThatNobodyTakes: a result does not wait for a stream.
func TestStreamThatNobodyTakes(t *testing.T) {
	do := func(_ context.Context, j Job, emit func(job.Chunk)) Result {
		for range 50 {
			emit(job.Chunk{Stdout: "x"})
		}
		return ran(j)
	}
	bubble(t, do, nil, func(b *bench) {
		b.fake.Inject(runpodtest.Fault{Slow: 10 * time.Minute, If: func(r *http.Request) bool {
			return strings.Contains(r.URL.Path, "stream")
		}})
		id := b.submit()
		if s := b.ends(id, 15*time.Second); s["status"] != "COMPLETED" || stdout(s) != id+"\n" {
			t.Errorf("%v", s)
		}
		if n := strings.Count(b.log.String(), "stream was not taken"); n != 1 {
			t.Errorf("said %d times", n)
		}
	})
}

// TestLocalAPIForgets: however many jobs there were, there is room for one more.
func TestLocalAPIForgets(t *testing.T) {
	big := strings.Repeat("x", localBytes/4)
	s := NewServer(ServerOptions{Logger: slog.New(slog.DiscardHandler), Do: func(_ context.Context, j Job, emit func(job.Chunk)) Result {
		if strings.Contains(string(j.Input), "big") {
			return Result{Output: &job.Output{Stdout: big}}
		}
		for range 100 {
			emit(job.Chunk{Stdout: big[:1<<20]})
		}
		return ran(j)
	}})
	defer s.Close()
	var last string
	submit := func(code string) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/run", strings.NewReader(`{"input": {"code": "`+code+`"}}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		var m map[string]string
		if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		last = m["id"]
		s.mu.Lock()
		j := s.jobs[last]
		s.mu.Unlock()
		<-j.over
	}
	for range maxLocal + 10 {
		submit("small")
	}
	if n := len(s.jobs[last].chunks); n != 15 {
		t.Errorf("%d chunks are held", n)
	}
	if len(s.jobs) > maxLocal {
		t.Errorf("%d jobs", len(s.jobs))
	}
	for range 8 {
		submit("big")
	}
	if n := len(s.jobs); n > 6 {
		t.Errorf("%d jobs", n)
	}
}

// TestPollsThatBringNothing: a service that answers at once, and with nothing,
// is not asked without a pause.
func TestPollsThatBringNothing(t *testing.T) {
	var polls atomic.Int64
	empty := roundTripper(func(*http.Request) (*http.Response, error) {
		polls.Add(1)
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/html"}}, Body: http.NoBody}, nil
	})
	bubble(t, simple, func(o *Options) { o.HTTP = &http.Client{Transport: empty} }, func(b *bench) {
		time.Sleep(time.Minute)
		if n := polls.Load(); n < 60 || n > 200 {
			t.Errorf("%d polls in a minute", n)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestStreamEndsWithTheOutputLimit: what a result leaves out is not streamed,
// and code that writes it does not wait for it.
func TestStreamEndsWithTheOutputLimit(t *testing.T) {
	var got [2]strings.Builder
	s := newStreamer(1001, func(c job.Chunk) {
		if c.At != int64(got[0].Len()) && c.Stdout != "" || c.At != int64(got[1].Len()) && c.Stderr != "" {
			t.Errorf("a chunk at %d after %d and %d bytes", c.At, got[0].Len(), got[1].Len())
		}
		got[0].WriteString(c.Stdout)
		got[1].WriteString(c.Stderr)
	})
	s.write(wire.Stderr, []byte("é"))
	for range 100 {
		s.write(wire.Stdout, []byte(strings.Repeat("é", 1<<20)))
	}
	s.write(wire.Stderr, []byte("late"))
	s.close()
	if want := strings.Repeat("é", 249); got[0].String() != want || got[1].String() != "é" {
		t.Errorf("got %d and %d bytes, want %d and 2", got[0].Len(), got[1].Len(), len(want))
	}
}

// TestResultsThatNobodyTakes: a worker whose results nobody takes takes no more
// jobs before it has filled its memory and its disk with them.
func TestResultsThatNobodyTakes(t *testing.T) {
	large := strings.Repeat("x", 16<<20)
	var ran atomic.Int64
	do := func(_ context.Context, _ Job, _ func(job.Chunk)) Result {
		ran.Add(1)
		return Result{Output: &job.Output{Stdout: large, Sallyport: &job.Answer{Version: job.Version}}}
	}
	bubble(t, do, func(o *Options) { o.KeepResults = time.Hour }, func(b *bench) {
		undo := b.fake.Inject(runpodtest.Fault{Op: "job-done", Status: 503})
		const jobs = 7
		var ids []string
		for range jobs {
			ids = append(ids, b.submit())
		}
		time.Sleep(3 * time.Minute)
		if n := ran.Load(); n < 2 || n >= jobs {
			t.Errorf("%d of %d jobs were run, whose results of 16 MB nobody takes; want as many as %d MB hold", n, jobs, mostBehind>>20)
		}
		undo()
		for _, id := range ids {
			if s := b.ends(id, 3*time.Minute); s["status"] != "COMPLETED" {
				t.Errorf("job %s, when results are taken again: got %v, want COMPLETED", id, s["status"])
			}
		}
	})
}
