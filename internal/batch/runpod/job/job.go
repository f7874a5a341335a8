// Package job is what Sallyport's client and Sallyport's worker say to each
// other inside a RunPod job. Both forms are supersets of the ones that plain
// Python workers know: {"input": {"code": …}} and
// {"stdout": …, "stderr": …, "return_code": …}.
package job

import (
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// Version is that of Request and Answer. A worker refuses a request whose
// version it does not know; a client takes such an answer for a plain one.
const Version = 1

// Input is a job's "input". Request.Code takes the place of Code in requests
// that only Sallyport's worker may run: any other finds no code in them.
type Input struct {
	Code      string   `json:"code,omitempty"`
	Sallyport *Request `json:"sallyport,omitempty"`
}

// Program is the code to run.
func (in *Input) Program() string {
	if in.Sallyport != nil && in.Sallyport.Code != "" {
		return in.Sallyport.Code
	}
	return in.Code
}

// Request is what the code is to run with. The zero value of each field
// leaves it to the worker.
type Request struct {
	Version int `json:"version,omitempty"`
	// Probe 1 asks for an Answer with a Report. Nothing is run, and no other
	// field says anything.
	Probe int    `json:"probe,omitempty"`
	Code  string `json:"code,omitempty"`
	// Run is the client's own ID for the run. A worker that is given a run a
	// second time, under whatever job ID, does not run it again: it answers
	// what it answered before, or that it cannot, with Redelivered set.
	Run string `json:"run,omitempty"`
	// Owner and SentMs are for the client alone: which Sallyport sent it, and
	// when, in milliseconds since 1970.
	Owner  string `json:"owner,omitempty"`
	SentMs int64  `json:"sentMs,omitempty"`
	// Script runs the code as python runs a file. Without it the value of the
	// last expression is echoed and await works at the top level.
	Script bool     `json:"script,omitempty"`
	Args   []string `json:"args,omitempty"`
	// Filename is what tracebacks call the code.
	Filename string `json:"filename,omitempty"`
	// Files are put into the working directory.
	Files []File `json:"files,omitempty"`
	// Env is added to the code's environment.
	Env map[string]string `json:"env,omitempty"`
	// TimeoutMs bounds the run itself; the worker ends it with
	// End "timed-out" and what the code had written.
	TimeoutMs int64   `json:"timeoutMs,omitempty"`
	Limits    *Limits `json:"limits,omitempty"`
	// Internet asks for the network of the place. Without it there is none.
	Internet bool `json:"internet,omitempty"`
	// MinIsolation and Require are what the policy demands. A worker that
	// does not offer it answers End "refused" and runs nothing.
	MinIsolation string            `json:"minIsolation,omitempty"`
	Require      map[string]string `json:"require,omitempty"`
	Output       *Wanted           `json:"output,omitempty"`
	// Session is the name of a session that the worker keeps, where its
	// configuration lets it. Empty: a fresh sandbox.
	Session string `json:"session,omitempty"`
}

// Wanted is what the client wants of the output.
type Wanted struct {
	// Stream: send Chunks while the code runs.
	Stream bool `json:"stream,omitempty"`
	// Files: send back new and changed files of the working directory, as
	// long as together they are no more than FileBytes.
	Files     bool  `json:"files,omitempty"`
	FileBytes int64 `json:"fileBytes,omitempty"`
}

// Limits are sandbox.Limits on the wire.
type Limits struct {
	MemoryBytes    int64   `json:"memoryBytes,omitempty"`
	Processes      int     `json:"processes,omitempty"`
	CPUs           float64 `json:"cpus,omitempty"`
	WorkspaceBytes int64   `json:"workspaceBytes,omitempty"`
	TmpBytes       int64   `json:"tmpBytes,omitempty"`
	PackagesBytes  int64   `json:"packagesBytes,omitempty"`
	OpenFiles      int     `json:"openFiles,omitempty"`
	OutputBytes    int64   `json:"outputBytes,omitempty"`
}

// File is a file on its way in or out. Path is relative and clean; Data
// travels in base64.
type File struct {
	Path string `json:"path"`
	Data []byte `json:"data"`
	Mode uint32 `json:"mode,omitempty"`
}

// Output is a job's "output".
type Output struct {
	Stdout     string  `json:"stdout"`
	Stderr     string  `json:"stderr"`
	ReturnCode int     `json:"return_code"`
	Sallyport  *Answer `json:"sallyport,omitempty"`
}

// The ends that a worker can report. The zero value is that the code ended by
// itself, with Output.ReturnCode.
const (
	EndTimedOut  = "timed-out" // Request.TimeoutMs
	EndCancelled = "cancelled"
	EndFailed    = "failed"  // the sandbox failed, not the code
	EndRefused   = "refused" // nothing was run; Answer.Error says why
)

// Answer is what the worker says besides.
type Answer struct {
	Version int `json:"version"`
	// Worker is the worker's program and version: "sallyport 0.1.0".
	Worker string `json:"worker,omitempty"`
	Run    string `json:"run,omitempty"`
	// Attempt is that of the Started chunk of the run that this answers.
	Attempt string  `json:"attempt,omitempty"`
	Report  *Report `json:"report,omitempty"`
	End     string  `json:"end,omitempty"`
	// Error is for people. It is set with each End.
	Error string `json:"error,omitempty"`
	Files []File `json:"files,omitempty"`
	// LeftOut are files that were too large to send along.
	LeftOut     []Omitted  `json:"leftOut,omitempty"`
	Truncated   *Truncated `json:"truncated,omitempty"`
	RanMs       int64      `json:"ranMs,omitempty"`
	Usage       *Usage     `json:"usage,omitempty"`
	Redelivered bool       `json:"redelivered,omitempty"`
	Notes       []string   `json:"notes,omitempty"`
}

// Omitted is a file that stayed at the worker, and is gone with it.
type Omitted struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// Truncated counts the bytes of output that were left out.
type Truncated struct {
	Stdout int64 `json:"stdout,omitempty"`
	Stderr int64 `json:"stderr,omitempty"`
}

// Usage is what the run has used. Zero is unknown.
type Usage struct {
	CPUSeconds float64 `json:"cpuSeconds,omitempty"`
	MeanBytes  int64   `json:"meanBytes,omitempty"`
	PeakBytes  int64   `json:"peakBytes,omitempty"`
	CPUModel   string  `json:"cpuModel,omitempty"`
	GPUModel   string  `json:"gpuModel,omitempty"`
	GPUs       int     `json:"gpus,omitempty"`
	GPUJoules  float64 `json:"gpuJoules,omitempty"`
	Region     string  `json:"region,omitempty"`
}

// Report is where the worker runs code: sandbox.Report on the wire.
type Report struct {
	Engine    string                 `json:"engine"` // "gvisor", "process"
	Isolation string                 `json:"isolation"`
	Limits    map[string]LimitReport `json:"limits"`
	Runtime   string                 `json:"runtime,omitempty"`
	GPU       string                 `json:"gpu,omitempty"`
	// Streams: the worker sends Chunks when asked to.
	Streams bool `json:"streams,omitempty"`
	// Internet: code can be given the network of the place.
	Internet bool `json:"internet,omitempty"`
}

// LimitReport says how one limit is enforced at the worker.
type LimitReport struct {
	Enforcement string `json:"enforcement"`
	By          string `json:"by,omitempty"`
}

// Chunk is one part of a stream. A worker's first is Started. A client puts
// output together with At, the offset of its first byte in that stream, as
// chunks can be lost on the way.
type Chunk struct {
	Started *Started `json:"started,omitempty"`
	Stdout  string   `json:"stdout,omitempty"`
	Stderr  string   `json:"stderr,omitempty"`
	At      int64    `json:"at,omitempty"`
}

// Started says that a worker has begun to run the code. Two with different
// Attempts mean that the job was delivered twice.
type Started struct {
	Attempt string `json:"attempt"` // random, made anew for each execution
	Worker  string `json:"worker"`  // RUNPOD_POD_ID
}

// FromReport is a report as the worker sends it.
func FromReport(r *sandbox.Report) *Report {
	out := &Report{Engine: r.Backend, Isolation: r.Isolation.String(), Runtime: r.Runtime, Limits: map[string]LimitReport{}}
	for res, l := range r.Limits {
		out.Limits[string(res)] = LimitReport{Enforcement: l.Enforcement.String(), By: l.By}
	}
	return out
}

// Report is a worker's report as the client gives it on. Words that it does
// not know count as nothing offered.
func (r *Report) Report(backend string) *sandbox.Report {
	out := &sandbox.Report{Backend: backend, Usable: true, Remote: true, Limits: map[sandbox.Resource]sandbox.LimitReport{}}
	out.Isolation, _ = ParseIsolation(r.Isolation)
	out.Runtime = r.Runtime
	for name, l := range r.Limits {
		e, _ := ParseEnforcement(l.Enforcement)
		out.Limits[sandbox.Resource(name)] = sandbox.LimitReport{Enforcement: e, By: l.By}
	}
	return out
}

// ParseIsolation is the inverse of sandbox.Isolation's String.
func ParseIsolation(s string) (sandbox.Isolation, bool) {
	for i := sandbox.NoIsolation; i <= sandbox.KernelIsolation; i++ {
		if i.String() == s {
			return i, true
		}
	}
	return sandbox.NoIsolation, false
}

// ParseEnforcement is the inverse of sandbox.Enforcement's String.
func ParseEnforcement(s string) (sandbox.Enforcement, bool) {
	for e := sandbox.Absent; e <= sandbox.Hard; e++ {
		if e.String() == s {
			return e, true
		}
	}
	return sandbox.Absent, false
}

// FromLimits are limits as the client sends them.
func FromLimits(l sandbox.Limits) *Limits {
	w := Limits(l)
	return &w
}

// SandboxLimits are the limits that the client sent; none sent is none set.
func (r *Request) SandboxLimits() sandbox.Limits {
	if r.Limits == nil {
		return sandbox.Limits{}
	}
	return sandbox.Limits(*r.Limits)
}

// Timeout is Request.TimeoutMs.
func (r *Request) Timeout() time.Duration {
	return time.Duration(r.TimeoutMs) * time.Millisecond
}

// FromUsage is usage as the worker sends it.
func FromUsage(u *batch.Usage) *Usage {
	if u == nil {
		return nil
	}
	return &Usage{CPUSeconds: u.CPU.Seconds(), MeanBytes: u.MeanBytes, PeakBytes: u.PeakBytes, CPUModel: u.CPUModel, GPUModel: u.GPUModel,
		GPUs: u.GPUs, GPUJoules: u.GPUJoules, Region: u.Region}
}

// Usage is a worker's usage as the client gives it on. What cannot be true is
// left out.
func (u *Usage) Usage() *batch.Usage {
	if u == nil {
		return nil
	}
	out := &batch.Usage{CPUModel: u.CPUModel, GPUModel: u.GPUModel, Region: u.Region}
	if u.CPUSeconds > 0 && u.CPUSeconds < 1e9 {
		out.CPU = time.Duration(u.CPUSeconds * float64(time.Second))
	}
	out.MeanBytes, out.PeakBytes = max(u.MeanBytes, 0), max(u.PeakBytes, 0)
	out.GPUs = max(u.GPUs, 0)
	if u.GPUJoules > 0 && u.GPUJoules < 1e15 {
		out.GPUJoules = u.GPUJoules
	}
	return out
}
