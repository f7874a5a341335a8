package hibernate

import (
	"os"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

// Status tells where a session's state is.
type Status string

// The statuses of a session.
const (
	Running   Status = "running"   // in a sandbox
	Suspended Status = "suspended" // on disk
	Gone      Status = "gone"      // lost; the next execution reports why
	Unused    Status = "unused"    // it has no state yet
)

// Record describes a named session on disk, for other processes and for the
// user.
type Record struct {
	Name string `json:"name"`
	// Owner is the owner of the session; empty is the local user.
	Owner   string    `json:"owner,omitempty"`
	Created time.Time `json:"created"`
	Used    time.Time `json:"used"`
	Status  Status    `json:"status"`
	// Lost is why the state is gone.
	Lost string `json:"lost,omitempty"`
	// Process is the process in which it runs, or last ran.
	Process int `json:"process,omitempty"`
	// Bytes is the size of its snapshot.
	Bytes int64 `json:"bytes,omitempty"`
	// Background counts what was running in it when it was suspended.
	Background wire.Background `json:"background,omitzero"`
	// Running names some of it.
	Running []string `json:"running,omitempty"`
	// Executions is the total number of its executions.
	Executions uint64 `json:"executions,omitempty"`
	// Engine and Template are what the state was made with.
	Engine   string `json:"engine,omitempty"`
	Template string `json:"template,omitempty"`
	// Environment names the packages that it has; empty: those of the settings.
	Environment string `json:"environment,omitempty"`
	// Packages are the archives of packages that code has added, oldest first.
	Packages []string `json:"packages,omitempty"`
	// Mounts are the folders of the host that it sees.
	Mounts []sandbox.Mount `json:"mounts,omitempty"`
	// Limits are those of the suspended sandbox.
	Limits sandbox.Limits `json:"limits,omitzero"`
}

// Update sets the status. now is the time, and lost is why the state is gone, if
// it is.
func (r *Record) Update(status Status, lost string, now time.Time) {
	r.Status, r.Lost, r.Used, r.Process = status, lost, now, os.Getpid()
	if status != Suspended {
		r.Bytes, r.Background, r.Running = 0, wire.Background{}, nil
	}
}
