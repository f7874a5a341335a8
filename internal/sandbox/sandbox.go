// Package sandbox is the contract between Sallyport and the engines that run
// code for it. An engine implements [Engine] and [Run]. It declares further
// abilities with the optional interfaces of this package, found with [As], and
// with the data in [Report]. Every engine passes the tests in package
// sandboxtest.
package sandbox

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// An Engine starts runs. All methods are safe for concurrent use. The caller
// calls Close once, and no other method after that.
type Engine interface {
	// Name is the engine's name as a user writes it: "gvisor", "podman".
	Name() string

	// Probe reports what the engine can do on this host and which limits it
	// really enforces. It is bounded in time by ctx, changes nothing on the
	// host, and succeeds with Report.Usable false where the engine cannot
	// run. An error means that probing itself failed.
	Probe(ctx context.Context) (*Report, error)

	// Start creates a sandbox for spec. The returned Run belongs to the
	// caller, who calls Destroy. On error nothing is left behind. ctx bounds
	// the start only: cancelling it later does not end the run.
	Start(ctx context.Context, spec *Spec) (Run, error)

	// Attach finds the run that a handle describes, possibly after a restart of
	// this program. Engines whose runs cannot outlive the program release
	// whatever the run left behind and return [ErrGone].
	Attach(ctx context.Context, h Handle) (Run, error)

	// Close destroys every run that is left and releases the engine. It is
	// idempotent.
	Close() error
}

// A Run is one sandbox, from start to its end. All methods are safe for
// concurrent use.
type Run interface {
	// Handle describes the run for a later Attach. It never changes.
	Handle() Handle

	// Wait blocks until the run has ended or ctx is done, and returns how it
	// ended. It may be called any number of times, also after Destroy.
	Wait(ctx context.Context) (Exit, error)

	// Destroy ends the run and releases everything that it held. It is
	// idempotent, and finishes its work even when ctx is already cancelled,
	// within a deadline of its own.
	Destroy(ctx context.Context) error
}

// A Duplexer is a Run with a live channel to the guest inside it. Batch
// engines do not implement it.
type Duplexer interface {
	// Channel returns the streams of the guest, the same at every call. The
	// caller owns them; closing Stdin asks the guest to end.
	Channel() Channel
}

// Channel is the standard input, output and error of a sandbox, as package
// wire uses them.
type Channel struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser
	Stderr io.ReadCloser
}

// An Interrupter is a Run that can deliver a real SIGINT to the guest's init,
// which passes it to the interpreter. It works even while the interpreter does
// not read frames. Delivery of the signal does not mean that the code has
// stopped.
type Interrupter interface {
	Interrupt(ctx context.Context) error
}

// A Meter is a Run whose resource use the host can measure without the guest.
type Meter interface {
	// Usage is cheap enough to be called ten times a second.
	Usage(ctx context.Context) (Usage, error)
}

// A Pauser is a Run whose processes can all be stopped and continued.
type Pauser interface {
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// A Logger is a Run that keeps the engine's own diagnostics (not the user's
// output), for the error message of a failed start.
type Logger interface {
	Logs(ctx context.Context) (string, error)
}

// A FileTransferer is a Run whose files can be written and read without the
// guest's help. Paths are relative to /workspace.
type FileTransferer interface {
	Put(ctx context.Context, path string, r io.Reader, size int64) error
	Get(ctx context.Context, path string) (io.ReadCloser, error)
}

// A Snapshotter is a Run that can write its whole state, processes included,
// into a new directory. With keep false the run has ended when Snapshot
// returns. On error the directory holds nothing usable and the run continues.
type Snapshotter interface {
	Snapshot(ctx context.Context, dir string, keep bool) error
}

// An Image is a snapshot to restore. The caller keeps ownership.
type Image struct {
	// Files are the files of the snapshot by name, open for reading.
	Files []*os.File
	// Check returns an error if they do not hold what was saved. It may read
	// all of them. An engine calls it once, possibly during its preparations,
	// and does not read the files before it has returned nil; Restore returns
	// its error. A nil Check means that the caller has checked them.
	Check func(context.Context) error
}

// A Restorer is an Engine that can start a run from a snapshot. The spec is the
// one that the snapshot was taken with, except for ID and Owner.
type Restorer interface {
	// Restore starts a run that continues where the snapshot was taken, with
	// new streams in place of the old ones. The image is not used after it
	// returns.
	Restore(ctx context.Context, spec *Spec, image Image) (Run, error)

	// Binding lists everything that a snapshot of the spec depends on, one line
	// "what: value" each. The snapshot can be restored where the binding is
	// equal.
	Binding(ctx context.Context, spec *Spec) (string, error)
}

// As finds the first value in v's chain of Unwrap methods that implements T.
// Decorators of Engine and Run implement Unwrap() of the interface that they
// decorate.
func As[T any](v any) (T, bool) {
	for v != nil {
		if t, ok := v.(T); ok {
			return t, true
		}
		switch u := v.(type) {
		case interface{ Unwrap() Run }:
			v = u.Unwrap()
		case interface{ Unwrap() Engine }:
			v = u.Unwrap()
		default:
			v = nil
		}
	}
	var zero T
	return zero, false
}

// A Preparer is an engine that needs seconds of work before its first start on a
// machine.
type Preparer interface {
	// Prepared reports whether a start finds what that work makes. It is fast.
	Prepared(p *Program) bool
	// Prepare does the work, or waits for it. The work goes on when ctx is done.
	Prepare(ctx context.Context, p *Program) error
}

// Spec describes what to start. The zero value of each field is the strictest.
type Spec struct {
	// ID names the run: 1 to 63 characters of [a-z0-9-], unique on the host.
	// The caller chooses it before the start, so that a sweeper can find what a
	// crash left.
	ID string
	// Owner is a label for people and sweepers. Empty is allowed.
	Owner string
	// Program is what runs. Engines without a channel have a program of their
	// own.
	Program *Program
	// Root is the file system: the zero value is a read-only subset of the
	// host's own files.
	Root Root
	// Env is added to the program's environment, which contains nothing from
	// the host.
	Env map[string]string
	// Limits bound the run. A zero limit takes the engine's default.
	Limits Limits
	// Network is what the sandbox can reach.
	Network Network
	// Files are put into /workspace before the guest starts.
	Files []File
	// Mounts are folders of the host that the sandbox sees. An engine that cannot
	// show one in its mode returns [ErrUnsupported].
	Mounts []Mount
}

// Mount is a folder of the host that a sandbox sees. What people read calls it a
// folder. Nothing outside the folder
// can be reached through it: links lead where they lead in the sandbox, and sockets,
// devices and pipes in it cannot be opened.
type Mount struct {
	Source string    `json:"source"` // absolute, clean, without symbolic links
	Target string    `json:"target"` // in the sandbox, absolute and clean
	Mode   MountMode `json:"mode"`
	// By says who named it: empty for the user's settings, or one of the words below.
	// Engines need not know.
	By string `json:"by,omitempty"`
}

// Who named a mount, if it was not in the user's settings.
const (
	ByPerson = "person" // for one session, on a command line
	ByClient = "client" // as one of its roots
)

// Shows reports whether two mounts show the same, whoever named them.
func (m Mount) Shows(other Mount) bool {
	m.By = other.By
	return m == other
}

// Place returns where code in the sandbox finds a path of the host that is the folder
// or lies in it. It compares names and looks at no files.
func (m Mount) Place(hostPath string) (place string, ok bool) {
	rest, err := filepath.Rel(m.Source, hostPath)
	if err != nil || !filepath.IsLocal(rest) {
		return "", false
	}
	return path.Join(m.Target, filepath.ToSlash(rest)), true
}

// String returns the place and the mode in words.
func (m Mount) String() string {
	switch m.Mode {
	case ReadOnly:
		return m.Target + " (read-only)"
	case Copy:
		return m.Target + " (a private copy)"
	case ReadWrite:
		return m.Target + " (changes reach the user's folder)"
	}
	return m.Target
}

// MountMode says what code can do with a mounted folder.
type MountMode string

const (
	// ReadOnly shows the folder as it is; changes on the host are visible.
	ReadOnly MountMode = "ro"
	// Copy gives the sandbox a copy of its own that it can change.
	Copy MountMode = "copy"
	// ReadWrite lets code change the folder itself.
	ReadWrite MountMode = "rw"
)

// Root selects the sandbox's file system. At most one field is set.
type Root struct {
	// Interpreter is an interpreter on the host, an absolute path. Empty: the
	// engine chooses.
	Interpreter string
	// Image is an OCI image reference.
	Image string
	// Packages is an archive of packages on the host, for the interpreter that an
	// engine brings along: an absolute path, whose last part is the SHA-256 of the
	// archive in hexadecimal and ".tar". Only the engine wasm takes one.
	Packages string `json:",omitempty"`
}

// PackagesExt is the end of the name of an archive of packages.
const PackagesExt = ".tar"

// PackagesDigest returns the digest that the name of the archive Packages has; empty:
// there is none.
func (r Root) PackagesDigest() string {
	if r.Packages == "" {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(r.Packages), PackagesExt)
}

// Network is what a sandbox can reach. The zero value is nothing, not even the
// sandbox itself through the host.
type Network struct {
	// Internet gives the sandbox the network of the machine that it runs on.
	// An engine that cannot do so returns [ErrUnsupported].
	Internet bool
}

// File is a file to put into /workspace. Path is relative and clean, and
// neither equal to nor below another file's.
type File struct {
	Path string
	Data []byte
	Mode uint32 // permission bits; 0 is 0644
}

// Limits bound a run. Zero means the default of [DefaultLimits], never
// unlimited.
type Limits struct {
	MemoryBytes    int64   // all processes together
	Processes      int     // processes and threads together
	CPUs           float64 // cores; 0 is no limit
	WorkspaceBytes int64   // /workspace
	TmpBytes       int64   // /tmp
	PackagesBytes  int64   // PackagesDir
	OpenFiles      int     // per process
	OutputBytes    int64   // standard output and error of one execution; enforced by the host's reader
}

// DefaultLimits are those of a local sandbox.
var DefaultLimits = Limits{
	MemoryBytes:    512 << 20,
	Processes:      128,
	WorkspaceBytes: 128 << 20,
	TmpBytes:       64 << 20,
	PackagesBytes:  1 << 30,
	OpenFiles:      1024,
	OutputBytes:    1 << 20,
}

// WithDefaults returns l with every zero field, CPUs excepted, replaced by its default.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits
	if l.MemoryBytes == 0 {
		l.MemoryBytes = d.MemoryBytes
	}
	if l.Processes == 0 {
		l.Processes = d.Processes
	}
	if l.WorkspaceBytes == 0 {
		l.WorkspaceBytes = d.WorkspaceBytes
	}
	if l.TmpBytes == 0 {
		l.TmpBytes = d.TmpBytes
	}
	if l.PackagesBytes == 0 {
		l.PackagesBytes = d.PackagesBytes
	}
	if l.OpenFiles == 0 {
		l.OpenFiles = d.OpenFiles
	}
	if l.OutputBytes == 0 {
		l.OutputBytes = d.OutputBytes
	}
	return l
}

// A Resource is something that a limit bounds.
type Resource string

// The resources on which a policy can demand a limit.
const (
	Memory    Resource = "memory"
	Processes Resource = "processes"
	CPU       Resource = "cpu"
	Disk      Resource = "disk"
	OpenFiles Resource = "open-files"
)

// Enforcement is how a limit is enforced. The zero value means not at all.
type Enforcement int

// A hard limit is enforced by a kernel, a soft one by a watcher that samples
// and kills.
const (
	Absent Enforcement = iota
	Soft
	Hard
)

func (e Enforcement) String() string {
	return [...]string{"absent", "soft", "hard"}[e]
}

// MarshalText implements encoding.TextMarshaler.
func (e Enforcement) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// Isolation is how strongly a backend separates code from the host, from
// weakest to strongest. The zero value is none at all.
type Isolation int

const (
	// NoIsolation is a plain process of the user.
	NoIsolation Isolation = iota
	// PlatformIsolation relies on the environment that the engine runs in (a
	// worker's container) being a sandbox itself.
	PlatformIsolation
	// ContainerIsolation is namespaces on the host's shared kernel.
	ContainerIsolation
	// WasmIsolation is WebAssembly, which reaches nothing but its own memory and what
	// its host offers, in a process that the kernel confines to the use of what it has
	// open.
	WasmIsolation
	// KernelIsolation is a separate kernel for the sandbox: gVisor, a virtual
	// machine.
	KernelIsolation
)

func (i Isolation) String() string {
	return [...]string{"none", "platform", "container", "wasm", "kernel"}[i]
}

// MarshalText implements encoding.TextMarshaler.
func (i Isolation) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// LimitReport describes how one limit is enforced on this host.
type LimitReport struct {
	Enforcement Enforcement `json:"enforcement"`
	By          string      `json:"by"` // "cgroup v2 memory.max", "gVisor RLIMIT_NPROC"
}

// Report is the result of Probe.
type Report struct {
	Backend   string    `json:"backend"`
	Usable    bool      `json:"usable"`
	Isolation Isolation `json:"isolation"`
	Duplex    bool      `json:"duplex"`
	// Remote: code leaves this machine. Isolation and limits are then those of
	// the remote machine.
	Remote bool `json:"remote,omitempty"`
	// Provisional: not everything was measured. A later report may promise
	// less, but until then the engine starts nothing that has less than this
	// one promises.
	Provisional bool `json:"provisional,omitempty"`
	// Measure tells the user how to have the rest measured, and Possible is the
	// isolation that may then be found. Both are set in provisional reports
	// only.
	Measure   string    `json:"measure,omitempty"`
	Possible  Isolation `json:"-"`
	Snapshots bool      `json:"snapshots"`
	// Single: the code is one process of one thread, and can start neither others nor
	// use sockets or libraries in machine code.
	Single    bool                     `json:"single,omitempty"`
	NoFolders string                   `json:"noFolders,omitempty"` // why folders of the host cannot be mounted; empty: they can, as far as is known
	Runtime   string                   `json:"runtime,omitempty"`   // the interpreter of the default root: path and version
	Limits    map[Resource]LimitReport `json:"limits"`
	Findings  []Finding                `json:"findings,omitempty"`
}

// Finding is something that the user should know about the engine on this host.
type Finding struct {
	Fatal  bool   `json:"fatal"` // the engine cannot run because of it
	Title  string `json:"title"`
	Detail string `json:"detail,omitempty"`
	Remedy string `json:"remedy,omitempty"` // a command or setting that fixes it
}

// Handle describes a run so that another process can find it. It is written
// to disk: Version guards the form of Data.
type Handle struct {
	Backend string          `json:"backend"`
	Version int             `json:"version"`
	ID      string          `json:"id"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Exit describes how a run ended.
type Exit struct {
	Code   int    // the guest's exit status; 128+n for signal n
	Reason Reason // why, if the engine knows
	Detail string // for people
}

// Reason is why a run ended.
type Reason string

// The reasons for the end of a run.
const (
	Exited      Reason = "exited"        // the guest ended by itself
	Destroyed   Reason = "destroyed"     // Destroy was called
	OutOfMemory Reason = "out-of-memory" // the memory limit, hard or soft
	EngineDied  Reason = "engine-died"   // the engine's own process ended or was killed
)

// Usage is the resource use of a run since its start. A negative value is
// unknown.
type Usage struct {
	CPU         time.Duration // user and system time of all its processes, the engine's included
	MemoryBytes int64         // now
	PeakBytes   int64
}
