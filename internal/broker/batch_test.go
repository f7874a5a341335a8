//go:build unix

package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"sallyport/internal/runs"
	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/fake"
	"sallyport/internal/state"
)

// far is the fake batch engine, with what services do beyond it.
type far struct {
	sandbox.Backend
	report func(*sandbox.Report)
	cancel func() error // what Cancel answers besides ending the run; nil: it ends
	early  string       // what is told of the output while the code runs
	files  map[string][]byte
}

func (f *far) Probe(ctx context.Context) (*sandbox.Report, error) {
	r, err := f.Backend.Probe(ctx)
	if err == nil && f.report != nil {
		f.report(r)
	}
	return r, err
}

func (f *far) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	run, err := f.Backend.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &farRun{Run: run, f: f}, nil
}

type farRun struct {
	sandbox.Run
	f       *far
	observe func(sandbox.Progress)
}

func (r *farRun) Unwrap() sandbox.Run              { return r.Run }
func (r *farRun) Observe(f func(sandbox.Progress)) { r.observe = f }

func (r *farRun) Result(ctx context.Context) (sandbox.BatchResult, error) {
	r.observe(sandbox.Progress{State: "running", Running: true, Stdout: []byte(r.f.early)})
	b, _ := sandbox.As[sandbox.BatchResulter](r.Run)
	out, err := b.Result(ctx)
	if errors.Is(err, sandbox.ErrGone) {
		return sandbox.BatchResult{End: sandbox.BatchCancelled, Error: "the run was cancelled"}, nil
	}
	return out, err
}

func (r *farRun) Cancel(ctx context.Context) error {
	if r.f.cancel != nil {
		return r.f.cancel()
	}
	return r.Run.Destroy(ctx)
}

func (r *farRun) Fetch(_ context.Context, dir *os.Root) ([]sandbox.FetchedFile, error) {
	var list []sandbox.FetchedFile
	for name, data := range r.f.files {
		if err := dir.WriteFile(name, data, 0o600); err != nil {
			return nil, err
		}
		list = append(list, sandbox.FetchedFile{Path: name, Size: int64(len(data))})
	}
	return list, nil
}

func newFar(t *testing.T, f *far) (*Broker, *runs.Store) {
	t.Helper()
	f.Backend = newEngine(t, fake.Options{Batch: true}).Backend
	engines := map[string]sandbox.Backend{"fake-batch": f}
	log := slog.New(slog.DiscardHandler)
	store := runs.NewStore(state.At(filepath.Join(t.TempDir(), "runs")), engines, 0, runs.Limits{}, log)
	b, _ := newBroker(t, func(c *Config) {
		c.Batch, c.Runs = engines, store
	})
	return b, store
}

func sendFar(t *testing.T, b *Broker, req Request) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req.Backend = "fake-batch"
	return b.Execute(ctx, req)
}

var png = []byte("\x89PNG\r\n\x1a\n and more")

func TestBatch(t *testing.T) {
	t.Parallel()
	b, store := newFar(t, &far{early: "o", files: map[string][]byte{"plot.png": png, "fake.png": []byte("no picture"), "data.csv": []byte("1,2")}})
	if got := strings.Join(b.Backends(), " "); got != "fake fake-batch" {
		t.Errorf("engines %s", got)
	}
	var out, errs bytes.Buffer
	var states []string
	r := sendFar(t, b, Request{
		Code:     "import sys; print('one'); print('two', file=sys.stderr); print(open('in.txt').read())",
		Files:    []sandbox.File{{Path: "in.txt", Data: []byte("given")}},
		OnStatus: func(s string) { states = append(states, s) },
		OnOutput: func(s Stream, p []byte) {
			if s == Stderr {
				errs.Write(p)
			} else {
				out.Write(p)
			}
		},
	})
	want(t, r, Success, 0, "one\ngiven")
	if out.String() != "one\ngiven\n" || errs.String() != "two\n" {
		t.Errorf("passed on: %q, %q", &out, &errs)
	}
	if len(states) != 3 || states[2] != "running" || r.Backend != "fake-batch" {
		t.Errorf("states %q, backend %q", states, r.Backend)
	}
	if len(r.Artifacts) != 3 || !strings.HasPrefix(r.Artifacts[0].URI, "sallyport://runs/"+r.Run+"/files/") {
		t.Errorf("artifacts %+v", r.Artifacts)
	}
	if len(r.Images) != 1 || r.Images[0].Path != "plot.png" || r.Images[0].MIMEType != "image/png" || !bytes.Equal(r.Images[0].Data, png) {
		t.Errorf("pictures %+v", r.Images)
	}
	record, err := store.Get(r.Run)
	if err != nil || record.State != runs.Ended || len(record.Files) != 3 {
		t.Errorf("%+v, %v", record, err)
	}

	r = sendFar(t, b, Request{Code: "raise ValueError('x')"})
	want(t, r, Failed, 1, "")
	if r.Error != "Uncaught exception: ValueError: x" {
		t.Error(r.Error)
	}
	want(t, sendFar(t, b, Request{Code: "import sys; sys.exit(4)"}), Failed, 4, "")
}

func TestCaptured(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintln(&b, "line", i)
	}
	c := captured(b.String(), 200)
	got := lines(c)
	if len(c.Head)+len(c.Tail)+int(c.Omitted) != b.Len() || c.Omitted < int64(b.Len())-200 || got[0] != "line 0" || got[len(got)-1] != "line 999" {
		t.Errorf("%q", got)
	}
	for _, l := range got {
		if !strings.HasPrefix(l, "line ") && !strings.HasPrefix(l, "[... ") {
			t.Errorf("half a line: %q", l)
		}
	}
	if c := captured(strings.Repeat("é", 300), 201); c.Omitted == 0 || !utf8.ValidString(c.Head) || !utf8.ValidString(c.Tail) {
		t.Errorf("%+v", c)
	}
	if c := captured("short", 5); c.Omitted != 0 || c.Head != "short" {
		t.Errorf("%+v", c)
	}
}

func TestBatchTellsWhatItShowedTooMuch(t *testing.T) {
	t.Parallel()
	b, _ := newFar(t, &far{early: "something else"})
	r := sendFar(t, b, Request{Code: "print('one')", OnOutput: func(Stream, []byte) {}})
	want(t, r, Success, 0, "one")
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "is not what came back") {
		t.Errorf("%q", r.Notes)
	}
}

func TestBatchRefuses(t *testing.T) {
	t.Parallel()
	b, store := newFar(t, &far{})
	for _, tt := range []struct {
		req  Request
		want string
	}{
		{Request{Code: "1", Servers: []string{"math"}}, "cannot use MCP servers"},
		{Request{Code: "1", Session: "s"}, "keeps nothing between calls"},
		{Request{Code: "1", Stdin: strings.NewReader("x")}, "standard input does not reach it"},
		{Request{Code: "1", Args: []string{"x"}}, "takes arguments only for a file"},
		{Request{Code: " "}, "Missing 'code'"},
	} {
		if r := sendFar(t, b, tt.req); r.Status != ValidationError || !strings.Contains(r.Error, tt.want) {
			t.Errorf("%+v: %+v", tt.req, r)
		}
	}
	if r := b.Execute(t.Context(), Request{Code: "1", Backend: "moon"}); r.Status != ValidationError || !strings.Contains(r.Error, "fake, fake-batch") {
		t.Errorf("%+v", r)
	}
	if r := b.Execute(t.Context(), Request{Code: "1", Batch: Batch{Internet: true}}); r.Status != ValidationError {
		t.Errorf("%+v", r)
	}
	want(t, b.Execute(t.Context(), Request{Code: "7", Backend: "fake"}), Success, 0, "7")
	if list, err := store.List(); err != nil || len(list) != 0 {
		t.Errorf("runs were begun: %v, %v", list, err)
	}
	f := &far{report: func(r *sandbox.Report) {
		r.Usable, r.Findings = false, []sandbox.Finding{{Fatal: true, Title: "the key was refused", Remedy: "get another"}}
	}}
	b, store = newFar(t, f)
	if r := sendFar(t, b, Request{Code: "1"}); r.Status != Failed || !strings.Contains(r.Error, "the key was refused") || !strings.Contains(r.Error, "get another") {
		t.Errorf("%+v", r)
	}
	if list, err := store.List(); err != nil || len(list) != 0 {
		t.Errorf("runs were begun: %v, %v", list, err)
	}
}

func TestBatchIsCancelled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		far      *far
		error    string
		detached bool
		state    runs.State
	}{
		{"where that is possible", &far{}, "the run was cancelled too", false, runs.Ended},
		{"where it is not", &far{cancel: func() error {
			return &sandbox.Error{Op: "cancel", Backend: "fake", Kind: sandbox.ErrUnsupported, Err: errors.New("until 12:00, at https://example.org/k")}
		}}, "the run goes on: until 12:00, at https://example.org/k", true, runs.Running},
		{"where that fails", &far{cancel: func() error { return errors.New("no network") }}, "could not be cancelled: no network", false, runs.Running},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, store := newFar(t, tt.far)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := b.Execute(ctx, Request{Code: "import time; time.sleep(60)", Backend: "fake-batch", OnStatus: func(s string) {
				if s == "running" {
					cancel()
				}
			}})
			if r.Status != Failed || !strings.Contains(r.Error, tt.error) || r.Run == "" {
				t.Fatalf("%+v", r)
			}
			record, err := store.Get(r.Run)
			if err != nil || record.Detached != tt.detached || record.State != tt.state {
				t.Errorf("%+v, %v", record, err)
			}
		})
	}
}

// A broker that is closed cancels what it has sent, and waits for that.
func TestCloseCancelsBatch(t *testing.T) {
	t.Parallel()
	b, store := newFar(t, &far{})
	running, done := make(chan struct{}), make(chan *Result, 1)
	go func() {
		done <- b.Execute(context.Background(), Request{Code: "import time; time.sleep(60)", Backend: "fake-batch", OnStatus: func(s string) {
			if s == "running" {
				close(running)
			}
		}})
	}()
	<-running
	b.Close()
	list, err := store.List()
	if err != nil || len(list) != 1 || list[0].Result == nil || list[0].Result.End != sandbox.BatchCancelled {
		t.Errorf("%+v, %v", list, err)
	}
	if r := <-done; r.Status != Failed {
		t.Errorf("%+v", r)
	}
}

func TestBatchIsHandedOver(t *testing.T) {
	t.Parallel()
	b, store := newFar(t, &far{})
	r := sendFar(t, b, Request{Code: "print(1)", Batch: Batch{Detach: true}})
	if r.Status != Success || r.Run == "" || len(r.Stdout) != 0 {
		t.Fatalf("%+v", r)
	}
	if record, err := store.Get(r.Run); err != nil || !record.Detached || record.Handle == nil {
		t.Errorf("%+v, %v", record, err)
	}
}
