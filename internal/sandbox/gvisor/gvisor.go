// Package gvisor is the engine that carries its own kernel: each sandbox is a
// gVisor sandbox, started from this program's own executable, for root and
// for an ordinary user alike, without a daemon, an image or a network.
//
// A sandbox is a chain of three processes in namespaces of their own: the
// cell (package cell), gVisor's kernel and its file server. The cell is the
// first process of its process namespace and holds one end of a lifeline
// whose other end is here; when this program dies, however it dies, the
// lifeline closes, the cell ends, and the host's kernel kills the rest.
// Mounts and files lie in the cell's mount namespace and vanish with it. What
// may stay on the host after a crash is a record file and cgroups, which the
// next start removes.
package gvisor

import (
	"context"
	"log/slog"

	"sallyport/internal/image"
	"sallyport/internal/sandbox"
)

// Name is the engine's name.
const Name = "gvisor"

// Options configure the engine.
type Options struct {
	// Executable is the program to start cells from: a static build of
	// cmd/sallyport. Empty: this program.
	Executable string
	// RuntimeDir is a private directory for records of live sandboxes, on
	// a local file system. It is created. Several programs may share it.
	RuntimeDir string
	// CacheDir is a private directory for byte-compiled guests. It is
	// created. Several programs may share it.
	CacheDir string
	// Python is the interpreter that the default root runs: a name to look
	// up in Path, or an absolute path. Empty: python3.
	Python string
	// Path is the search path, as in the environment variable PATH.
	Path string
	// Home is the user's home directory, of which nothing but an interpreter's
	// own prefix is ever shown to a sandbox.
	Home string
	// UserBus is the address of the user's D-Bus, where their systemd may be
	// asked for control groups. Empty: none is asked.
	UserBus string
	// DebugDir, if not empty, is a directory for gVisor's own debug logs.
	DebugDir string
	// Image is the OCI image whose root file system sandboxes have, where a
	// spec names none. Empty: the host's Python.
	Image string
	// Images is where images are. It may be nil where none is asked for.
	Images Images
	// Log may be nil.
	Log *slog.Logger
}

// Images are the root file systems of OCI images, by the names that a user
// gives them.
type Images interface {
	// Open finds an image and holds its root. Where it must be got first,
	// Open waits for that until ctx is done; the image arrives nevertheless.
	Open(ctx context.Context, name string) (*image.Root, error)
	// Look says what is known of an image. The error is image.ErrMissing
	// where it is not here; later says that Open would get it.
	Look(name string) (info image.Info, later bool, err error)
}

var _ sandbox.Backend = (*Backend)(nil)
