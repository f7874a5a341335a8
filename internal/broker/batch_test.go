//go:build unix

package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/batchtest"
	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/wire"
)

// newBatch returns a broker with an engine and a batch service.
func newBatch(t *testing.T, change func(*batchtest.Local)) (*desk, *runs.Store) {
	t.Helper()
	service := batchtest.NewLocal(t)
	change(service)
	services := map[string]batch.Service{batchtest.Name: service}
	records := runs.NewStore(store.At(filepath.Join(t.TempDir(), "runs")), services, 0, runs.Limits{}, slog.New(slog.DiscardHandler))
	b, _ := newBroker(t, func(p *parts) { p.Batch = BatchConfig{Services: services, Runs: records} })
	return b, records
}

func unchanged(*batchtest.Local) {}

func submit(t *testing.T, b *desk, req Request) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req.Principal, req.Backend = user, batchtest.Name
	return b.Execute(ctx, req)
}

// png is a picture of one pixel.
var png = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU\x00\x00\x00\nIDATx\x9cc`\x00\x00\x00\x02\x00\x01H\xaf\xa4q\x00\x00\x00\x00IEND\xaeB`\x82")

func TestBatch(t *testing.T) {
	t.Parallel()
	b, store := newBatch(t, func(l *batchtest.Local) {
		l.Early = "o"
		l.Left = map[string][]byte{"plot.png": png, "fake.png": []byte("no picture"), "data.csv": []byte("1,2")}
	})
	if got := strings.Join(b.Backends(), " "); got != "fake local-batch" {
		t.Errorf("engines %s", got)
	}
	var out, errs bytes.Buffer
	var states []string
	r := submit(t, b, Request{
		OnStatus: func(s string) { states = append(states, s) },
		Submission: Submission{
			Code:  "import sys; print('one'); print('two', file=sys.stderr); print(open('in.txt').read())",
			Files: []sandbox.File{{Path: "in.txt", Data: []byte("given")}},
			OnOutput: func(s wire.Stream, p []byte) {
				if s == wire.Stderr {
					errs.Write(p)
				} else {
					out.Write(p)
				}
			},
		},
	})
	want(t, r, Success, 0, "one\ngiven")
	if out.String() != "one\ngiven\n" || errs.String() != "two\n" {
		t.Errorf("passed on: %q, %q", &out, &errs)
	}
	if len(states) != 3 || states[2] != "running" || r.Backend != batchtest.Name {
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

	r = submit(t, b, Request{Submission: Submission{Code: "raise ValueError('x')"}})
	want(t, r, Failed, 1, "")
	if r.Error != "Uncaught exception: ValueError: x" {
		t.Error(r.Error)
	}
	want(t, submit(t, b, Request{Submission: Submission{Code: "import sys; sys.exit(4)"}}), Failed, 4, "")
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
	b, _ := newBatch(t, func(l *batchtest.Local) { l.Early = "something else" })
	r := submit(t, b, Request{Submission: Submission{Code: "print('one')", OnOutput: func(wire.Stream, []byte) {}}})
	want(t, r, Success, 0, "one")
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "differs from what came back") {
		t.Errorf("%q", r.Notes)
	}
}

func TestBatchRefuses(t *testing.T) {
	t.Parallel()
	b, store := newBatch(t, unchanged)
	folder := []sandbox.Mount{{Source: "/data", Target: "/mnt/data", Mode: sandbox.ReadOnly}}
	for _, tt := range []struct {
		req  Request
		want string
	}{
		{Request{Servers: []string{"math"}, Submission: Submission{Code: "1"}}, "cannot use MCP servers"},
		{Request{Session: "s", Submission: Submission{Code: "1"}}, "keeps nothing between calls"},
		{Request{Shown: true, Mounts: folder, Submission: Submission{Code: "1"}}, "sees no folder of this computer"},
		{Request{Submission: Submission{Code: "1", Stdin: strings.NewReader("x")}}, "standard input does not reach it"},
		{Request{Submission: Submission{Code: "1", Args: []string{"x"}}}, "takes arguments only for a file"},
		{Request{Submission: Submission{Code: " "}}, "Missing 'code'"},
	} {
		if r := submit(t, b, tt.req); r.Status != ValidationError || !strings.Contains(r.Error, tt.want) {
			t.Errorf("%+v: %+v", tt.req, r)
		}
	}
	if r := b.Execute(t.Context(), Request{Principal: user, Backend: "moon", Submission: Submission{Code: "1"}}); r.Status != ValidationError || !strings.Contains(r.Error, "fake, local-batch") {
		t.Errorf("%+v", r)
	}
	if r := b.Execute(t.Context(), Request{Principal: user, Batch: &BatchOptions{Internet: true}, Submission: Submission{Code: "1"}}); r.Status != ValidationError {
		t.Errorf("%+v", r)
	}
	want(t, b.Execute(t.Context(), Request{Principal: user, Backend: "fake", Submission: Submission{Code: "7"}}), Success, 0, "7")
	if list, err := store.List(); err != nil || len(list) != 0 {
		t.Errorf("runs were begun: %v, %v", list, err)
	}
	// The folders of a client are those of every session that it has.
	r := submit(t, b, Request{Mounts: folder, Submission: Submission{Code: "print(7)"}})
	if notes := strings.Join(r.Notes, "; "); r.Status != Success || !strings.Contains(notes, "sees no folder of this computer") {
		t.Errorf("with a client's folder: %+v, want success and a note", r)
	}
	b, store = newBatch(t, func(l *batchtest.Local) {
		l.Report = func(r *sandbox.Report) {
			r.Usable, r.Findings = false, []sandbox.Finding{{Fatal: true, Title: "the key was refused", Remedy: "get another"}}
		}
	})
	if r := submit(t, b, Request{Submission: Submission{Code: "1"}}); r.Status != Failed || !strings.Contains(r.Error, "the key was refused") || !strings.Contains(r.Error, "get another") {
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
		cancel   func() error
		error    string
		detached bool
		state    runs.State
	}{
		{"where that is possible", nil, "the run was cancelled too", false, runs.Ended},
		{"where it is not", func() error {
			return &sandbox.Error{Op: "cancel", Backend: "fake", Kind: sandbox.ErrUnsupported, Err: errors.New("until 12:00, at https://example.org/k")}
		}, "the run goes on: until 12:00, at https://example.org/k", true, runs.Running},
		{"where that fails", func() error { return errors.New("no network") }, "could not be cancelled: no network", false, runs.Running},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, store := newBatch(t, func(l *batchtest.Local) { l.OnCancel = tt.cancel })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := b.Execute(ctx, Request{Principal: user, Backend: batchtest.Name, OnStatus: func(s string) {
				if s == "running" {
					cancel()
				}
			}, Submission: Submission{Code: "import time; time.sleep(60)"}})
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
	b, store := newBatch(t, unchanged)
	running, done := make(chan struct{}), make(chan *Result, 1)
	go func() {
		done <- b.Execute(context.Background(), Request{Principal: user, Backend: batchtest.Name, OnStatus: func(s string) {
			if s == "running" {
				close(running)
			}
		}, Submission: Submission{Code: "import time; time.sleep(60)"}})
	}()
	<-running
	b.Close()
	list, err := store.List()
	if err != nil || len(list) != 1 || list[0].Result == nil || list[0].Result.End != batch.Cancelled {
		t.Errorf("%+v, %v", list, err)
	}
	if r := <-done; r.Status != Failed {
		t.Errorf("%+v", r)
	}
}

func TestBatchIsHandedOver(t *testing.T) {
	t.Parallel()
	b, store := newBatch(t, unchanged)
	r := submit(t, b, Request{Batch: &BatchOptions{Detach: true}, Submission: Submission{Code: "print(1)"}})
	if r.Status != Success || r.Run == "" || len(r.Stdout) != 0 {
		t.Fatalf("%+v", r)
	}
	if record, err := store.Get(r.Run); err != nil || !record.Detached || record.Handle == nil {
		t.Errorf("%+v, %v", record, err)
	}
}
