package sandbox

import (
	"context"
	"os"
	"time"
)

// A batch engine has no channel: it takes Spec.Code, lets it run somewhere
// else, and answers once. Its runs outlive the program, so Attach finds them
// from their handles; a handle's Data may change while a run lasts
// ([Observer]), and never has a secret in it.

// Batch is what a Spec says besides to a batch engine. Engines with a channel
// refuse one that is not zero.
type Batch struct {
	// Filename is what tracebacks call the code. Empty: the engine's choice.
	Filename string
	// Script runs the code as python runs a file. Without it the value of the
	// last expression is echoed and await works at the top level, where the
	// engine can do that.
	Script bool
	// Args are the program's arguments, after its name.
	Args []string
	// Timeout bounds the run itself. The caller sets it.
	Timeout time.Duration
	// Queue bounds the wait for the run to begin. The caller sets it.
	Queue time.Duration
	// Accelerator is the hardware asked for, in the engine's own words. Empty:
	// none on an engine that lets one choose, and whatever there is otherwise.
	Accelerator string
	// Datasets are put beside the code, in the engine's own words.
	Datasets []string
	// Keep leaves at the service what a finished run would have removed there.
	Keep bool
	// MinIsolation and Require are what the policy demands of the place that
	// the code runs in, where only that place can say what it offers. An
	// engine that cannot find out before it sends the code refuses, unless its
	// own configuration accepts that.
	MinIsolation Isolation
	Require      map[Resource]Enforcement
}

// A BatchResulter is a Run of an engine without a channel: it takes Spec.Code
// and answers once.
type BatchResulter interface {
	// Result blocks until the run has ended, however it did. An error means
	// that this could not be found out; [ErrGone], that it never can be.
	Result(ctx context.Context) (BatchResult, error)
}

// BatchEnd is how a batch run ended.
type BatchEnd string

// The ends of a batch run. The zero value is that the code ended by itself,
// with BatchResult.ExitCode.
const (
	BatchExited    BatchEnd = ""
	BatchTimedOut  BatchEnd = "timed-out" // Batch.Timeout, or a limit of the service
	BatchExpired   BatchEnd = "expired"   // it never began, within Batch.Queue
	BatchCancelled BatchEnd = "cancelled"
	BatchFailed    BatchEnd = "failed" // the service, or what runs the code there, failed
	BatchLost      BatchEnd = "lost"   // it ran, and its result is not to be had any more
)

// BatchResult is what a batch run answered.
type BatchResult struct {
	Stdout, Stderr []byte
	ExitCode       int
	End            BatchEnd
	// Error says for people what happened, unless the code ended by itself.
	Error string
	// Truncated counts the bytes of output that were left out on the way.
	Truncated struct{ Stdout, Stderr int64 }
	// Queued and Ran are the wait and the run itself; 0 is unknown.
	Queued, Ran time.Duration
	// Usage is what the place of the run measured; nil: nothing.
	Usage *BatchUsage
	// Notes are for the reader of the result: where it ran, and what is other
	// there than in a local sandbox.
	Notes []string
}

// BatchUsage is what a run has used at its place. Zero is unknown.
type BatchUsage struct {
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

// A Fetcher is a batch run that can leave files.
type Fetcher interface {
	// Fetch writes the files that the run left into an empty directory, and
	// says which. It can be called again after an error. Paths are clean and
	// relative; their content is hostile.
	Fetch(ctx context.Context, dir *os.Root) ([]FetchedFile, error)
}

// FetchedFile is a file that Fetch has written.
type FetchedFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// An Observer is a batch run that tells how it goes while it lasts.
type Observer interface {
	// Observe sets what is called with every change from now on, by one
	// goroutine at a time. It is called at most once, before Result.
	Observe(func(Progress))
}

// Progress is what happened to a batch run. Each field only says something
// where it is not zero.
type Progress struct {
	// State is for people: "queued, 2 workers are starting".
	State string
	// Running: the code has begun.
	Running bool
	// Stdout and Stderr are what the code has written since the last call, as
	// far as the engine can tell before the run's end.
	Stdout, Stderr []byte
	// Handle replaces the run's handle, where it has learnt more of itself.
	Handle *Handle
}

// A Canceler is a batch run that can be told to end, where the service can do
// that. Destroy of a batch run cancels it where that is possible, and removes
// what it left at the service.
type Canceler interface {
	// Cancel asks the service to end the run, and returns when it has agreed.
	// [ErrUnsupported]: the run goes on; the text says where, and until when.
	Cancel(ctx context.Context) error
}

// A Sweeper is a batch Backend that can find runs of this program at the
// service that nobody has a record of any more.
type Sweeper interface {
	// Sweep ends and removes runs of the instance that are older than age and
	// whose IDs known does not accept, and says which.
	Sweep(ctx context.Context, age time.Duration, known func(id string) bool) ([]string, error)
}
