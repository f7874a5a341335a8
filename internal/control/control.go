// Package control is how the command line speaks with the Sallyports that serve
// clients: each listens on a socket of its own, in a directory that belongs to
// the user, and answers requests of the same user alone. What it can be asked
// for is what a person does with sessions, and with calls that wait for approval.
// It runs no code.
//
// The protocol is HTTP with JSON.
package control

import (
	"context"
	"io"
	"time"

	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/metrics"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/wire"
)

// Sessions is what a process lets others do. An empty name is the process's own
// session.
type Sessions interface {
	// Sessions lists what the process has.
	Sessions() []session.Info
	Suspend(ctx context.Context, key session.Key) error
	Resume(ctx context.Context, key session.Key) error
	Reset(ctx context.Context, key session.Key) error
	Remove(ctx context.Context, key session.Key) error
	// Export writes a tar archive.
	Export(ctx context.Context, key session.Key, w io.Writer) error
	// Import reads one.
	Import(ctx context.Context, key session.Key, r io.Reader) error
	// Put puts files into a workspace: next returns nil at the end.
	Put(ctx context.Context, key session.Key, next func() (*wire.TaskFile, error)) error
	// Take gives files of a workspace.
	Take(ctx context.Context, key session.Key, paths []string, give func(wire.TaskFile) error) error
}

// Approvals is what a process lets others do with its open questions.
type Approvals interface {
	List() []approval.Question
	Lost() []approval.Lost
	Get(id string) (approval.Question, error)
	Answer(approval.Answer) (approval.Outcome, error)
}

// Questions are those that are open in a process, without their calls, and those
// that killed processes left.
type Questions struct {
	Open []approval.Question `json:"open"`
	Lost []approval.Lost     `json:"lost"`
}

// Process is what a Sallyport says of itself.
type Process struct {
	PID      int            `json:"pid"`
	Version  string         `json:"version"`
	Client   string         `json:"client,omitempty"` // who it serves, in the client's own words
	Started  time.Time      `json:"started"`
	StateDir string         `json:"stateDir,omitempty"`
	Sessions []session.Info `json:"sessions"`
	// SinceBoot is what the machine's uptime was at Started, sleep included, where
	// that is known. It shows whether the clock was set since.
	SinceBoot time.Duration `json:"sinceBoot,omitempty"`
	// Failing are the servers that do not start, or do not stay up.
	Failing []Failing `json:"failing,omitempty"`
	Hub     *Hub      `json:"hub,omitempty"` // nil: it serves one client alone
}

// Failing is a server whose last starts failed.
type Failing struct {
	Server string `json:"server"`
	Class  string `json:"class"` // what kind of failure
	Times  int    `json:"times"` // in a row
}

// Hub is what a process that serves many clients says besides.
type Hub struct {
	Key string `json:"key"`
	// Settings is what the key depends on.
	Settings map[string]string `json:"settings"`
	// Engine is the one that runs code now; empty: none could be chosen.
	Engine  string     `json:"engine,omitempty"`
	Clients []Attached `json:"clients"`
	// Running and Waiting are executions: those that run code, and those that wait for
	// a place to.
	Running int    `json:"running"`
	Waiting int    `json:"waiting"`
	Log     string `json:"log,omitempty"` // a file
	Idle    string `json:"idle"`          // the setting hub.idle
}

// Attached is a client of a hub.
type Attached struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"` // in the client's own words
	Process int       `json:"process"`        // of its frontend
	Dir     string    `json:"dir,omitempty"`  // its working directory
	Since   time.Time `json:"since"`
	Running int       `json:"running"` // of its executions, as in Hub
	Waiting int       `json:"waiting"`
}

// Stats is what a process has counted since it began.
type Stats struct {
	PID     int              `json:"pid"`
	Started time.Time        `json:"started"`
	Metrics metrics.Snapshot `json:"metrics"`
}

// suffix ends the names of sockets.
const suffix = ".sock"

// bindTimeout is the age at which a socket is left over that never got its
// name.
const bindTimeout = time.Minute
