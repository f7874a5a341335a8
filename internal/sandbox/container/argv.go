package container

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sallyport/internal/guest"
	"sallyport/internal/sandbox"
)

// Labels of our containers.
const (
	labelInstance = "sallyport.instance" // the program that started it
	labelRun      = "sallyport.run"
	labelOwner    = "sallyport.owner"
)

// namePrefix begins the names of our containers.
const namePrefix = "sallyport-"

// proxyVariables are those that Docker's client takes from its configuration
// into every container, and Podman's service from its environment.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY"}

// box is all that decides a container's isolation.
type box struct {
	name     string
	instance string
	run      string
	owner    string
	image    string // an ID, which no registry can change
	python   string
	user     string
	runtime  string
	userns   string
	limits   sandbox.Limits
	volumes  []string // that the image declares
	seccomp  string   // a profile's file; empty: the engine's own profile
	flags    flags
}

// flags is what the engine here can be told.
type flags struct {
	podman bool // or what calls itself docker and is Podman
	remote bool // Podman's client of an engine elsewhere
	// What this client of Podman has: a remote one, which is all that there is
	// on macOS and Windows, lacks options that concern the client's machine.
	envHost, httpProxy bool
	// detachKeys end the conversation where they arrive on standard input, byte
	// by byte. Empty is none, which a remote client does not accept.
	detachKeys string
	memory     bool // a limit on memory is possible
	swap       bool // … on swap
	pids       bool
	cpus       bool
	// The most open files and processes that the caller may give; 0 is unknown.
	maxOpen, maxProcesses int
	// gvisor: the OCI runtime is gVisor, whose own kernel counts processes. A
	// control group counts that kernel's threads, too, which die of a limit.
	gvisor bool
	// uids and gids are how many of them a rootless Podman without a control
	// group for processes has to give: containers get a user namespace each, in
	// which the kernel counts a user's processes apart from all others.
	uids, gids int
}

// countsProcesses says whether RLIMIT_NPROC is a limit on one container alone.
func (f *flags) countsProcesses() bool { return f.gvisor || f.uids > 0 && f.gids > 0 }

// What gVisor may need on the host for each process of a sandbox, and beside.
const (
	gvisorThreads = 8
	gvisorSpare   = 256
)

// maxOwner bounds a label.
const maxOwner = 200

// args are the client's arguments that start the container. They are the whole
// of its isolation: nothing is left to the defaults of an engine or of its
// configuration that would widen it.
func (b *box) args() []string {
	f := b.flags
	var a []string
	add := func(args ...string) { a = append(a, args...) }
	if f.podman && b.runtime != "" && !f.remote { // a remote one has its service's
		add("--runtime", b.runtime) // one of Podman's own arguments, not of run's
		if strings.HasPrefix(filepath.Base(b.runtime), "runsc") {
			// Else it takes the loopback of a network namespace in which nobody
			// has brought that up.
			add("--runtime-flag", "network=none")
		}
	}
	add("run", "--interactive", "--name", b.name, "--pull", "never",
		"--label", labelInstance+"="+b.instance, "--label", labelRun+"="+b.run)
	if b.owner != "" {
		add("--label", labelOwner+"="+printable(b.owner))
	}

	// What it can reach.
	add("--network", "none", "--ipc", "private", "--cgroupns", "private", "--hostname", "sandbox")
	// Whom it runs as.
	add("--user", b.user, "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--privileged=false")
	if b.seccomp != "" {
		add("--security-opt", "seccomp="+b.seccomp)
	}
	// What it can write to.
	add("--read-only")
	// Their owner is the user: where the image has such a directory, runtimes
	// give the file system that directory's mode, whatever is asked for.
	uid, gid, _ := strings.Cut(b.user, ":")
	for _, dir := range []struct {
		path string
		size int64
	}{{"/workspace", b.limits.WorkspaceBytes}, {"/tmp", b.limits.TmpBytes}, {"/dev/shm", b.limits.TmpBytes}} {
		options := "rw,noexec,nosuid,nodev,mode=1777,size=" + strconv.FormatInt(dir.size, 10)
		if f.podman {
			options += ",notmpcopyup,U"
		} else {
			options += ",uid=" + uid + ",gid=" + gid
		}
		add("--tmpfs", dir.path+":"+options)
	}
	// Its files would be more memory, in a place that nobody empties.
	cover := func(path string) {
		options := "ro,noexec,nosuid,nodev,size=4096"
		if f.podman {
			options += ",notmpcopyup"
		}
		add("--tmpfs", path+":"+options)
	}
	cover("/dev/mqueue")
	if f.podman {
		// Where mounts.conf has Podman show the host's subscriptions, with their
		// keys: on some distributions in every container.
		cover("/run/secrets")
	}
	// How much it can use.
	if f.memory {
		memory := strconv.FormatInt(b.limits.MemoryBytes, 10)
		add("--memory", memory)
		if f.swap {
			add("--memory-swap", memory) // memory and swap together: no swap
		}
	}
	if f.pids {
		pids := b.limits.Processes
		if f.gvisor {
			pids = pids*gvisorThreads + gvisorSpare
		}
		add("--pids-limit", strconv.Itoa(pids))
	}
	if f.countsProcesses() {
		add("--ulimit", fmt.Sprintf("nproc=%d:%d", b.limits.Processes, b.limits.Processes))
	}
	if f.cpus && b.limits.CPUs > 0 {
		add("--cpus", strconv.FormatFloat(b.limits.CPUs, 'f', -1, 64))
	}
	files := b.limits.OpenFiles
	if f.maxOpen > 0 {
		files = min(files, f.maxOpen)
	}
	add("--ulimit", fmt.Sprintf("nofile=%d:%d", files, files), "--ulimit", "core=0:0")
	// What it is not: a service that is logged, watched, or begins with a
	// program of the engine's.
	add("--log-driver", "none", "--no-healthcheck", "--init=false", "--sig-proxy=false")
	add("--workdir", "/workspace")

	noProxies := func() {
		for _, name := range proxyVariables {
			add("--env", name+"=", "--env", strings.ToLower(name)+"=")
		}
	}
	if f.podman {
		if f.maxProcesses > 0 && !f.countsProcesses() {
			// Podman's own default may be more than the caller may give. This
			// one counts all processes of the container's user, wherever they
			// run, and so is no limit on one sandbox.
			add("--ulimit", fmt.Sprintf("nproc=%d:%d", f.maxProcesses, f.maxProcesses))
		}
		add("--uts", "private", "--systemd", "false", "--sdnotify", "ignore",
			"--read-only-tmpfs=false", "--image-volume", "ignore",
			"--security-opt", "mask=/proc/pressure", // anybody may have it watched
			"--no-hosts",                  // it would be the host's own
			"--detach-keys", f.detachKeys) // by default two bytes of a frame end the conversation
		if f.envHost {
			add("--env-host=false")
		}
		if f.httpProxy {
			add("--http-proxy=false")
		} else {
			noProxies() // the service may add its own
		}
		switch {
		case b.userns != "":
			add("--userns", b.userns)
		case f.countsProcesses() && !f.gvisor:
			// The same users as without, so that the image's files are theirs.
			add("--uidmap", fmt.Sprintf("0:0:%d", f.uids), "--gidmap", fmt.Sprintf("0:0:%d", f.gids))
		}
	} else {
		if b.runtime != "" {
			add("--runtime", b.runtime)
		}
		// Not the host's name servers.
		add("--dns", "127.0.0.1", "--dns-search", ".")
		noProxies()
		// An image's volumes would be writable, and stay behind.
		for _, path := range b.volumes {
			cover(path)
		}
	}
	add("--entrypoint", b.python, b.image)
	return append(a, command()...)
}

// covered says which of an image's volumes need to be covered: those that are
// not already file systems of the sandbox's own.
func covered(volumes []string) ([]string, error) {
	var out []string
	for _, v := range volumes {
		clean := "/" + strings.Trim(v, "/")
		switch {
		case clean == "/", strings.ContainsAny(clean, ":,\n") || strings.Contains(clean+"/", "/../"):
			return nil, fmt.Errorf("the image declares a volume at %q", v)
		case slices.Contains([]string{"/workspace", "/tmp", "/dev/shm"}, clean):
			continue
		case clean == "/proc" || clean == "/sys" || clean == "/dev" || strings.HasPrefix(guest.Dir+"/", clean+"/"):
			return nil, fmt.Errorf("the image declares a volume at %q", v)
		}
		out = append(out, clean)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// printable is a label's text.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return '_'
		}
		return r
	}, s)
	if len(s) > maxOwner {
		s = strings.ToValidUTF8(s[:maxOwner], "")
	}
	return s
}
