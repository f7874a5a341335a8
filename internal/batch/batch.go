// Package batch is the contract between Sallyport and the services that run
// code on other machines and answer once: RunPod and Kaggle. A service has no
// channel to the running code, so it offers no sessions and no tools; package
// sandbox is the contract of engines, which do. A run outlives the program
// that submitted it and is found again from its handle.
package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// A Service runs jobs on other machines. All methods are safe for concurrent
// use. Its errors are of type [sandbox.Error], with the kinds of that package.
type Service interface {
	// Name is the service's name as a user writes it: "runpod", "kaggle".
	Name() string

	// Probe reports whether the service can be used and what it enforces where
	// the code runs. It runs no code. An error means that probing itself
	// failed.
	Probe(ctx context.Context) (*sandbox.Report, error)

	// Submit hands a job to the service, at most once. When the service may
	// have accepted the job without confirming it, Submit returns a Run whose
	// Result says so. Cancelling ctx after Submit has returned does not end
	// the run.
	Submit(ctx context.Context, job *Job) (Run, error)

	// Attach finds the run that a handle describes, usually after a restart of
	// this program. A handle without Data is of a run whose submission was
	// interrupted. [sandbox.ErrGone] means that the service has no such run.
	Attach(ctx context.Context, h sandbox.Handle) (Run, error)

	// Sweep ends and removes the runs that this installation submitted more
	// than age ago and whose IDs known does not accept. It returns their IDs.
	Sweep(ctx context.Context, age time.Duration, known func(id string) bool) ([]string, error)

	// Close releases connections. Runs go on.
	Close() error
}

// A Run is one submitted job. All methods are safe for concurrent use.
type Run interface {
	// Handle describes the run for a later Attach. Its Data may change while
	// the run lasts ([Progress].Handle) and never contains a secret.
	Handle() sandbox.Handle

	// Observe sets the function that is called with every change from now on,
	// by one goroutine at a time. It is called at most once, before Result.
	Observe(func(Progress))

	// Result blocks until the run has ended, however it did. An error means
	// that the outcome could not be determined; [sandbox.ErrGone], that it
	// never can be.
	Result(ctx context.Context) (Result, error)

	// Fetch writes the files that the run left into an empty directory and
	// lists them. It can be called again after an error. Paths are clean and
	// relative; the contents are hostile.
	Fetch(ctx context.Context, dir *os.Root) ([]File, error)

	// Cancel asks the service to end the run, and returns when the service has
	// agreed. [sandbox.ErrUnsupported] means that the run goes on; the message
	// says where and until when.
	Cancel(ctx context.Context) error

	// Destroy cancels the run where the service can do that, and removes what
	// the run left at the service. It is idempotent, and finishes its work
	// even when ctx is already cancelled, within a deadline of its own.
	Destroy(ctx context.Context) error
}

// A Job is the code to run and what it needs.
type Job struct {
	// ID names the run: 1 to 63 characters of [a-z0-9-], unique for the
	// installation. The caller chooses it before Submit, so that a sweep can
	// recognize what a crash left.
	ID string
	// Code is the program.
	Code string
	// Filename is what tracebacks call the code. Empty: the service's choice.
	Filename string
	// Script runs the code as python runs a file. Without it the value of the
	// last expression is echoed and await works at the top level, where the
	// service supports that.
	Script bool
	// Args are the program's arguments, after its name.
	Args []string
	// Env is added to the program's environment.
	Env map[string]string
	// Files are placed in the program's working directory.
	Files []sandbox.File
	// Limits bound the run. A zero limit takes the service's default.
	Limits sandbox.Limits
	// Timeout bounds the run itself, and Queue the wait for it to begin. The
	// caller sets both.
	Timeout, Queue time.Duration
	// Accelerator is the hardware asked for, in the service's own words.
	// Empty: the service's default.
	Accelerator string
	// Datasets are made available to the code, in the service's own words.
	Datasets []string
	// Internet gives the code access to the internet.
	Internet bool
	// Keep leaves the finished run at the service.
	Keep bool
	// MinIsolation and Require are what the policy demands of the machine that
	// runs the code. A service that cannot check them before it sends the code
	// refuses the job, unless its own configuration accepts that.
	MinIsolation sandbox.Isolation
	Require      map[sandbox.Resource]sandbox.Enforcement
}

// Check reports what is malformed in a job, whatever the service.
func (j *Job) Check() error {
	if err := sandbox.CheckID(j.ID); err != nil {
		return err
	}
	if j.Code == "" {
		return errors.New("the job has no code")
	}
	if j.Timeout <= 0 || j.Queue <= 0 {
		return fmt.Errorf("the job needs a timeout (%v) and a limit on its wait (%v)", j.Timeout, j.Queue)
	}
	return cmp.Or(j.Limits.Check(), sandbox.CheckEnv(j.Env), sandbox.CheckFiles(j.Files))
}

// End is how a run ended.
type End string

// The ends of a run. The zero value means that the code ended by itself, with
// Result.ExitCode.
const (
	Exited    End = ""
	TimedOut  End = "timed-out" // Job.Timeout, or a limit of the service
	Expired   End = "expired"   // it did not begin within Job.Queue
	Cancelled End = "cancelled"
	Failed    End = "failed" // the service, or the machine that ran the code, failed
	Lost      End = "lost"   // it ran, and its result is no longer available
)

// Result is the outcome of a run.
type Result struct {
	Stdout, Stderr []byte
	ExitCode       int
	End            End
	// Error explains the end to a person, unless the code ended by itself.
	Error string
	// Truncated counts the bytes of output that were dropped on the way.
	Truncated struct{ Stdout, Stderr int64 }
	// Queued and Ran are the durations of the wait and of the run itself; 0 is
	// unknown.
	Queued, Ran time.Duration
	// Usage is what was measured where the code ran; nil: nothing.
	Usage *Usage
	// Notes tell the reader where the code ran and how that differs from a
	// local sandbox.
	Notes []string
}

// Usage is what a run used. Zero is unknown.
type Usage struct {
	CPU       time.Duration // of all its processes
	MeanBytes int64         // of memory, over the time that it ran
	PeakBytes int64
	CPUModel  string
	GPUModel  string
	GPUs      int
	// GPUJoules is measured by the GPU itself.
	GPUJoules float64
	// Region is the place in the service's own words, such as a data center.
	Region string
}

// File is a file that Fetch has written.
type File struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// Progress is a change in a run. A zero field means no change.
type Progress struct {
	// State is for people: "queued, 2 workers are starting".
	State string
	// Running: the code has begun.
	Running bool
	// Stdout and Stderr are what the code has written since the last call, as
	// far as the service reports it before the run's end.
	Stdout, Stderr []byte
	// Handle replaces the run's handle.
	Handle *sandbox.Handle
}
