package session

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session/capture"
	"github.com/sallyport/sallyport/internal/session/places"
	"github.com/sallyport/sallyport/internal/session/usage"
	"github.com/sallyport/sallyport/internal/wire"
)

// Preparation holds the servers of an execution. A definition is sent only if
// the sandbox does not have this version of it.
type Preparation struct {
	Grants     []string
	Define     []wire.Server
	Discovered []wire.ServerInfo
	// DiscoveredVersion changes with Discovered.
	DiscoveredVersion string
}

// Submission is what a caller asks to be run: the part of a request that every
// layer above the guest reads.
type Submission struct {
	Code string
	// Filename is what tracebacks call the code; empty numbers it as a cell.
	Filename string
	// Script runs the code as python runs a file: __name__ is "__main__" and
	// the last expression is not echoed.
	Script bool
	Args   []string // sys.argv[1:]
	// Stdin is the code's standard input, read as the code reads it. A read of
	// it may outlive the execution. Nil: it is empty.
	Stdin io.Reader
	// Timeout bounds the agent's own time.
	Timeout time.Duration
	// Files are put into the workspace before the code runs. Their paths are
	// relative and clean.
	Files []sandbox.File
	// OnOutput receives the code's output as it is written, on one goroutine at
	// a time; it must not keep the slice. The output waits while it blocks. It
	// may be nil.
	OnOutput func(wire.Stream, []byte)
	// HTML says that who reads the result sees pages: values with HTML become files of
	// it even where their text says as much.
	HTML bool
	// Measure makes sure that even the shortest execution is measured for its
	// result, which delays the answer by a millisecond.
	Measure bool
}

// Request is one execution: what is to be run, and what serves it.
type Request struct {
	Submission
	// Collect takes out files that the execution left; nil: none are.
	Collect Collect
	// Prepare is called when the request's turn has come, perhaps while the
	// sandbox starts; its error is the execution's. Nil: no servers.
	Prepare func(context.Context) (*Preparation, error)
	// Call answers the code's calls, each on a goroutine of its own, until ctx
	// is done. Nil: calls fail.
	Call func(ctx context.Context, call wire.Call) ([]byte, error)
	// Partial, if not nil, gives out the output while the execution runs. The
	// outcome then has only what was written since it was last taken.
	Partial *Partial
	// Told, if not nil, takes what servers tell while the code runs.
	Told *Told
	// Place is waited for when the request's turn in its session has come, and done
	// when it has ended; nil: the code may run at once, or is refused where there is no
	// room. Its line is the client whose session this is from then on, see Options.MaxRunning.
	Place *places.Place
	// OnUsage, if not nil, receives what the execution used: interim reports,
	// with Usage.Open set, and the final one once, outside of the path of the
	// answer and perhaps much later. It must not block.
	OnUsage func(usage.Usage)
}

// Partial gives out the output of a running execution. A nil Partial has none.
// It is safe for concurrent use.
type Partial struct {
	out atomic.Pointer[capture.Recorder]
}

// Started reports whether the code has been sent to its sandbox.
func (p *Partial) Started() bool { return p != nil && p.out.Load() != nil }

// Take returns what was written since the previous call.
func (p *Partial) Take() (stdout, stderr capture.Output) {
	if !p.Started() {
		return capture.Output{}, capture.Output{}
	}
	return p.out.Load().Take()
}

func (p *Partial) bind(out *capture.Recorder) {
	if p != nil {
		p.out.Store(out)
	}
}

// End tells how an execution ended.
type End int

// The ends of an execution.
const (
	Finished  End = iota // the code came to its end
	Raised               // by an exception that it did not catch
	Exited               // by SystemExit
	TimedOut             // we ended it
	Cancelled            // the caller did
	Died                 // its sandbox ended
)

// Outcome is the result of an execution.
type Outcome struct {
	Number   uint64 // of the execution in its sandbox, from 1
	Engine   string // that runs the sandbox
	End      End
	ExitCode int // of Finished, Raised, Exited, and of Died where Known
	Known    bool
	Stdout   capture.Output
	Stderr   capture.Output
	// Limit is the time limit that was exceeded, when TimedOut. Whole: it was
	// the limit on the whole run, waiting included.
	Limit time.Duration
	Whole bool
	// Fetching: the code ended by itself, and its time was up while its files
	// were being received.
	Fetching bool
	// Survived: the code was made to end, and the interpreter and its variables
	// survived.
	Survived bool
	// Stopped: its session ended, or its caller with ErrStop, before the code did.
	Stopped bool
	// Lost tells why the variables of earlier calls are gone: before this
	// execution, or because of it. Empty: they are not.
	Lost string
	// LostBefore is Lost of the last earlier outcome that had one.
	LostBefore string
	// Notice is what the caller should know about a session that was resumed
	// under other limits; empty: nothing.
	Notice string
	// Reason tells how the sandbox ended, when Died. OutOfMemory: it exceeded
	// its memory limit.
	Reason      string
	OutOfMemory bool
	Artifacts   []wire.Artifact
	// MoreArtifacts: there were more than the guest reports.
	MoreArtifacts bool
	// Collected are the files that Request.Collect wanted, if it keeps them in
	// memory, and LeftOut those that could not be received.
	Collected []sandbox.File
	LeftOut   []LeftOut
	// Error is the guest's description of the exception, when Raised; nil if it
	// gave none.
	Error *wire.Exception
	// Background counts what is still running, if that differs from after the
	// previous execution.
	Background wire.Background
	// IdleOutput is the end of the output since the previous execution, and
	// IdleOmitted is how many bytes before that were dropped.
	IdleOutput  string
	IdleOmitted int64
	Own, Wall   time.Duration
	Usage       *usage.Usage // nil: the run was too short to be measured
}
