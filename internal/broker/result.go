package broker

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/artifact"
	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/session/capture"
	"github.com/sallyport/sallyport/internal/usage/carbon"
)

// Status is how an execution ended, as an agent reads it.
type Status string

// The statuses.
const (
	Success         Status = "success"
	Timeout         Status = "timeout"
	Failed          Status = "error"
	ValidationError Status = "validation_error"
	// Running: the code goes on after this answer; see Request.Within.
	Running Status = "running"
)

// Result is the full answer to one request. Its JSON form has these keys in
// this order, each only when it says something.
//
// Standard output and error are lists of lines, as clients of the first
// code-execution bridge know them. That one dropped lines of white space and
// lines equal to "()"; here every line that was printed is in the list. A
// final line feed ends the last line and makes no line of its own.
//
// Also unlike there, an exception that the code does not catch is an error
// with exit code 1, and sys.exit(n) is its own exit code: reporting them as
// success hides from the agent that its code failed.
type Result struct {
	Status         Status     `json:"status,omitempty"`
	Summary        string     `json:"summary,omitempty"`
	ExitCode       *int       `json:"exitCode,omitempty"` // nil: the code did not end by itself, or never ran
	Servers        []string   `json:"servers,omitempty"`
	Stdout         []string   `json:"stdout,omitempty"`
	Stderr         []string   `json:"stderr,omitempty"`
	Error          string     `json:"error,omitempty"`
	TimeoutSeconds float64    `json:"timeoutSeconds,omitempty"` // the limit that was hit
	Session        string     `json:"session,omitempty"`        // when one was asked for by name
	StateLost      string     `json:"stateLost,omitempty"`      // why variables of earlier calls are gone
	Interrupted    bool       `json:"interrupted,omitempty"`    // the code was stopped and the interpreter lives on
	Truncated      *Truncated `json:"truncated,omitempty"`
	Artifacts      []Artifact `json:"artifacts,omitempty"`
	Backend        string     `json:"backend,omitempty"`  // when one was asked for by name
	Run            string     `json:"run,omitempty"`      // of a batch service: `sallyport runs` shows it
	QueuedMs       int64      `json:"queuedMs,omitempty"` // how long the run waited to begin
	DurationMs     int64      `json:"durationMs,omitempty"`
	Usage          *Usage     `json:"usage,omitempty"`
	Notes          []string   `json:"notes,omitempty"`

	// Cell is the number of the execution in its session, as in "<cell 3>"; 0: none
	// in a session.
	Cell uint64 `json:"-"`
	// OutOfMemory says that the code's end was that of its sandbox's memory.
	OutOfMemory bool `json:"-"`
	// Ended: the session or the program ended before the code did.
	Ended bool `json:"-"`
	// ShowUsage has compact forms tell the usage, too.
	ShowUsage bool `json:"-"`
	// Ran is how long a run of a batch service took without its wait, 0 where
	// that is not known.
	Ran time.Duration `json:"-"`
	// Details is what the user may read of why the code did not run, and an
	// agent may not: command lines, addresses, a server's last words.
	Details string `json:"-"`
	// Images are those among the artifacts that fit into an answer.
	Images []Image `json:"-"`
	// Unshown names the pictures that do not, with a reason in brackets unless the
	// answer was full.
	Unshown []string `json:"-"`
	// NotTaken says that Request.TakeFiles did not get all of the files.
	NotTaken bool `json:"-"`
	// Dropped is what Truncated has of standard output and error, as text.
	Dropped [2]Dropped `json:"-"`
}

// Dropped counts what was left out of a stream, as text.
type Dropped = capture.Lost

// Image is a picture that the code left, as a client shows it.
type Image struct {
	Path     string
	About    string // what it shows, as the sandbox tells it
	MIMEType string
	Data     []byte
	From     string // the size of the picture that it was made from: "4000×3000"; empty: it is whole
}

// Name is what an agent reads before the picture.
func (i *Image) Name() string {
	name := clip(i.Path)
	if i.About != "" {
		name += ": " + clip(i.About)
	}
	if i.From != "" {
		name += " (scaled from " + i.From + ")"
	}
	return name
}

// MorePictures names the pictures that the answer does not show, and how to see them.
// It is empty if there are none.
func (r *Result) MorePictures() string {
	if len(r.Unshown) == 0 {
		return ""
	}
	const most = 10
	names := slices.Clone(r.Unshown[:min(most, len(r.Unshown))])
	if more := len(r.Unshown) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	more := " more"
	if len(r.Images) == 0 {
		more = ""
	}
	text := fmt.Sprintf("%d%s not shown: %s", len(r.Unshown), more, strings.Join(names, ", "))
	if !slices.ContainsFunc(r.Unshown, func(name string) bool { return !strings.HasSuffix(name, ")") }) {
		return text // each has its reason
	}
	text += fmt.Sprintf(". An answer has up to %d pictures", maxImages)
	if r.Run != "" {
		return text + "; the others are files of the run"
	}
	return text + `; pathlib.Path("NAME").touch() in the next call shows one`
}

// clip is a part of a line that the sandbox tells.
func clip(text string) string {
	const most = 200
	if text = shown(text); utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most]) + "…"
	}
	return text
}

// Artifact is a file that the code left new or changed in /workspace, as the
// sandbox tells it. One that is kept has the size of what is kept.
type Artifact struct {
	Path     string `json:"path"`
	Size     int64  `json:"size"`
	URI      string `json:"uri,omitempty"` // where it can be read as a resource: it is kept
	MIMEType string `json:"-"`             // empty: not known
}

// Kept is the ID of the record of the artifacts that are kept on this computer; empty
// if none are.
func (r *Result) Kept() string {
	for _, a := range r.Artifacts {
		if id, _, ok := artifact.ParseURI(a.URI); ok {
			return id
		}
	}
	return ""
}

// Truncated says how many bytes of each stream were left out.
type Truncated struct {
	Stdout int64 `json:"stdout,omitempty"`
	Stderr int64 `json:"stderr,omitempty"`
}

// Usage is what the host measured for one execution. It is only there for
// those that ran long enough to be measured.
type Usage struct {
	CPUSeconds      *float64 `json:"cpuSeconds"`                // nil: not known
	PeakMemoryBytes int64    `json:"peakMemoryBytes,omitempty"` // of the sandbox since its start; 0: not known
	// Footprint is what it comes to: method, energy and emissions; nil where
	// there is no accounting.
	*carbon.Footprint
}

// Compact returns the result without what its plain text already says or what
// matters only to programs: the form that an agent pays tokens for.
func (r *Result) Compact() *Result {
	c := *r
	if c.Status == Success {
		c.Status = ""
		if len(c.Stdout) > 0 {
			c.Summary = ""
		}
	}
	if c.ExitCode != nil && *c.ExitCode == 0 {
		c.ExitCode = nil
	}
	if c.DurationMs < 1000 {
		c.DurationMs = 0
	}
	if c.ShowUsage {
		c.Usage = c.Usage.short()
	} else {
		c.Usage = nil
	}
	return &c
}

// Facts returns what a program may want to know of a result whose text a model
// reads: all but sentences and output, or nil if that says nothing.
func (r *Result) Facts() *Result {
	c := r.Compact()
	f := Result{
		Status: c.Status, ExitCode: c.ExitCode, Servers: c.Servers, TimeoutSeconds: c.TimeoutSeconds, Session: c.Session,
		Interrupted: c.Interrupted, Truncated: c.Truncated, Artifacts: c.Artifacts, Backend: c.Backend, Run: c.Run,
		QueuedMs: c.QueuedMs, DurationMs: c.DurationMs, Usage: c.Usage,
	}
	if reflect.DeepEqual(f, Result{Servers: f.Servers[:0], Artifacts: f.Artifacts[:0]}) {
		return nil
	}
	return &f
}

// Text is the result as plain text for an agent: all that it has to know, and no
// sentence twice.
func (r *Result) Text() string {
	var b strings.Builder
	line := func(parts ...string) {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		for _, p := range parts {
			b.WriteString(p)
		}
	}
	if r.Status != Success {
		line("status: ", string(r.Status))
	}
	if r.ExitCode != nil && *r.ExitCode != 0 {
		line(fmt.Sprintf("exit: %d", *r.ExitCode))
	}
	printed := len(r.Stdout) > 0 || len(r.Stderr) > 0
	if len(r.Stdout) > 0 {
		line(strings.Join(r.Stdout, "\n"))
	}
	if len(r.Stderr) > 0 {
		line("stderr:\n", strings.Join(r.Stderr, "\n"))
	}
	switch {
	case r.Error != "" && !r.said(printed):
		line("error: ", r.Error)
	case !printed && r.Summary != "" && (r.Error == "" || !strings.Contains(r.StateLost, r.Error)) && !r.exited():
		line(r.Summary)
	}
	if len(r.Artifacts) > 0 {
		line("files: ", files(r.Artifacts))
	}
	if r.StateLost != "" {
		line("state lost: ", r.StateLost)
	}
	if r.ShowUsage && r.Usage != nil {
		line("used: ", r.Usage.line())
	}
	for _, n := range r.Notes {
		if strings.HasPrefix(n, HintPrefix) {
			line(n)
		} else {
			line("note: ", n)
		}
	}
	return b.String()
}

// said reports whether the rest of the text says what the error says: why the state is
// lost, the summary where nothing was printed, the traceback, or the exit code.
func (r *Result) said(printed bool) bool {
	if strings.Contains(r.StateLost, r.Error) {
		return true
	}
	if !printed {
		return strings.Contains(r.Summary, r.Error)
	}
	if r.exited() {
		return true
	}
	what, ok := strings.CutPrefix(r.Error, uncaught)
	if !ok {
		return false
	}
	// The error is on one line, and may be shortened.
	const most = 200
	words := strings.Join(strings.Fields(strings.TrimPrefix(what, ": ")), " ")
	words, _, _ = strings.Cut(words, " (<cell ") // of a SyntaxError; the traceback has the line above
	words = strings.ToValidUTF8(words[:min(len(words), most)], "")
	return strings.Contains(strings.Join(strings.Fields(strings.Join(r.Stderr, " ")), " "), strings.TrimSuffix(words, "…"))
}

// exited reports whether the error says no more than the exit code.
func (r *Result) exited() bool { return r.ExitCode != nil && r.Error == exited(*r.ExitCode) }

// files names the first few artifacts.
func files(artifacts []Artifact) string {
	const most = 10
	var parts []string
	for _, a := range artifacts[:min(most, len(artifacts))] {
		parts = append(parts, fmt.Sprintf("%s (%d bytes)", shown(a.Path), a.Size))
	}
	if more := len(artifacts) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// shown is a path as the sandbox tells it, on one line.
func shown(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }) {
		path = strconv.Quote(path)
	}
	return invisible.Escape(path)
}

// IsError says whether an agent should treat the result as a failure.
func (r *Result) IsError() bool { return r.failure() != "" }

// failure returns what kind of failure the result is; empty for none.
func (r *Result) failure() string {
	if r.Status == Success || r.Status == Running {
		return ""
	}
	return string(r.Status)
}

// invalid is the answer to a request that cannot be run.
func invalid(message string) *Result {
	return &Result{Status: ValidationError, Summary: message, Error: message}
}

// failure is the answer where the sandbox, not the code, is at fault.
func failure(err error) *Result {
	r := &Result{Status: Failed, Summary: "Sandbox error: " + err.Error(), Error: err.Error()}
	var known *bridge.Failure
	if errors.As(err, &known) {
		r.Details = known.Details()
	}
	return r
}

// lines turns what was kept of a stream into its lines.
func lines(c capture.Output) []string {
	if c.Omitted == 0 {
		return splitLines(c.Head)
	}
	marker := markerBegin + strconv.FormatInt(c.Omitted, 10) + markerEnd
	out := append(splitLines(c.Head), marker)
	return append(out, splitLines(c.Tail)...)
}

// markerBegin and markerEnd are around the number of bytes that are missing.
const markerBegin, markerEnd = "[... ", " bytes left out ...]"

// IsMarker reports whether a line stands for bytes that are missing.
func IsMarker(line string) bool {
	return strings.HasPrefix(line, markerBegin) && strings.HasSuffix(line, markerEnd)
}

func splitLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}
