package settings

import (
	"log/slog"
	"time"
)

// The engines that can be asked for.
const (
	EngineAuto   = "auto"
	EngineGVisor = "gvisor"
	EnginePodman = "podman"
	EngineDocker = "docker"
)

// The output modes.
const (
	OutputCompact = "compact"
	OutputTOON    = "toon"
)

// Whether fresh sandboxes are restored from a snapshot.
const (
	SnapshotsAuto = "auto"
	SnapshotsOff  = "off"
)

// PoolAuto keeps a sandbox ready while sessions are being opened.
const PoolAuto = -1

// Settings are all settings, in the types that the program uses. [Load] makes
// them; they are not modified afterwards.
type Settings struct {
	Engine   string
	Image    string // empty: none
	Python   string // a name to look up, or an absolute path
	StateDir string // empty: there is no place for one

	Timeouts  Timeouts
	Limits    Limits
	Policy    Policy
	Backends  []string // of BatchEngines
	Runs      Runs
	Worker    Worker
	Deploy    Deploy
	Kaggle    Kaggle
	Sessions  Sessions
	RunPod    RunPod
	Tools     Tools
	Container Container
	Servers   Servers
	Catalog   Catalog
	Images    Images
	Memory    Memory
	Saved     SavedTools
	Output    Output
	Carbon    Carbon
	Log       Log
	Debug     Debug

	file    File
	entries []*setting
}

// Timeouts bound executions.
type Timeouts struct {
	Default  time.Duration
	Max      time.Duration
	WholeRun time.Duration
	Grace    time.Duration
	Start    time.Duration
}

// Limits bound a sandbox.
type Limits struct {
	Memory    int64 // bytes, as all sizes
	Processes int
	CPUs      float64 // 0: unlimited
	Workspace int64
	Tmp       int64
	OpenFiles int
	Output    int64
}

// Policy is what an engine must offer, and the servers that code may use.
type Policy struct {
	MinIsolation string // as sandbox.Isolation prints itself
	// Require has words as sandbox.Enforcement prints itself.
	Require struct{ Memory, Processes, CPU, Disk, OpenFiles string }
	// Remote is about places that code is sent to.
	Remote  struct{ MinIsolation, Memory, Processes string }
	Servers []string
	// Requests are patterns of servers that code may add by itself.
	Requests []string
}

// Sessions is about what lives between executions.
type Sessions struct {
	BackgroundCPU float64       // cores; negative: unlimited
	Snapshots     string        // SnapshotsAuto or SnapshotsOff
	Preload       []string      // modules
	Idle          time.Duration // 0: never
	Keep          time.Duration // 0: for ever
	MaxAwake      int
	Pool          int // PoolAuto, or how many
	MaxDisk       int64
	MaxNamed      int
	Pack          bool
	Logs          int64 // bytes of each; 0: off
}

// Container is for engines that run containers.
type Container struct {
	User          string        // uid, or uid:gid
	Runtime       string        // an OCI runtime; empty: the engine's choice
	UserNamespace string        // Podman's; empty: the engine's choice
	StartMachine  bool          // whether Podman's virtual machine may be started
	IdleTimeout   time.Duration // 0: never
}

// Servers is about MCP servers that code can use.
type Servers struct {
	Config         []string // absolute paths where the program's place is known
	FallbackConfig string
	Sources        []string // of ServerSources, or "*"
	AllowSelf      bool
	Inherit        []string
	StartTimeout   time.Duration
	CallTimeout    time.Duration // negative: unlimited
	IdleStop       time.Duration // 0: never
	Connections    []string      // of NAME=N
	PlainHTTP      []string      // patterns of hosts
	StopGrace      time.Duration
	MaxMessage     int64
	MaxCalls       int
	ChangedTools   string // ChangedNote or ChangedRefuse
}

// What becomes of a tool that is not as it was when it was first seen.
const (
	ChangedNote   = "note"
	ChangedRefuse = "refuse"
)

// Catalog is what is known of the servers' tools without running them.
type Catalog struct {
	Refresh string // auto, manual or off
	MaxAge  time.Duration
}

// When images are pulled.
const (
	PullMissing = "missing"
	PullAlways  = "always"
	PullNever   = "never"
)

// Images is about OCI images for the embedded gVisor.
type Images struct {
	Pull      string
	PlainHTTP []string // patterns of hosts
	MaxSize   int64
}

// Memory is what code keeps under keys for later sessions.
type Memory struct {
	Enabled  bool
	MaxValue int64
	MaxKeys  int
	MaxTotal int64
}

// SavedTools are functions that code saves for later sessions.
type SavedTools struct {
	Enabled  bool
	MaxTools int
	Versions int
}

// Output is the form of results.
type Output struct {
	Mode  string
	Usage bool // tell what each call used
}

// Log is about log lines.
type Log struct {
	Level  slog.Level
	Format string
}

// Debug is for people who debug the program.
type Debug struct{ GVisor string }
