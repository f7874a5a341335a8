// Package runs records the runs of batch services: what was started where, its
// state, and what came back. Runs outlive the program that started them, so
// each has a record on disk, and whoever holds its lock follows it. A run that
// no process follows any more is found by its record, and cancelled or waited
// for.
package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// State is where a run is.
type State string

// The states of a run.
const (
	Starting State = "starting" // it may or may not have reached the service
	Queued   State = "queued"
	Running  State = "running"
	Ended    State = "ended"
)

const (
	recordVersion = 1
	maxRecord     = 16 << 20
	// maxOutput bounds what is kept of each stream.
	maxOutput = 64 << 20
)

var validID = lazyregexp.New(`\Arun-[a-z0-9]{12}\z`)

// Kinds of failure that callers tell apart with errors.Is.
var (
	// ErrUnknown: there is no run of that ID.
	ErrUnknown = errors.New("there is no such run")
	// ErrFollowed: another Sallyport follows the run.
	ErrFollowed = errors.New("another Sallyport follows this run")
	// ErrOff: the settings do not allow the run's service.
	ErrOff = errors.New("its batch service is off")
)

// A Record is what is known about a run. Its JSON form is that of the file and
// of `sallyport runs list --json`.
type Record struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Service string    `json:"service"`
	Program string    `json:"program,omitempty"` // the file that was run, for people
	Client  string    `json:"client,omitempty"`  // who began it, as it calls itself
	State   State     `json:"state"`
	Status  string    `json:"status,omitempty"` // how it goes, for people
	Created time.Time `json:"created"`
	Began   time.Time `json:"began,omitzero"` // when the code did, as far as it was seen
	Ended   time.Time `json:"ended,omitzero"`
	// Timeout and Queue are those of the batch.Job, in seconds.
	Timeout float64 `json:"timeoutSeconds,omitempty"`
	Queue   float64 `json:"queueSeconds,omitempty"`
	// Detached: it may continue when no process follows it.
	Detached bool            `json:"detached,omitempty"`
	Handle   *sandbox.Handle `json:"handle,omitempty"`
	Result   *Result         `json:"result,omitempty"`
	// Fetched: its files lie in the directory of [Store.Files].
	Fetched bool `json:"fetched,omitempty"`
	// Trouble is what went wrong after the run's end, such as fetching its
	// files, which are then left at the service.
	Trouble string       `json:"trouble,omitempty"`
	Files   []batch.File `json:"files,omitempty"`
}

// Result is how a run ended.
type Result struct {
	ExitCode        int       `json:"exitCode"`
	End             batch.End `json:"end,omitempty"`
	Error           string    `json:"error,omitempty"`
	StdoutBytes     int64     `json:"stdoutBytes"`
	StderrBytes     int64     `json:"stderrBytes"`
	StdoutOmitted   int64     `json:"stdoutOmitted,omitempty"`
	StderrOmitted   int64     `json:"stderrOmitted,omitempty"`
	QueuedSeconds   float64   `json:"queuedSeconds,omitempty"`
	RanSeconds      float64   `json:"ranSeconds,omitempty"`
	CPUSeconds      float64   `json:"cpuSeconds,omitempty"`
	MeanMemoryBytes int64     `json:"meanMemoryBytes,omitempty"`
	PeakMemoryBytes int64     `json:"peakMemoryBytes,omitempty"`
	CPUModel        string    `json:"cpuModel,omitempty"`
	GPUModel        string    `json:"gpuModel,omitempty"`
	GPUs            int       `json:"gpus,omitempty"`
	GPUJoules       float64   `json:"gpuJoules,omitempty"`
	Region          string    `json:"region,omitempty"`
	Notes           []string  `json:"notes,omitempty"`
}

func resultOf(b batch.Result) *Result {
	r := &Result{
		ExitCode: b.ExitCode, End: b.End, Error: b.Error,
		StdoutBytes: int64(len(b.Stdout)), StderrBytes: int64(len(b.Stderr)),
		StdoutOmitted: b.Truncated.Stdout, StderrOmitted: b.Truncated.Stderr,
		QueuedSeconds: b.Queued.Seconds(), RanSeconds: b.Ran.Seconds(), Notes: b.Notes,
	}
	if u := b.Usage; u != nil {
		r.CPUSeconds, r.MeanMemoryBytes, r.PeakMemoryBytes, r.CPUModel = u.CPU.Seconds(), u.MeanBytes, u.PeakBytes, u.CPUModel
		r.GPUModel, r.GPUs, r.GPUJoules, r.Region = u.GPUModel, u.GPUs, u.GPUJoules, u.Region
	}
	return r
}

// Usage returns what was measured where the code ran. Zero is unknown.
func (r *Result) Usage() batch.Usage {
	return batch.Usage{
		CPU: time.Duration(r.CPUSeconds * float64(time.Second)), MeanBytes: r.MeanMemoryBytes, PeakBytes: r.PeakMemoryBytes, CPUModel: r.CPUModel,
		GPUModel: r.GPUModel, GPUs: r.GPUs, GPUJoules: r.GPUJoules, Region: r.Region,
	}
}

func recordName(id string) string { return id + ".json" }

// Get returns a run's record.
func (s *Store) Get(id string) (*Record, error) {
	if !validID().MatchString(id) {
		return nil, fmt.Errorf("%q: %w (an ID is run- and twelve letters and digits; `sallyport runs list` shows them)", id, ErrUnknown)
	}
	b, err := s.dir.Read(recordName(id), maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w (`sallyport runs list` lists them)", id, ErrUnknown)
	}
	if err != nil {
		return nil, err
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("the record of run %s is broken: %w", id, err)
	}
	if r.Version != recordVersion || r.ID != id {
		return nil, fmt.Errorf("the record of run %s is of another version of Sallyport (%d)", id, r.Version)
	}
	return &r, nil
}

// List returns all records, the newest first, and what could not be read.
func (s *Store) List() ([]*Record, error) {
	names, err := s.dir.List()
	if err != nil {
		return nil, err
	}
	var list []*Record
	var broken []error
	for _, name := range names {
		id, ok := strings.CutSuffix(name, ".json")
		if !ok || !validID().MatchString(id) {
			continue
		}
		r, err := s.Get(id)
		switch {
		case errors.Is(err, ErrUnknown): // removed meanwhile
		case err != nil:
			broken = append(broken, err)
		default:
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b *Record) int { return b.Created.Compare(a.Created) })
	return list, errors.Join(broken...)
}

func (s *Store) write(r *Record) error {
	b, err := json.Marshal(r) // not indented: a handle is to stay as it is
	if err != nil {
		return err
	}
	if len(b) >= maxRecord { // it could not be read again
		return fmt.Errorf("the record would take %d bytes, of at most %d", len(b), maxRecord)
	}
	return s.dir.Write(recordName(r.ID), append(b, '\n'))
}
