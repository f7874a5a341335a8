package supervise

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// fakeRun is a run that only its owner ends.
type fakeRun struct {
	runs      *Runs
	id        string
	destroyed int
}

func (f *fakeRun) Handle() sandbox.Handle                     { return f.runs.Handle(f.id) }
func (f *fakeRun) Wait(context.Context) (sandbox.Exit, error) { return sandbox.Exit{}, nil }
func (f *fakeRun) Destroy(context.Context) error {
	f.destroyed++
	f.runs.Drop(f.id)
	return nil
}

func TestRuns(t *testing.T) {
	var counts []int
	runs := NewRuns("engine", func(n int) { counts = append(counts, n) })
	start := func(id string) (*fakeRun, error) {
		f := &fakeRun{runs: runs, id: id}
		_, err := runs.Register(id, func() (sandbox.Run, error) { return f, nil })
		return f, err
	}
	one, err := start("one")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := start("one"); !errors.Is(err, sandbox.ErrStart) {
		t.Errorf("second run of the same ID: got %v, want ErrStart", err)
	}
	if got, err := runs.Attach(one.Handle(), func() error { t.Error("swept"); return nil }, quiet); got != one || err != nil {
		t.Errorf("Attach: got %v, %v, want the run", got, err)
	}
	failure := errors.New("it fails")
	if _, err := runs.Register("two", func() (sandbox.Run, error) { return nil, failure }); !errors.Is(err, failure) || !errors.Is(err, sandbox.ErrStart) {
		t.Errorf("failed start: got %v, want its error and ErrStart", err)
	}
	if _, err := start("two"); err != nil {
		t.Errorf("start after a failed one of the same ID: %v", err)
	}
	var late *fakeRun
	_, err = runs.Register("three", func() (sandbox.Run, error) {
		if err := runs.Close(time.Second); err != nil {
			t.Error(err)
		}
		late = &fakeRun{runs: runs, id: "three"}
		return late, nil
	})
	if !errors.Is(err, ErrClosed) {
		t.Errorf("start during Close: got %v, want ErrClosed", err)
	}
	if one.destroyed != 1 || late.destroyed != 1 {
		t.Errorf("destroyed: got %d and %d times, want once each", one.destroyed, late.destroyed)
	}
	if _, err := start("four"); !errors.Is(err, ErrClosed) || !runs.Closed() {
		t.Errorf("start after Close: got %v, want ErrClosed", err)
	}
	slices.Sort(counts[5:7]) // Close destroys at once
	if want := []int{1, 2, 1, 2, 3, 1, 2, 0}; !slices.Equal(counts, want) {
		t.Errorf("counts: got %v, want %v", counts, want)
	}
}

func TestAttachRejects(t *testing.T) {
	runs := NewRuns("engine", nil)
	swept := 0
	tests := []struct {
		name   string
		handle sandbox.Handle
		want   error
		swept  int
	}{
		{"another engine", sandbox.Handle{Backend: "other", Version: 1, ID: "a"}, sandbox.ErrInvalidSpec, 0},
		{"another version", sandbox.Handle{Backend: "engine", Version: 2, ID: "a"}, sandbox.ErrUnsupported, 0},
		{"unknown", runs.Handle("a"), sandbox.ErrGone, 1},
	}
	for _, tt := range tests {
		swept = 0
		run, err := runs.Attach(tt.handle, func() error { swept++; return nil }, quiet)
		if run != nil || !errors.Is(err, tt.want) || swept != tt.swept {
			t.Errorf("%s: got %v, %v, swept %d times; want %v, swept %d times", tt.name, run, err, swept, tt.want, tt.swept)
		}
	}
}

// TestSpecIsChecked: a refused spec starts nothing and gets the kind that its
// error has.
func TestSpecIsChecked(t *testing.T) {
	runs := NewRuns("engine", nil)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name  string
		ctx   context.Context
		check error
		want  error
	}{
		{"malformed", t.Context(), errors.New("no"), sandbox.ErrInvalidSpec},
		{"unsupported", t.Context(), sandbox.ErrUnsupported, sandbox.ErrUnsupported},
		{"its own kind", t.Context(), &sandbox.Error{Kind: sandbox.ErrUnavailable}, sandbox.ErrUnavailable},
		{"cancelled", cancelled, nil, context.Canceled},
	}
	for _, tt := range tests {
		_, err := runs.Start(tt.ctx, &sandbox.Spec{ID: "a"}, func(*sandbox.Spec) error { return tt.check }, func() (sandbox.Run, error) {
			t.Errorf("%s: started", tt.name)
			return nil, nil
		})
		if !errors.Is(err, tt.want) || !errors.As(err, new(*sandbox.Error)) {
			t.Errorf("%s: got %v, want a *sandbox.Error of kind %v", tt.name, err, tt.want)
		}
	}
}
