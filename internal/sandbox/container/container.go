// Package container runs sandboxes in containers of Podman or Docker, on this
// machine or wherever their clients connect to. Both share one implementation:
// the differences between their command lines are in one table of arguments.
//
// Nothing of this machine is mounted into a container but the folders of its spec,
// so that remote engines, podman machine and Docker Desktop need no shared folders: the interpreter of
// the image is started with a few lines of Python that read the guest from
// standard input, which then carries frames. A container needs a Python, 3.9
// or newer, and nothing else.
//
// A sandbox is one container and one client process, `podman run` or `docker
// run`, whose streams are the container's. A container's name contains the ID of
// the program that started it, which holds a lock in the state directory. If the
// lock is free, the program is dead and the next one removes its containers, and
// no others.
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

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
	"github.com/sallyport/sallyport/internal/store"
)

// The names of the engines in settings.
const (
	Podman = "podman"
	Docker = "docker"
)

// DefaultImage is the image that code runs in by default.
const DefaultImage = "docker.io/library/python:3.13-slim-bookworm"

// DefaultUser is the user and group that code runs as by default.
const DefaultUser = "65534:65534"

// When images are pulled.
const (
	PullMissing = "missing" // if they are missing
	PullAlways  = "always"  // once per program, even if they are present
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
	// Environ is the client's environment, where it finds its contexts,
	// connections and credentials. None of it reaches a sandbox.
	Environ []string
	// Image is the root of sandboxes whose spec names no image. Empty:
	// DefaultImage.
	Image string
	// Program is compiled when an image is inspected. Other programs run
	// uncompiled. It is required, with a Loader.
	Program *sandbox.Program
	// Interpreter is the one in the image. Empty: the program's default.
	Interpreter string
	// User is a uid, or uid:gid. Empty: DefaultUser.
	User string
	// Runtime is the OCI runtime to use: a name that the engine knows, or the
	// path of an executable. Empty: the engine's default.
	Runtime string
	// UserNamespace is Podman's --userns. Empty: the engine's default.
	UserNamespace string
	// Images is a store that specs can name images of, by their IDs: the engine
	// gets them from there. It may be nil.
	Images Images
	// Pull is when images are pulled. Empty: PullMissing.
	Pull string
	// StartMachine allows the engine's virtual machine to be started when a
	// sandbox starts. It is then stopped after IdleTimeout without sandboxes;
	// 0 means never.
	StartMachine bool
	IdleTimeout  time.Duration
	// State holds locks and records that outlive the program. Several programs
	// may share it.
	State store.Dir
	// Cache is where the guest's byte code and the findings about images are
	// kept. Empty: they are not kept.
	Cache store.Dir
	// Log may be nil.
	Log *slog.Logger
}

// Engine is the engine. Make one with New.
type Engine struct {
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

	opening  sync.Mutex // held while the instance is made
	mu       sync.Mutex
	instance *instance // nil until the first start
	closed   bool      // guards all against Close
	left     bool      // a container may be left behind
	// promised is what the last probe said; nil where there was none.
	promised map[sandbox.Resource]sandbox.LimitReport

	runs    *supervise.Runs
	machine *machine
}

var _ sandbox.Engine = (*Engine)(nil)

// New returns the engine. It starts nothing and touches nothing on the host.
func New(opts Options) (*Engine, error) {
	if opts.Engine != Podman && opts.Engine != Docker {
		return nil, errors.New("container: the engine is podman or docker")
	}
	if opts.Program == nil || opts.Program.Loader == nil {
		return nil, errors.New("container: a program with a loader is needed")
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	for field, value := range map[*string]string{
		&opts.Command: opts.Engine, &opts.Image: DefaultImage, &opts.Interpreter: opts.Program.Interpreter,
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
	b := &Engine{
		opts:   opts,
		log:    opts.Log,
		cli:    newClient(opts),
		images: map[string]*image{},
		pulls:  map[string]*pull{},
		pulled: map[string]bool{},
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.machine = newMachine(b)
	b.runs = supervise.NewRuns(opts.Engine, b.machine.use)
	return b, nil
}

// Name implements sandbox.Engine.
func (b *Engine) Name() string { return b.opts.Engine }
