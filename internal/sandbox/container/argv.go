package container

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Labels of our containers.
const (
	labelInstance = "sallyport.instance" // the program that started it
	labelRun      = "sallyport.run"
	labelOwner    = "sallyport.owner"
)

// namePrefix begins the names of our containers.
const namePrefix = "sallyport-"

// proxyVariables are set in every container by Docker's client, from its
// configuration, and by Podman's service, from its environment.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY"}

// containerSpec holds everything that decides a container's isolation.
type containerSpec struct {
	name     string
	instance string
	run      string
	owner    string
	image    string   // an ID, which no registry can change
	argv     []string // of the process that reads the payload, the interpreter first
	user     string
	runtime  string
	userns   string
	limits   sandbox.Limits
	volumes  []string // that the image declares
	binds    []bind   // folders of the host
	copies   []string // places for copies of folders
	seccomp  string   // a profile's file; empty: the engine's own profile
	flags    flags
}

// flags describe which options the engine accepts.
type flags struct {
	podman bool // also a Podman that is installed as docker
	remote bool // Podman's client of an engine elsewhere
	// Options of this Podman client. A remote client, the only kind on macOS and
	// Windows, lacks those that concern the client's machine.
	envHost, httpProxy bool
	// detachKeys make the client detach when they arrive on standard input, byte
	// by byte. Empty means none, which a remote client does not accept.
	detachKeys string
	memory     bool // memory can be limited
	swap       bool // swap can be limited
	pids       bool
	cpus       bool
	// The highest limits on open files and processes that the caller may set; 0
	// if unknown.
	maxOpen, maxProcesses int
	// gvisor: the OCI runtime is gVisor, whose own kernel counts processes. A
	// control group also counts that kernel's threads, which a limit would kill.
	gvisor bool
	// uids and gids are the numbers of IDs that a rootless Podman has, if it has
	// no control group for processes: each container then gets a user namespace,
	// in which the kernel counts a user's processes separately.
	uids, gids int
}

// countsProcesses reports whether RLIMIT_NPROC limits one container alone.
func (f *flags) countsProcesses() bool { return f.gvisor || f.uids > 0 && f.gids > 0 }

// Processes and threads that gVisor may need on the host: for each process of a
// sandbox, and in addition.
const (
	gvisorThreads = 8
	gvisorSpare   = 256
)

// maxOwner bounds a label.
const maxOwner = 200

// args returns the client's arguments that start the container. They are its
// whole isolation: no default or configuration of an engine can widen it.
func (b *containerSpec) args() []string {
	f := b.flags
	var a []string
	add := func(args ...string) { a = append(a, args...) }
	if f.podman && b.runtime != "" && !f.remote { // a remote client uses its service's runtime
		add("--runtime", b.runtime) // a global option of Podman, not one of run
		if strings.HasPrefix(filepath.Base(b.runtime), "runsc") {
			// Otherwise gVisor uses the loopback interface of a network namespace
			// in which it is down.
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
	// Which user it runs as.
	add("--user", b.user, "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--privileged=false")
	if b.seccomp != "" {
		add("--security-opt", "seccomp="+b.seccomp)
	}
	// What it can write to.
	add("--read-only")
	// The user owns them: if the image has such a directory, runtimes give the
	// file system that directory's mode, whatever the options are.
	uid, gid, _ := strings.Cut(b.user, ":")
	type memory struct {
		path string
		size int64
		exec string
	}
	writable := []memory{{"/workspace", b.limits.WorkspaceBytes, "noexec"}, {"/tmp", b.limits.TmpBytes, "noexec"}, {"/dev/shm", b.limits.TmpBytes, "noexec"}, {sandbox.PackagesDir, b.limits.PackagesBytes, "exec"}}
	for _, at := range b.copies {
		writable = append(writable, memory{at, b.limits.WorkspaceBytes, "noexec"})
	}
	for _, dir := range writable {
		options := "rw," + dir.exec + ",nosuid,nodev,mode=1777,size=" + strconv.FormatInt(dir.size, 10)
		if f.podman {
			options += ",notmpcopyup,U"
		} else {
			options += ",uid=" + uid + ",gid=" + gid
		}
		add("--tmpfs", dir.path+":"+options)
	}
	for _, m := range b.binds {
		add(m.args(f.podman)...)
	}
	// Its files would use memory outside the limits.
	cover := func(path string) {
		options := "ro,noexec,nosuid,nodev,size=4096"
		if f.podman {
			options += ",notmpcopyup"
		}
		add("--tmpfs", path+":"+options)
	}
	cover("/dev/mqueue")
	if f.podman {
		// On some distributions, mounts.conf makes Podman show the host's
		// subscriptions, with their keys, in every container.
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
	// It is not a service: it has no log, no health check and no init program of
	// the engine.
	add("--log-driver", "none", "--no-healthcheck", "--init=false", "--sig-proxy=false")
	add("--workdir", "/workspace")

	noProxies := func() {
		for _, name := range proxyVariables {
			add("--env", name+"=", "--env", strings.ToLower(name)+"=")
		}
	}
	if f.podman {
		if f.maxProcesses > 0 && !f.countsProcesses() {
			// Podman's own default may be higher than the caller may set. This
			// limit counts all processes of the container's user, wherever they
			// run, and so does not limit one sandbox.
			add("--ulimit", fmt.Sprintf("nproc=%d:%d", f.maxProcesses, f.maxProcesses))
		}
		add("--uts", "private", "--systemd", "false", "--sdnotify", "ignore",
			"--read-only-tmpfs=false", "--image-volume", "ignore",
			"--security-opt", "mask=/proc/pressure", // any user may set triggers on it
			"--no-hosts",                  // the file would be the host's
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
			// Map the same users as without it, so that they own the image's files.
			add("--uidmap", fmt.Sprintf("0:0:%d", f.uids), "--gidmap", fmt.Sprintf("0:0:%d", f.gids))
		}
	} else {
		if b.runtime != "" {
			add("--runtime", b.runtime)
		}
		// Not the host's name servers.
		add("--dns", "127.0.0.1", "--dns-search", ".")
		noProxies()
		// An image's volumes would be writable, and left behind.
		for _, path := range b.volumes {
			cover(path)
		}
	}
	add("--entrypoint", b.argv[0], b.image)
	return append(a, b.argv[1:]...)
}

// covered returns the image's volumes that need a mount over them: those that
// are not already mounts of the sandbox.
func covered(volumes []string) ([]string, error) {
	var out []string
	for _, v := range volumes {
		clean := "/" + strings.Trim(v, "/")
		switch {
		case clean == "/", strings.ContainsAny(clean, ":,\n") || strings.Contains(clean+"/", "/../"):
			return nil, fmt.Errorf("the image declares a volume at %q", v)
		case slices.Contains([]string{"/workspace", "/tmp", "/dev/shm", sandbox.PackagesDir}, clean):
			continue
		case clean == "/proc" || clean == "/sys" || clean == "/dev" || strings.HasPrefix(sandbox.ProgramDir+"/", clean+"/"):
			return nil, fmt.Errorf("the image declares a volume at %q", v)
		}
		out = append(out, clean)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// printable returns a string that is valid as a label.
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
