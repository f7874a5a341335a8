package batchtest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// runTimeout bounds one run of the suite.
const runTimeout = 60 * time.Second

// Run runs the suite, which every batch service passes, on a service that
// works. It closes the services that newService returns.
func Run(t *testing.T, newService func(testing.TB) batch.Service) {
	service := newService(t)
	t.Cleanup(func() {
		if err := service.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	t.Run("probe", func(t *testing.T) { probe(t, service) })
	t.Run("results", func(t *testing.T) { results(t, service) })
	t.Run("malformed jobs", func(t *testing.T) { malformed(t, service) })
	t.Run("a submission that was given up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if run, err := service.Submit(ctx, job("suite-x", "print(1)")); err == nil {
			_ = run.Destroy(context.Background())
			t.Error("Submit succeeded under a cancelled context")
		}
	})
	t.Run("a handle of another service", func(t *testing.T) {
		_, err := service.Attach(t.Context(), sandbox.Handle{Backend: "another", Version: 1, ID: "suite-x", Data: []byte(`{}`)})
		if !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("Attach: got %v, want ErrGone", err)
		}
	})
}

func job(id, code string) *batch.Job {
	return &batch.Job{ID: id, Code: code, Script: true, Timeout: 10 * time.Minute, Queue: time.Hour}
}

// probe: a report is complete, and the same when asked again, but for its
// findings: those tell how the service does at that moment.
func probe(t *testing.T, service batch.Service) {
	report, err := service.Probe(t.Context())
	if err != nil {
		t.Fatalf("Probe: %v", err)
	}
	if report.Backend != service.Name() || service.Name() == "" {
		t.Errorf("the report is of %q, want %q", report.Backend, service.Name())
	}
	if !report.Usable || !report.Remote || report.Duplex {
		t.Errorf("got usable %t, remote %t, duplex %t, want true, true, false", report.Usable, report.Remote, report.Duplex)
	}
	for _, f := range report.Findings {
		if f.Title == "" || f.Fatal {
			t.Errorf("got finding %+v, want a title and nothing fatal", f)
		}
	}
	for _, what := range []sandbox.Resource{sandbox.Memory, sandbox.Processes, sandbox.CPU, sandbox.Disk, sandbox.OpenFiles} {
		l, ok := report.Limits[what]
		if !ok {
			t.Errorf("the report does not mention the limit on %s", what)
		} else if l.Enforcement != sandbox.Absent && l.By == "" {
			t.Errorf("the report does not say what enforces the limit on %s", what)
		}
	}
	if _, err := json.Marshal(report); err != nil {
		t.Error(err)
	}
	again, err := service.Probe(t.Context())
	if err != nil {
		t.Fatalf("second Probe: %v", err)
	}
	again.Findings, report.Findings = nil, nil
	if diff := cmp.Diff(report, again); diff != "" {
		t.Errorf("second Probe (-first +second):\n%s", diff)
	}
}

func results(t *testing.T, service batch.Service) {
	for i, tt := range []struct {
		name, code, stdout, stderr string
		exitCode                   int
	}{
		{"text", "print('hello')", "hello\n", "", 0},
		{"exit status", "import sys; print('x'); sys.exit(3)", "x\n", "", 3},
		{"exception", "1 / 0", "", "ZeroDivisionError", 1},
		{"unicode", "print('ü🐍')", "ü🐍\n", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
			defer cancel()
			id := "suite-" + string(rune('a'+i))
			run, err := service.Submit(ctx, job(id, tt.code))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				for range 2 { // Destroy is idempotent
					if err := run.Destroy(context.Background()); err != nil {
						t.Errorf("Destroy: %v", err)
					}
				}
			}()
			if h := run.Handle(); h.Backend != service.Name() || h.ID != id || h.Version == 0 {
				t.Errorf("got handle %+v of run %s on %s", h, id, service.Name())
			}
			for range 2 { // Result is the same at every call
				got, err := run.Result(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if string(got.Stdout) != tt.stdout || got.ExitCode != tt.exitCode || got.End != batch.Exited || !strings.Contains(string(got.Stderr), tt.stderr) {
					t.Errorf("got stdout %q, stderr %q, exit code %d, end %q, want %q, %q, %d", got.Stdout, got.Stderr, got.ExitCode, got.End, tt.stdout, tt.stderr, tt.exitCode)
				}
			}
		})
	}
}

func malformed(t *testing.T, service batch.Service) {
	for _, tt := range []struct {
		name  string
		spoil func(*batch.Job)
	}{
		{"no ID", func(j *batch.Job) { j.ID = "" }},
		{"ID with a path", func(j *batch.Job) { j.ID = "../x" }},
		{"no code", func(j *batch.Job) { j.Code = "" }},
		{"no timeout", func(j *batch.Job) { j.Timeout = 0 }},
		{"negative wait", func(j *batch.Job) { j.Queue = -1 }},
		{"negative limit", func(j *batch.Job) { j.Limits.MemoryBytes = -1 }},
		{"variable with =", func(j *batch.Job) { j.Env = map[string]string{"A=B": "c"} }},
		{"file above", func(j *batch.Job) { j.Files = []sandbox.File{{Path: "../escape"}} }},
		{"absolute file", func(j *batch.Job) { j.Files = []sandbox.File{{Path: "/etc/escape"}} }},
		{"file below a file", func(j *batch.Job) { j.Files = []sandbox.File{{Path: "a"}, {Path: "a/b"}} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := job("suite-m", "print(1)")
			tt.spoil(j)
			run, err := service.Submit(t.Context(), j)
			if err == nil {
				_ = run.Destroy(context.Background())
				t.Fatal("Submit succeeded")
			}
			var e *sandbox.Error
			if !errors.Is(err, sandbox.ErrInvalidSpec) || !errors.As(err, &e) || e.Backend != service.Name() {
				t.Errorf("got error %#v, want an ErrInvalidSpec of %s", err, service.Name())
			}
		})
	}
}
