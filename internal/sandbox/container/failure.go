package container

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Failures that engines report only as text.
var (
	errNoImage      = errors.New("the image is not here")
	errNoContainer  = errors.New("no such container")
	errNotRunning   = errors.New("the engine is not running")
	errNoPermission = errors.New("this user may not use the engine")
	errNoPython     = errors.New("the image has no such program")
	errRlimit       = errors.New("the engine may not set the limits on open files or processes")
	errNoRuntime    = errors.New("the engine does not know the OCI runtime")
	errCgroup       = errors.New("the OCI runtime cannot work with this machine's control groups")
	errNoLimits     = errors.New("the engine cannot set a requested limit")
	errDiskFull     = errors.New("the engine's disk is full")
	errSubuid       = errors.New("this user has no subordinate uids")
	errSeccomp      = errors.New("the engine's client cannot read the seccomp profile")
	errTooOld       = errors.New("the client and the service have incompatible versions")
	errElsewhere    = errors.New("a remote engine uses its own OCI runtime")
	errNameTaken    = errors.New("the container's name is taken")
)

// phrases maps messages of clients and daemons, in lower case, to what they mean.
// The first one found decides.
var phrases = []struct {
	text    string
	failure error
}{
	{"no space left on device", errDiskFull},
	{"disk quota exceeded", errDiskFull},
	{"permission denied while trying to connect", errNoPermission},
	{"dial unix", errNotRunning}, // after the one above, which also says so
	{"server api version is too old", errTooOld},
	{"client version is too", errTooOld}, // Docker's: "… too old", "… too new"
	{"cannot connect to", errNotRunning},
	{"unable to connect to podman", errNotRunning},
	{"error during connect", errNotRunning},
	{"connection refused", errNotRunning},
	{"is the docker daemon running", errNotRunning},
	{"docker desktop is not running", errNotRunning},
	{"docker desktop is unable to start", errNotRunning},
	{"dockerdesktoplinuxengine", errNotRunning},
	{"unexpected eof", errNotRunning},
	{"podman machine", errNotRunning},
	{"no subuid ranges", errSubuid},
	{"no subgid ranges", errSubuid},
	{"newuidmap", errSubuid},
	{"insufficient uids or gids", errSubuid},
	{"opening seccomp profile", errSeccomp},
	{"setting rlimit", errRlimit},
	{"setrlimit", errRlimit},
	{"no such image", errNoImage},
	{"image not known", errNoImage},
	{"unable to find image", errNoImage},
	{"no such container", errNoContainer},
	{"no container with name", errNoContainer},
	{"unknown runtime specified", errNoRuntime},
	{"unknown or invalid runtime name", errNoRuntime},
	{"default oci runtime", errNoRuntime},
	{"oci runtime not found", errNoRuntime},
	{"executable file `", errNoPython}, // crun's words
	{"executable file not found in $path", errNoPython},
	{"during container init: exec: ", errNoPython},
	{"no such file or directory: oci runtime attempted to invoke a command", errNoPython},
	{"cgroups v1 not supported", errCgroup},
	{"cgroups in hybrid mode not supported", errCgroup},
	{"cgroup-v1", errCgroup},
	{"invalid file system type on", errCgroup},
	{"opening file `/sys/fs/cgroup", errCgroup},
	{"nanocpus can not be set", errNoLimits},
	{"kernel does not support", errNoLimits},
	{"is not available", errNoLimits},
	{"already in use", errNameTaken},
}

// asFailure returns what an engine's error message means, or nil.
func asFailure(err error) error {
	var text string
	var ce *commandError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNoCommand):
		return errNoCommand
	case errors.Is(err, errPodmanService):
		return errPodmanService
	case errors.Is(err, errElsewhere):
		return errElsewhere
	case errors.As(err, &ce):
		text = ce.stderr
	default:
		text = err.Error()
	}
	text = strings.ToLower(text)
	for _, p := range phrases {
		if strings.Contains(text, p.text) {
			return p.failure
		}
	}
	return nil
}

// finding explains why the engine cannot be used, with the commands that fix
// it on this kind of machine.
func (b *Engine) finding(ctx context.Context, err error) sandbox.Finding {
	return explain(b.opts, runtime.GOOS, err, func() string { return b.machine.remedy(ctx) })
}

// explain is finding for any operating system. It calls machine, which returns
// the remedy for Podman's virtual machine, if there may be one.
func explain(opts Options, goos string, err error, machine func() string) sandbox.Finding {
	name := opts.Engine
	f := sandbox.Finding{Fatal: true, Title: name + " cannot be used", Detail: err.Error()}
	elsewhere := goos == "darwin" || goos == "windows"
	switch failure := asFailure(err); {
	case failure == errNoCommand:
		f.Title = name + " is not installed"
		f.Detail = ""
		f.Remedy = installation(name, goos)
	case failure == errPodmanService:
		f.Title = "docker's client is connected to a Podman service, whose API for Docker lacks options that a sandbox needs"
		f.Detail = ""
		f.Remedy = "set engine: podman; Podman's own client must be installed, and finds the service by CONTAINER_HOST, which takes the value of DOCKER_HOST"
	case failure == errElsewhere:
		f.Title = "a remote Podman starts containers with the OCI runtime of its service"
		f.Remedy = "remove container.runtime here, and set runtime in the section [engine] of containers.conf where the service runs"
	case failure == errTooOld:
		f.Title = "the client of " + name + " and its service have incompatible versions"
		f.Remedy = "update the older one; `" + name + " version` shows both"
	case failure == errNotRunning && name == Podman && elsewhere:
		f.Title = "no virtual machine of podman is running"
		f.Remedy = machine()
	case failure == errNotRunning && name == Podman:
		f.Title = "podman does not answer"
		f.Remedy = "podman system connection list; systemctl --user start podman.socket (a local podman needs no service: unset CONTAINER_HOST and CONTAINER_CONNECTION)"
	case failure == errNotRunning && elsewhere:
		f.Title = "the docker daemon does not run"
		f.Remedy = "docker desktop start, or start the application Docker Desktop; docker context ls shows where docker looks for it"
	case failure == errNotRunning:
		f.Title = "the docker daemon does not run"
		f.Remedy = "sudo systemctl start docker, or for a rootless one: systemctl --user start docker; docker context ls shows where docker looks for it"
	case failure == errNoPermission:
		f.Title = "this user may not use the docker daemon"
		f.Remedy = "use rootless docker (dockerd-rootless-setuptool.sh install) or podman; membership in the group docker is as good as being root"
	case failure == errSubuid:
		f.Title = "this user has no subordinate uids, which rootless containers need"
		f.Remedy = "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER, then podman system migrate; install the package uidmap"
	case failure == errRlimit:
		f.Title = "the engine may not set the limits on open files and processes"
		f.Remedy = "lower limits.openFiles to what the engine itself has (ulimit -Hn)"
	case failure == errSeccomp:
		f.Title = "the client of " + name + " cannot read the seccomp profile"
		f.Remedy = "a client from a snap reads no hidden folders: set stateDir to a folder without a dot in its path, or install " + name + " another way"
	case failure == errNoRuntime:
		f.Title = fmt.Sprintf("%s does not know the OCI runtime %s", name, opts.Runtime)
		f.Remedy = "correct container.runtime; for docker, name the runtime in /etc/docker/daemon.json under \"runtimes\""
	case failure == errCgroup:
		f.Title = "the OCI runtime cannot work with this machine's control groups"
		f.Remedy = "install runc and set container.runtime: runc"
	case failure == errNoLimits:
		f.Title = "the engine cannot set a requested limit"
	case failure == errNoPython:
		f.Title = "the image has no " + opts.Interpreter
		f.Remedy = "set image to one with Python 3.9 or newer, or python to the path of the interpreter in the image"
	case failure == errDiskFull:
		f.Title = "the disk of " + name + " is full"
		f.Remedy = name + " system df; " + name + " system prune"
	case errors.Is(err, context.DeadlineExceeded):
		f.Title = name + " does not answer"
		f.Remedy = "see what `" + name + " info` says"
		if elsewhere && name == Podman {
			f.Remedy = machine()
		}
	}
	return f
}

// installation returns how to install an engine.
func installation(name, goos string) string {
	switch {
	case goos == "darwin" && name == Podman:
		return "brew install podman && podman machine init && podman machine start"
	case goos == "darwin":
		return "brew install --cask docker-desktop, and start it once"
	case goos == "windows" && name == Podman:
		return "winget install RedHat.Podman, then: podman machine init; podman machine start (it uses WSL2: wsl --install)"
	case goos == "windows":
		return "wsl --install, then: winget install Docker.DockerDesktop, and start it once"
	case name == Podman:
		return "Debian, Ubuntu: sudo apt-get install podman uidmap; Fedora: sudo dnf install podman"
	default:
		return "Debian, Ubuntu: sudo apt-get install docker.io; Fedora: sudo dnf install moby-engine"
	}
}
