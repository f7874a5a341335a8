package cli

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/store"
)

// endless is an engine whose runs do not end by themselves.
type endless struct{ batch.Service }

type endlessRun struct {
	batch.Run
	id string
}

func (endless) Submit(_ context.Context, s *batch.Job) (batch.Run, error) {
	return endlessRun{id: s.ID}, nil
}

func (endless) Attach(_ context.Context, h sandbox.Handle) (batch.Run, error) {
	return endlessRun{id: h.ID}, nil
}

func (r endlessRun) Handle() sandbox.Handle { return sandbox.Handle{Backend: "far", ID: r.id} }

func (endlessRun) Observe(func(batch.Progress)) {}

func (endlessRun) Result(ctx context.Context) (batch.Result, error) {
	<-ctx.Done()
	return batch.Result{}, ctx.Err()
}

// TestWaitThatIsGivenUp: the run goes on, as it is said, also when another
// Sallyport looks for what programs that died have left.
func TestWaitThatIsGivenUp(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	store := runs.NewStore(store.At(t.TempDir()), map[string]batch.Service{"far": endless{}}, 0, runs.Limits{}, log)
	job, err := store.Start(t.Context(), "far", batch.Job{Code: "1", Timeout: time.Minute}, runs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := job.ID()
	job.Close() // its program has died
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	u := &ui{ctx: ctx, stdio: Stdio{Out: io.Discard, Err: io.Discard}}
	if _, err := u.follow(store, id); err == nil {
		t.Fatal("it has not ended")
	}
	if r, err := store.Get(id); err != nil || !r.Detached || r.State == runs.Ended {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestDefaultsInHelp: what has no default has none in the help.
func TestDefaultsInHelp(t *testing.T) {
	vars := defaultsForHelp()
	if vars["engine"] != "setting engine, by default auto" {
		t.Errorf("%q", vars["engine"])
	}
	if len(vars) != len(mentioned) {
		t.Errorf("got %d settings, want %d: %q of %q", len(vars), len(mentioned), vars, mentioned)
	}
	for name, text := range vars {
		if strings.HasSuffix(text, "by default ") || strings.HasSuffix(text, "[]") {
			t.Errorf("%s: %q", name, text)
		}
	}
}
