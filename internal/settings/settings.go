package settings

import (
	"log/slog"
	"time"
)

// The engines that users can choose.
const (
	EngineAuto   = "auto"
	EngineGVisor = "gvisor"
	EnginePodman = "podman"
	EngineDocker = "docker"
	EngineWasm   = "wasm"
)

// The output modes.
const (
	OutputCompact = "compact"
	OutputTOON    = "toon"
)

// The values of sessions.snapshots: whether fresh sandboxes are restored from a
// snapshot.
const (
	SnapshotsAuto = "auto"
	SnapshotsOff  = "off"
)

// PoolAuto keeps a sandbox ready while sessions are being opened.
const PoolAuto = -1

// Settings holds all settings, in the types that the program uses. [Load]
// creates it; it is not modified afterwards.
type Settings struct {
	Engine   string
	Image    string // empty: none
	Python   string // a name to look up, or an absolute path
	StateDir string // empty: there is no place for one
	// Environment is the name of the environment of sessions that choose none;
	// empty: Image or Python.
	Environment  string
	Environments []Environment // sorted by name

	Timeouts      Timeouts
	Limits        Limits
	Policy        Policy
	Approvals     Approvals
	Audit         Audit
	BatchServices []string // some of BatchServices()
	Runs          Runs
	Worker        Worker
	Deploy        Deploy
	Kaggle        Kaggle
	Sessions      Sessions
	Files         Files
	Artifacts     Artifacts
	RunPod        RunPod
	Tools         Tools
	Container     Container
	Servers       Servers
	Catalog       Catalog
	Cache         Cache
	Images        Images
	Memory        Memory
	Saved         SavedTools
	Hub           Hub
	Answer        Answer
	Output        Output
	Carbon        Carbon
	Metrics       Metrics
	Traces        Traces
	Log           Log
	Debug         Debug

	sources Sources
	file    File
	entries []*setting
}

// An Environment is a named set of packages for code.
type Environment struct {
	Name     string
	Python   string // empty, "host", a version, or an absolute path
	Image    string // in place of Python
	Packages []string
	File     string // an absolute path; empty: none
	Preload  []string
	Limits   Limits // a limit of 0 is that of all sandboxes
}

// Timeouts bound executions.
type Timeouts struct {
	Default  time.Duration
	Max      time.Duration
	WholeRun time.Duration
	Grace    time.Duration
	Start    time.Duration
}

// Limits bounds a sandbox.
type Limits struct {
	Memory    int64 // in bytes, like all sizes
	Processes int
	CPUs      float64 // 0: unlimited
	Workspace int64
	Tmp       int64
	Packages  int64
	OpenFiles int
	Output    int64
}

// Policy is what an engine must offer, and which servers code may use.
type Policy struct {
	MinIsolation string // as sandbox.Isolation formats itself
	// Require has the words of sandbox.Enforcement.
	Require struct{ Memory, Processes, CPU, Disk, OpenFiles string }
	// Remote is the policy for machines that code is sent to.
	Remote  struct{ MinIsolation, Memory, Processes string }
	Servers []string
	// Requests are patterns for servers that code may add by itself.
	Requests []string
	// Packages are requirements that code may add, and words: NoPackages and others.
	Packages []string
	// Executions bounds those that run and wait, of all clients and of each.
	Executions struct {
		Running   int // 0: as many as Sessions.MaxRunning
		Queued    int
		PerClient struct {
			Running int // 0: three quarters of those of all clients
			Queued  int
		}
	}
	// Profile decides on calls that no rule is about: one of Profiles.
	Profile string
}

// Profiles are the values of policy.profile; each is stricter than the one before.
var Profiles = []string{"open", "careful", "locked"}

// Sessions configures what lives between executions.
type Sessions struct {
	BackgroundCPU float64       // cores; negative: unlimited
	Snapshots     string        // SnapshotsAuto or SnapshotsOff
	Preload       []string      // modules
	Idle          time.Duration // 0: never
	Keep          time.Duration // 0: forever
	MaxRunning    int
	Pool          int // a number, or PoolAuto
	MaxDisk       int64
	MaxNamed      int
	Pack          bool
	Logs          int64 // bytes for each session; 0: off
}

// Files configures which folders of this computer code sees.
type Files struct {
	// Mounts are folders, as package folder reads them: with an absolute path.
	Mounts []string
	Roots  bool // also those that clients name as their roots
}

// Container configures the engines that run containers.
type Container struct {
	User          string        // uid, or uid:gid
	Runtime       string        // an OCI runtime; empty: the engine's choice
	UserNamespace string        // Podman's; empty: the engine's choice
	StartMachine  bool          // whether Podman's virtual machine may be started
	IdleTimeout   time.Duration // 0: never
}

// Servers configures the MCP servers that code can use.
type Servers struct {
	Config         []string // absolute paths if the working directory is known
	FallbackConfig string
	Sources        []string // some of ServerSources, or "*"
	AllowSelf      bool
	Inherit        []string
	StartTimeout   time.Duration
	CallTimeout    time.Duration // negative: unlimited
	IdleStop       time.Duration // 0: never
	Connections    []string      // each NAME=N
	Sharing        []string      // each NAME=HOW, or HOW; see SharingOf
	May            []string      // each NAME=WHAT, or WHAT; see MayOf
	// Sampling bounds what servers may ask of the agent's model in one execution.
	Sampling struct {
		Calls  int // 0: none
		Tokens int
	}
	PlainHTTP      []string // patterns of hosts
	ClientMetadata string   // a URL; empty: none
	StopGrace      time.Duration
	MaxMessage     int64
	MaxCalls       int
	ChangedTools   string // ChangedNote or ChangedRefuse
}

// The values of servers.changedTools: what happens to a tool that differs from
// when it was first seen.
const (
	ChangedNote   = "note"
	ChangedRefuse = "refuse"
)

// Catalog configures what is known about servers' tools while they do not run.
type Catalog struct {
	Refresh string // auto, manual or off
	MaxAge  time.Duration
}

// Cache bounds the results of tools that are used again.
type Cache struct {
	Entries int
	Bytes   int64
	Disk    bool
}

// The values of images.pull: when images are pulled.
const (
	PullMissing = "missing"
	PullAlways  = "always"
	PullNever   = "never"
)

// Images configures OCI images.
type Images struct {
	Pull      string
	PlainHTTP []string // patterns of hosts
	MaxSize   int64
}

// Memory configures the values that code keeps under keys for later sessions.
type Memory struct {
	Enabled  bool
	MaxValue int64
	MaxKeys  int
	MaxTotal int64
}

// SavedTools configures the functions that code saves for later sessions.
type SavedTools struct {
	Enabled  bool
	MaxTools int
	Versions int
}

// Approvals configures how people are asked about calls.
type Approvals struct {
	Timeout time.Duration // 0: no one is asked
	Notify  struct {
		Desktop bool
		Command []string
		Webhook string // a URL; empty: none
		Secret  string // signs what Webhook gets
	}
}

// Hub configures the process that all clients of a user share.
type Hub struct {
	Enabled bool
	Idle    time.Duration // 0: never
}

// Metrics configures who may read what was counted.
type Metrics struct {
	Listen string // HOST:PORT; empty: off
}

// Traces configures where spans are sent.
type Traces struct {
	Endpoint string // a URL; empty: nowhere
}

// Answer configures when calls are answered, and with how much.
type Answer struct {
	Within time.Duration // 0: when the code has ended
	Tokens int           // 0: no limit
}

// Output configures the format of results.
type Output struct {
	Mode       string
	Structured string
	Fold       bool // output, before an agent reads it
	Usage      bool // report what each call used
}

// Log configures log lines.
type Log struct {
	Level  slog.Level
	Format string
}

// Debug is for people who debug the program.
type Debug struct{ GVisor string }
