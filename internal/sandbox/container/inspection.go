package container

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// inspectionTime bounds an inspection.
const inspectionTime = 60 * time.Second

// Bounds of an inspection's answer: the image is trusted no more than the code
// that runs in it.
const (
	maxFacts  = 1 << 20
	maxBundle = 8 << 20
)

// inspectionLimits are the limits of an inspected container. They differ from the
// engines' defaults, so that they can be recognised.
var inspectionLimits = sandbox.Limits{
	MemoryBytes: 384 << 20, Processes: 61, WorkspaceBytes: 48 << 20, TmpBytes: 24 << 20, PackagesBytes: 72 << 20, OpenFiles: 777,
}

// inspection is what was found about a container of an image that was started
// like a sandbox.
type inspection struct {
	inside  inside
	bundle  []byte // what the image's interpreter compiled of the program
	outside outside
	runtime string // the OCI runtime, as the engine or the user names it
	watched bool   // a watcher enforces the memory limit, because no control group does
	took    time.Duration
}

// groups are files of a container's control groups: "memory.max" of cgroup v2,
// "memory/memory.limit_in_bytes" of v1.
type groups = map[string]string

// outside is what the host shows about a container.
type outside struct {
	Local     bool   `json:"local"` // its processes run on this machine
	Groups    groups `json:"groups,omitempty"`
	Watchable bool   `json:"watchable"` // they can be measured and signalled
}

// inside is what a container reports about itself.
type inside struct {
	Python     string              `json:"python"`
	Executable string              `json:"executable"`
	UID        int                 `json:"uid"`
	GID        int                 `json:"gid"`
	PID        int                 `json:"pid"`
	Status     map[string][]string `json:"status"`
	Kernel     string              `json:"kernel"`
	Machine    string              `json:"machine"`
	Hostname   string              `json:"hostname"`
	Version    string              `json:"version"`
	Log        string              `json:"log"`
	Boot       string              `json:"boot"`
	PIDNS      string              `json:"pidns"`
	Mounts     []mount             `json:"mounts"`
	Interfaces []string            `json:"interfaces"`
	Files      int                 `json:"files"`
	Sizes      map[string]int64    `json:"sizes"`
	Writable   []string            `json:"writable"`
	Groups     map[string]string   `json:"groups"`
	// Processes is how many it could have at once, if that was tried.
	Processes int `json:"processes"`
	// Environment are the variables that it was started with, less the empty.
	Environment []string `json:"environment"`
	Bundle      int      `json:"bundle"`
}

type mount struct {
	At      string   `json:"at"`
	Root    string   `json:"root"` // the part of the file system that is mounted
	Options []string `json:"options"`
	Type    string   `json:"type"`
	Super   []string `json:"super"`
}

// inspect starts a container of the image like a sandbox, and makes it describe
// itself. Callers hold probing.
func (b *Engine) inspect(ctx context.Context, f *facts, img *image) (*inspection, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectionTime)
	defer cancel()
	began := time.Now()
	in, err := b.enter(ctx, f.Target)
	if err != nil {
		return nil, err
	}
	limits := inspectionLimits
	if f.CPU {
		limits.CPUs = 0.5
	}
	var container *containerSpec
	var x *process
	for again := true; again; {
		marker := newMarker()
		p, err := newInspectionPayload(b.opts.Program, marker)
		if err != nil {
			return nil, err
		}
		container = b.containerSpec(f, img, in.id, "inspection-"+strings.Trim(strings.ToLower(newMarker()), "\n")[10:18], b.opts.Program, limits)
		container.owner = "inspection"
		x, err = b.cli.launch(ctx, container.args(), p, marker)
		if again = f.concede(err); err != nil {
			b.undo(ctx, container.name)
			if !again {
				return nil, err
			}
		}
	}
	t, err := b.read(ctx, x, container.name)
	x.abandon()
	b.undo(ctx, container.name)
	if err != nil {
		if words := x.stderr.lastWords(); words != "" {
			err = fmt.Errorf("%w: %s", err, words)
		}
		return nil, fmt.Errorf("a container of %s does not describe itself: %w", img.ID, err)
	}
	t.took, t.runtime = time.Since(began), b.runtime(f)
	t.watched = t.outside.Watchable && t.limits(f)[sandbox.Memory].Enforcement == sandbox.Absent
	if err := b.verify(t, f, img); err != nil {
		return nil, err
	}
	return t, nil
}

// concede learns from a failed start what a remote engine cannot do, and reports
// whether to try again without that.
func (f *facts) concede(err error) bool {
	switch failure := asFailure(err); {
	case !f.Remote:
		return false
	case failure == errSeccomp && !f.NoProfile:
		f.NoProfile = true
	case failure == errRlimit && !f.Lowered:
		f.Lowered = true
	default:
		return false
	}
	return true
}

// read reads what the container reports about itself, and looks at it from
// outside while it waits.
func (b *Engine) read(ctx context.Context, x *process, name string) (*inspection, error) {
	type answer struct {
		t   *inspection
		err error
	}
	got := make(chan answer, 1)
	go func() {
		t, err := readInspection(x.Stdout)
		got <- answer{t, err}
	}()
	go func() { _, _ = io.Copy(io.Discard, x.stderr) }()
	select {
	case a := <-got:
		if a.err != nil {
			return nil, a.err
		}
		if state, err := b.cli.inspectContainer(ctx, name); err == nil {
			a.t.outside = look(state, a.t.inside.PIDNS)
		}
		return a.t, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func readInspection(r io.Reader) (*inspection, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if len(line) > maxFacts {
			return nil, errors.New("the answer is too long")
		}
	}
	t := &inspection{}
	if err := json.Unmarshal(line, &t.inside); err != nil {
		return nil, err
	}
	if t.inside.Bundle <= 0 || t.inside.Bundle > maxBundle {
		return nil, fmt.Errorf("byte code of %d bytes", t.inside.Bundle)
	}
	t.bundle = make([]byte, t.inside.Bundle)
	_, err := io.ReadFull(in, t.bundle)
	return t, err
}

// expected are the directories at which a container may have mounts.
var expected = []string{
	"/proc", "/sys", "/dev", "/workspace", "/tmp", sandbox.PackagesDir,
	"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/.containerenv", "/.dockerenv",
	// Podman makes these two from the image's files if they lack the user; and
	// it copies a time zone.
	"/etc/passwd", "/etc/group", "/etc/localtime",
}

// kernelTypes are the kernel's own file systems, which show nothing of a disk.
var kernelTypes = []string{"proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "devtmpfs"}

// verify rejects a container that is less isolated than was requested, whatever
// the reason: the engine's configuration or its version. An engine that ignores
// an option does not report it.
func (b *Engine) verify(t *inspection, f *facts, img *image) error {
	in := &t.inside
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	uid, gid, _ := strings.Cut(b.opts.User, ":")
	if strconv.Itoa(in.UID) != uid || strconv.Itoa(in.GID) != gid {
		add("it runs as %d:%d, not as %s", in.UID, in.GID, b.opts.User)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if v := in.Status[set]; len(v) > 0 && strings.Trim(v[0], "0") != "" {
			add("it has capabilities (%s %s)", set, v[0])
			break
		}
	}
	if v := in.Status["NoNewPrivs"]; len(v) > 0 && v[0] != "1" {
		add("no-new-privileges is not set")
	}
	for _, name := range in.Interfaces {
		// Every network namespace has its own of these, down and without routes.
		if name != "lo" && !strings.HasSuffix(name, "tunl0") && !strings.HasPrefix(name, "ip6") && !strings.HasPrefix(name, "gre") &&
			!strings.HasPrefix(name, "erspan") && !strings.HasPrefix(name, "sit") && !strings.HasPrefix(name, "ip_vti") && name != "teql0" && name != "dummy0" {
			add("it has the network interface %s", name)
		}
	}
	if len(in.Writable) > 0 {
		add("it can write to %s", strings.Join(in.Writable, ", "))
	}
	for _, m := range in.Mounts {
		if at := foreign(m, b.opts); at != "" {
			add("the engine's configuration shows it %s", at)
		}
	}
	for path, limit := range map[string]int64{"/workspace": inspectionLimits.WorkspaceBytes, "/tmp": inspectionLimits.TmpBytes, "/dev/shm": inspectionLimits.TmpBytes, sandbox.PackagesDir: inspectionLimits.PackagesBytes} {
		if size := in.Sizes[path]; size > limit*5/4 || size <= 0 {
			add("%s has %d bytes, not %d", path, size, limit)
		}
	}
	if in.PID != 1 {
		add("another program is its first process")
	}
	if names := leaked(in.Environment, img.Env); names != "" {
		add("the engine gives it variables of its own (%s), as env_host, http_proxy or env in the engine's containers.conf ask for", names)
	}
	if len(wrong) == 0 {
		return nil
	}
	return &unsafeError{engine: f.where(), wrong: wrong}
}

// ordinary are variables that engines set by themselves, or that reveal nothing
// about the engine's machine except its language.
var ordinary = []string{"PATH", "TERM", "HOME", "HOSTNAME", "container", "TZ", "LANG", "LC_ALL", "LC_CTYPE"}

// leaked returns the names of variables that are neither the image's nor
// ordinary. The guest unsets those it knows, but the environment that process 1
// was started with can still be read in /proc.
func leaked(environment, images []string) string {
	var names []string
	for _, name := range environment {
		if !slices.Contains(ordinary, name) && !slices.Contains(images, name) {
			names = append(names, printable(name))
		}
	}
	if more := len(names) - 8; more > 0 {
		names = append(names[:8], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// foreign returns what a mount shows of the host, or "".
func foreign(m mount, opts Options) string {
	if m.At == "/" {
		return ""
	}
	for _, place := range expected {
		if m.At == place || strings.HasPrefix(m.At, place+"/") && (place == "/proc" || place == "/sys" || place == "/dev") {
			return ""
		}
	}
	for _, t := range kernelTypes {
		if m.Type != t || m.Root != "/" { // a part of a file system was mounted on purpose
			continue
		}
		for _, o := range m.Options {
			if o == "ro" {
				return "" // our mount over an image's volume
			}
		}
	}
	return m.At
}

// unsafeError describes a container that is not isolated enough.
type unsafeError struct {
	engine string
	wrong  []string
}

func (e *unsafeError) Error() string {
	return fmt.Sprintf("a container of %s is less isolated than requested: %s", e.engine, strings.Join(e.wrong, "; "))
}

// sharing are the OCI runtimes whose containers share the kernel of the machine
// they run on, by all names that engines use for them.
var sharing = []string{"runc", "crun", "youki", "io.containerd.runc.v1", "io.containerd.runc.v2", "io.containerd.runtime.v1.linux"}

// runtime returns the OCI runtime that starts containers, as far as it is known.
func (b *Engine) runtime(f *facts) string {
	if b.opts.Runtime != "" && !(f.Podman && f.Remote) {
		return b.opts.Runtime // a remote Podman uses its service's: see errElsewhere
	}
	return f.Runtime
}

// shares reports whether the container cannot have a kernel of its own. Evidence
// from inside comes from the image, which is not trusted.
func (t *inspection) shares() bool { return slices.Contains(sharing, path.Base(t.runtime)) }

// ownKernel reports whether the container has a kernel of its own, and which.
func (t *inspection) ownKernel(f *facts) (string, bool) {
	in := &t.inside
	if t.shares() {
		return "", false
	}
	if name, ok := t.gvisor(); ok {
		return name, true
	}
	switch kernel, boot := hostKernel(); {
	case in.Kernel == "" || f.Kernel == "":
		return "", false
	case f.Kernel == firstWord(in.Kernel):
		// The same release: a virtual machine with the host's kernel has another
		// boot ID. It can only be compared with this machine's.
		if t.outside.Local && kernel != "" && in.Boot != "" && boot != "" && in.Boot != boot {
			return in.Kernel + ", booted for it", true
		}
		return "", false
	default:
		return in.Kernel, true
	}
}

// gvisor reports whether the container's kernel is gVisor, and which version.
func (t *inspection) gvisor() (string, bool) {
	in := &t.inside
	if t.shares() {
		return "", false
	}
	if strings.Contains(in.Log, "Starting gVisor") || strings.Contains(in.Kernel, "gvisor") {
		return "gVisor (" + in.Kernel + ")", true
	}
	return "", false
}

func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
}

// number returns a control group's value, and false if there is none or no limit.
func number(s string) (int64, bool) {
	n, err := strconv.ParseInt(firstWord(strings.TrimSpace(s)), 10, 64)
	// cgroup v1 expresses "no limit" as a number near the largest.
	return n, err == nil && n >= 0 && n < 1<<60
}

// limits returns how each limit is enforced, as measured.
func (t *inspection) limits(f *facts) map[sandbox.Resource]sandbox.LimitReport {
	const hard, soft = sandbox.Hard, sandbox.Soft
	report := map[sandbox.Resource]sandbox.LimitReport{
		sandbox.Disk:      {Enforcement: hard, By: "tmpfs size"},
		sandbox.OpenFiles: {Enforcement: sandbox.Absent, By: "the container's RLIMIT_NOFILE is not the requested one"},
		sandbox.Memory:    {Enforcement: sandbox.Absent, By: unenforced(f, f.Memory)},
		sandbox.Processes: {Enforcement: sandbox.Absent, By: unenforced(f, f.Pids)},
		sandbox.CPU:       {Enforcement: sandbox.Absent, By: unenforced(f, f.CPU)},
	}
	if n := t.inside.Files; n > 0 && n <= inspectionLimits.OpenFiles {
		report[sandbox.OpenFiles] = sandbox.LimitReport{Enforcement: hard, By: "RLIMIT_NOFILE"}
	}
	// From outside if this machine has the control groups; otherwise as the
	// container sees its own.
	claimed := map[sandbox.Resource]bool{sandbox.Memory: f.Memory, sandbox.Processes: f.Pids, sandbox.CPU: f.CPU}
	for i, g := range []groups{t.outside.Groups, t.inside.Groups} {
		set := func(r sandbox.Resource, files map[string]int64) {
			if i > 0 && !claimed[r] {
				return // it was not requested: only the image claims it
			}
			for file, want := range files {
				if got, ok := number(g[file]); ok && got <= want && report[r].Enforcement != hard {
					by := "cgroup v2 " + file
					if _, name, v1 := strings.Cut(file, "/"); v1 {
						by = "cgroup v1 " + name
					}
					report[r] = sandbox.LimitReport{Enforcement: hard, By: by}
				}
			}
		}
		set(sandbox.Memory, map[string]int64{"memory.max": inspectionLimits.MemoryBytes, "memory/memory.limit_in_bytes": inspectionLimits.MemoryBytes})
		set(sandbox.Processes, map[string]int64{"pids.max": int64(inspectionLimits.Processes), "pids/pids.max": int64(inspectionLimits.Processes)})
		set(sandbox.CPU, map[string]int64{"cpu.max": 50000, "cpu/cpu.cfs_quota_us": 50000})
	}
	if n := t.inside.Processes; n > inspectionLimits.Processes {
		report[sandbox.Processes] = sandbox.LimitReport{By: fmt.Sprintf("a container had %d processes where %d were allowed", n, inspectionLimits.Processes)}
	} else if n > 0 && f.ownUsers() {
		report[sandbox.Processes] = sandbox.LimitReport{Enforcement: hard, By: "RLIMIT_NPROC in a user namespace of the container's own"}
	}
	if _, ok := t.gvisor(); ok {
		// Sandboxes are started with it. Inspections are not: they find out.
		report[sandbox.Processes] = sandbox.LimitReport{Enforcement: hard, By: "gVisor RLIMIT_NPROC"}
	}
	if t.watched && report[sandbox.Memory].Enforcement == sandbox.Absent {
		report[sandbox.Memory] = sandbox.LimitReport{Enforcement: soft, By: "a watcher of the container's memory"}
	}
	return report
}

func unenforced(f *facts, claimed bool) string {
	switch {
	case claimed:
		return "the engine does not enforce the requested limit"
	case f.Rootless && !f.CgroupV2:
		return "rootless containers have no control groups on cgroup v1"
	}
	return "the engine has no control group for it"
}
