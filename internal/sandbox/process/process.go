// Package process is the engine for places that are a sandbox themselves, such
// as the container of a worker where no virtual machine and no gVisor is to be
// had. It runs code on that place's kernel: as a user of its own where it is
// started by root, without capabilities and without a way to new ones, behind a
// filter of system calls, with rlimits, no network, a clean environment and no
// descriptors but its own. Where the place lets it, each run has namespaces and
// a read-only root that shows Python and nothing else; where not, Landlock
// bounds which files it reaches. Its isolation level is "platform" either way:
// what lies between the code and everything else is the place's kernel.
//
// It is never chosen by itself: a configuration names it, and whoever gives
// results on says so.
//
// A run is a chain of two: the stage, which is our own executable under another
// name, and the guest. The stage holds one end of a lifeline whose other end is
// here. When this program dies, however it dies, the lifeline closes, and the
// stage ends everything that it started.
package process

import (
	"log/slog"

	"sallyport/internal/sandbox"
)

// Name is the engine's name.
const Name = "process"

// Names of our own executable as parts of a run.
const (
	StageName = "sallyport-stage" // supervises a run
	EntryName = "sallyport-entry" // confines itself and becomes the guest
)

// Options configure the engine.
type Options struct {
	// Executable is the program to start stages from: a build of
	// cmd/sallyport. Empty: this program.
	Executable string
	// RuntimeDir is a private directory for records of live runs. It is
	// created. Several programs may share it.
	RuntimeDir string
	// CacheDir is a private directory for byte-compiled guests. It is created.
	CacheDir string
	// WorkDir is where runs without a file system of their own have their
	// directories. Every user must be able to pass through it. Empty: /tmp.
	WorkDir string
	// Python is the interpreter: a name to look up in Path, or an absolute
	// path. Empty: python3.
	Python string
	// Path is the search path, as in the environment variable PATH.
	Path string
	// Home is the user's home directory, of which nothing but an interpreter's
	// own prefix is shown.
	Home string
	// Internet allows specs that ask for the network of the place.
	Internet bool
	// GPU shows the code the place's GPUs.
	GPU bool
	// Link, if not empty, is a path that is the working directory's while one
	// run without a file system of its own has it: "/workspace", where the place
	// has nothing else there and this program may make it.
	Link string
	// NoNamespaces does without namespaces of a run's own even where they can
	// be had.
	NoNamespaces bool
	// Log may be nil.
	Log *slog.Logger
}

var _ sandbox.Backend = (*Backend)(nil)
