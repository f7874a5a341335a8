package broker

import (
	"io"
	"strings"
	"time"

	"sallyport/internal/sandbox"
	"sallyport/internal/session"
)

// Stream is one of the two that a program writes to.
type Stream = session.Stream

// The streams.
const (
	Stdout = session.Stdout
	Stderr = session.Stderr
)

// Request asks for one execution.
type Request struct {
	Code string
	// Filename is what tracebacks call the code; empty numbers it as a cell.
	Filename string
	// Script runs the code as python runs a file: __name__ is "__main__" and
	// the last expression is not echoed.
	Script bool
	// Args are the program's arguments, after its name.
	Args []string
	// Stdin is the code's standard input, as session.Request has it; none of a
	// batch engine's.
	Stdin   io.Reader
	Servers []string // MCP servers that the code is granted
	// Timeout bounds the agent's own time; 0 is the default, and values
	// outside of what is allowed are moved to its ends, which the result says.
	Timeout time.Duration
	// Session names whose variables the code sees; empty is the default one.
	Session string
	// Backend is the engine that runs the code; empty is the broker's own.
	Backend string
	// Batch says more to an engine without a channel.
	Batch Batch
	// Files are put into /workspace before the code runs.
	Files []sandbox.File
	// TakeFiles, if not nil, takes the files that the code left, each as it
	// comes (session.Collect.Create). Those of a batch engine lie in Runs.
	TakeFiles func(path string) (content io.Writer, done func(whole bool) error, err error)
	// OnStatus, if not nil, is told for people how the run of a batch engine
	// goes, by one goroutine at a time.
	OnStatus func(string)
	// Measure has even the shortest code measured for its result.
	Measure bool
	// Shown: a person reads the result at once, so that its failure is worth no
	// warning in the log.
	Shown bool
	// RequestID appears in log lines; one is made where it is empty.
	RequestID string
	// OnOutput, if not nil, is given what the code writes, as the bytes that
	// it wrote, while it runs. It is called by one goroutine at a time, must
	// not keep the slice, and delays the code's output while it blocks.
	OnOutput func(Stream, []byte)

	asked time.Duration // the timeout, where it was not allowed
}

// bound sets the timeout to what is allowed.
func (r *Request) bound(timeout time.Duration) {
	if r.Timeout != 0 && r.Timeout != timeout {
		r.asked = r.Timeout
	}
	r.Timeout = timeout
}

// Batch is what a request says besides to an engine without a channel.
type Batch struct {
	Accelerator string
	Datasets    []string
	Internet    bool
	// Keep leaves the finished run at the service.
	Keep bool
	// Detach answers as soon as the run has been handed over.
	Detach bool
}

// Invalid is the answer to a request whose arguments have the wrong form.
func Invalid(message string) *Result { return invalid(message) }

// validate returns the answer to a request that cannot be run, or nil.
func (r *Request) validate() *Result {
	if strings.TrimSpace(r.Code) == "" {
		return invalid("Missing 'code' argument")
	}
	return nil
}
