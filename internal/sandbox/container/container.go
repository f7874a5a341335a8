// Package container is the engine that runs sandboxes in containers of Podman
// or Docker, on this machine or wherever their clients reach. The two are one
// implementation: what differs between their command lines is in one table of
// arguments.
//
// Nothing of this machine is mounted into a container, so that remote engines,
// podman machine and Docker Desktop need no shared folders: the interpreter of
// the image is started with a few lines of Python that read the guest from
// standard input, which then carries frames. A container needs a Python, 3.9
// or newer, and nothing else.
//
// A sandbox is one container and one client process, `podman run` or `docker
// run`, whose streams are the container's. A container bears the name of the
// program that started it; that program holds a lock in the state directory.
// Whoever finds the lock free removes the program's containers, and no others.
package container

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sallyport/internal/sandbox"
	"sallyport/internal/state"
)

// The engines, as a user writes them.
const (
	Podman = "podman"
	Docker = "docker"
)

// DefaultImage is what code runs in where no image is asked for.
const DefaultImage = "docker.io/library/python:3.13-slim-bookworm"

// DefaultUser is whom code runs as.
const DefaultUser = "65534:65534"

// When images are fetched.
const (
	PullMissing = "missing" // it is fetched
	PullAlways  = "always"  // it is fetched once, also where it is there
	PullNever   = "never"
)

// Options configure the engine.
type Options struct {
	// Engine is Podman or Docker.
	Engine string
	// Command is the client's executable: a name to look up in Path, or an
	// absolute path. Empty: the engine's name.
	Command string
	// Path is the search path, as in the environment variable PATH.
	Path string
	// Environ is the client's environment, in which it finds its contexts,
	// connections and credentials. Nothing of it reaches a sandbox.
	Environ []string
	// Image is the root of sandboxes whose spec names none. Empty:
	// DefaultImage.
	Image string
	// Python is the interpreter in the image. Empty: python3.
	Python string
	// User is a uid, or uid:gid. Empty: DefaultUser.
	User string
	// Runtime is an OCI runtime that the engine is to use: a name that it
	// knows, or the path of an executable. Empty: the engine's default.
	Runtime string
	// UserNamespace is Podman's --userns. Empty: the engine's default.
	UserNamespace string
	// Pull is when images are fetched. Empty: PullMissing.
	Pull string
	// StartMachine allows a virtual machine of the engine's to be started when
	// a sandbox is wanted. One that was started is stopped after IdleTimeout
	// without sandboxes; 0 is never.
	StartMachine bool
	IdleTimeout  time.Duration
	// State is where locks lie that outlive the program. Several programs may
	// share it.
	State state.Dir
	// Cache is where the guest's byte code and the findings about images are
	// kept. Empty: they are not kept.
	Cache state.Dir
	// Log may be nil.
	Log *slog.Logger
}

// Backend is the engine. Make one with New.
type Backend struct {
	opts Options
	log  *slog.Logger
	cli  *client

	probing sync.Mutex // held while the engine is examined
	facts   *facts     // guarded by probing; nil until the engine answered
	images  map[string]*image
	pulls   map[string]*pull // guarded by mu
	pulled  map[string]bool  // guarded by mu

	life context.Context // ends with Close
	end  context.CancelFunc
	all  sync.WaitGroup // work that Close waits for

	opening sync.Mutex // held while the place is made
	mu      sync.Mutex
	place   *instance       // nil until the first start
	runs    map[string]*run // nil while one starts
	closed  bool
	left    bool // a container may be left behind
	// promised is what the last probe said; nil where there was none.
	promised map[sandbox.Resource]sandbox.LimitReport

	machine *machine
}

var _ sandbox.Backend = (*Backend)(nil)

// New returns the engine. It starts nothing and touches nothing on the host.
func New(opts Options) (*Backend, error) {
	if opts.Engine != Podman && opts.Engine != Docker {
		return nil, errors.New("container: the engine is podman or docker")
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	for field, value := range map[*string]string{
		&opts.Command: opts.Engine, &opts.Image: DefaultImage, &opts.Python: "python3",
		&opts.User: DefaultUser, &opts.Pull: PullMissing,
	} {
		if *field == "" {
			*field = value
		}
	}
	if !strings.Contains(opts.User, ":") {
		opts.User += ":" + opts.User
	}
	if strings.ContainsAny(opts.Runtime, " \t\n") || strings.HasPrefix(opts.Runtime, "-") {
		return nil, errors.New("container: the runtime is a name or the path of an executable")
	}
	if strings.HasPrefix(opts.Runtime, ".") {
		return nil, errors.New("container: the runtime's path is not absolute")
	}
	if filepath.IsAbs(opts.Runtime) {
		opts.Runtime = filepath.Clean(opts.Runtime)
	}
	b := &Backend{
		opts:   opts,
		log:    opts.Log,
		cli:    newClient(opts),
		images: map[string]*image{},
		pulls:  map[string]*pull{},
		pulled: map[string]bool{},
		runs:   map[string]*run{},
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.machine = newMachine(b)
	return b, nil
}

// Name implements sandbox.Backend.
func (b *Backend) Name() string { return b.opts.Engine }
