// Package process runs code in places that are a sandbox themselves, such as a
// worker's container in which neither a virtual machine nor gVisor works. Code runs
// on the kernel of that place: as a user of its own if root starts it, without
// capabilities and without a way to gain any, behind a system call filter, with
// rlimits, no network, a clean environment and no descriptors but its own. If the
// place allows it, each run has namespaces and a read-only root that contains only
// Python; otherwise Landlock restricts the files it can reach. The isolation level
// is "platform" either way: only the place's kernel separates the code from
// everything else.
//
// The engine is never chosen automatically: the configuration must name it, and
// every result says that it was used.
//
// A run has two processes of this program's executable: the supervisor, and the
// child init, which confines itself and becomes the guest. The supervisor holds one
// end of a lifeline (package supervise). When this program dies, however it dies,
// the supervisor ends everything that it started.
package process

import (
	"log/slog"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Name is the engine's name.
const Name = "process"

// Names of this program's executable as part of a run.
const (
	SupervisorName = "sallyport-process-supervisor" // supervises a run
	InitName       = "sallyport-process-init"       // confines itself and becomes the guest
)

// Options configure the engine.
type Options struct {
	// Executable is started as the supervisor: a build of cmd/sallyport. Empty:
	// this program.
	Executable string
	// RuntimeDir is a private directory for records of live runs. It is
	// created. Several programs may share it.
	RuntimeDir string
	// CacheDir is a private directory for compiled programs. It is created.
	CacheDir string
	// WorkDir holds the directories of runs without a file system of their own.
	// Every user must be able to traverse it. Empty: /tmp.
	WorkDir string
	// Program is the one that Probe looks for an interpreter of.
	Program *sandbox.Program
	// Interpreter is a name to look up in Path, or an absolute path. Empty: the
	// program's default.
	Interpreter string
	// Path is the search path, as in the environment variable PATH.
	Path string
	// Home is the user's home directory. Code sees nothing of it except an
	// interpreter's own prefix.
	Home string
	// Internet allows specs that ask for the place's network.
	Internet bool
	// GPU gives code access to the place's GPUs.
	GPU bool
	// Link, if not empty, is made a symbolic link to the working directory of
	// one run without a file system of its own at a time: "/workspace", if the
	// place has nothing else there and this program may make it.
	Link string
	// NoNamespaces runs code without namespaces of its own even if the place
	// allows them.
	NoNamespaces bool
	// Log may be nil.
	Log *slog.Logger
}

var _ sandbox.Engine = (*Engine)(nil)
