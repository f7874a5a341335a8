// Package gvisor runs each sandbox on a kernel of its own: gVisor, started from
// this program's executable, as root or as an ordinary user, without a daemon, an
// image or a network.
//
// A sandbox is a chain of three processes in namespaces of their own: a supervisor
// (package supervisor), gVisor's kernel and its file server. The supervisor is the
// first process of its process namespace and holds one end of a lifeline (package
// supervise): when this program dies, however it dies, the supervisor ends, and the
// host's kernel kills the rest. Mounts and files are in the supervisor's mount
// namespace and vanish with it. A crash can leave a record file and cgroups on the
// host, which the next start removes.
package gvisor

import (
	"context"
	"log/slog"

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// Name is the engine's name.
const Name = "gvisor"

// Options configure the engine.
type Options struct {
	// Executable is started as the supervisor: a static build of cmd/sallyport.
	// Empty: this program.
	Executable string
	// RuntimeDir is a private directory for records of live sandboxes, on
	// a local file system. It is created. Several programs may share it.
	RuntimeDir string
	// CacheDir is a private directory for compiled programs. It is
	// created. Several programs may share it.
	CacheDir string
	// Program is the one that Probe looks for an interpreter of.
	Program *sandbox.Program
	// Interpreter is what the default root runs: a name to look up in Path, or
	// an absolute path. Empty: the program's default.
	Interpreter string
	// Path is the search path, as in the environment variable PATH.
	Path string
	// Home is the user's home directory. A sandbox sees nothing of it except an
	// interpreter's own prefix.
	Home string
	// UserBus is the address of the user's D-Bus, to ask their systemd for control
	// groups. Empty: do not ask.
	UserBus string
	// DebugDir, if not empty, is a directory for gVisor's own debug logs.
	DebugDir string
	// Image is the OCI image whose root file system sandboxes have if a spec
	// names none. Empty: the host's files.
	Image string
	// Images provides images. It may be nil if none is used.
	Images Images
	// Log may be nil.
	Log *slog.Logger
}

// Images provides the root file systems of OCI images by name.
type Images interface {
	// Open finds an image and holds its root. If the image must be pulled first,
	// Open waits until ctx is done; the pull goes on nevertheless.
	Open(ctx context.Context, name string) (*image.Root, error)
	// Look returns what is known about an image. The error is image.ErrMissing if
	// it is not here; later reports whether Open would pull it.
	Look(name string) (info image.Info, later bool, err error)
}

var _ sandbox.Engine = (*Engine)(nil)
