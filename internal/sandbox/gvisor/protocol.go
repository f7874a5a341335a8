package gvisor

import "sallyport/internal/sandbox/hostroot"

// CellName is argv[0] of a cell: our own executable, called to be the first
// process of a sandbox's namespaces. See package cell.
const CellName = "sallyport-cell"

// RuntimePrefix begins argv[0] of the processes that the gVisor runtime
// starts from the same executable ("runsc-sandbox", "runsc-gofer").
const RuntimePrefix = "runsc"

// LifelineFD is the descriptor on which a cell finds its end of the lifeline:
// a stream socket that carries one JSON value a line, [CellConfig] first, then
// [Command]s to the cell and [Event]s from it. The cell ends, and every
// process of its namespaces with it, when the other end closes: that is how a
// sandbox never outlives the program that started it, however that dies.
const LifelineFD = 3

// ImageFD is the first descriptor of a snapshot's files.
const ImageFD = LifelineFD + 1

// CellConfig is all that a cell needs to know. It carries no secrets.
type CellConfig struct {
	ID         string          `json:"id"`
	Mountpoint string          `json:"mountpoint"` // an empty directory, covered in the cell's own mount namespace
	Rootfs     hostroot.Rootfs `json:"rootfs"`
	Args       []string        `json:"args"`
	Env        []string        `json:"env"`
	// MemoryBytes is for /proc/meminfo, and for the watcher where WatchMemory
	// is set because no cgroup enforces it.
	MemoryBytes    int64 `json:"memoryBytes"`
	WatchMemory    bool  `json:"watchMemory"`
	Processes      int   `json:"processes"`
	OpenFiles      int   `json:"openFiles"`
	WorkspaceBytes int64 `json:"workspaceBytes"`
	TmpBytes       int64 `json:"tmpBytes"`
	// DebugLog is a directory for the runtime's own logs; empty is none.
	DebugLog string `json:"debugLog,omitempty"`
	// OwnUserNamespace says that the cell was started in a user namespace
	// that maps only its creator.
	OwnUserNamespace bool `json:"ownUserNamespace"`
	// Restore names the files of a snapshot to go on from instead of starting
	// Args, which the cell finds at the descriptors from ImageFD on; empty is
	// none. It waits for OpRestore before it reads them.
	Restore []string `json:"restore,omitempty"`
}

// Operations of a Command.
const (
	OpInterrupt = "interrupt" // SIGINT to the guest's init
	OpUsage     = "usage"
	OpPause     = "pause"
	OpResume    = "resume"
	OpSnapshot  = "snapshot" // into Command.Dir
	OpRestore   = "restore"  // what CellConfig.Restore names is right; the first command, without an answer
)

// Command asks a cell to do something; the Event with the same ID answers.
type Command struct {
	ID  int64  `json:"id"`
	Op  string `json:"op"`
	Dir string `json:"dir,omitempty"` // of a snapshot: exists and is empty
	// Keep says that the sandbox goes on after a snapshot.
	Keep bool `json:"keep,omitempty"`
}

// Kinds of Event.
const (
	EventStarted = "started" // the guest's init is running
	EventFailed  = "failed"  // the sandbox did not start; the cell ends
	EventExited  = "exited"  // the sandbox has ended; the cell ends
	EventReply   = "reply"   // answers the Command with the same ID
)

// Event tells of a cell's progress.
type Event struct {
	Kind   string     `json:"kind"`
	ID     int64      `json:"id,omitempty"`
	Error  string     `json:"error,omitempty"`
	Exit   *CellExit  `json:"exit,omitempty"`
	Usage  *CellUsage `json:"usage,omitempty"`
	Detail string     `json:"detail,omitempty"` // the runtime's own last words
}

// CellExit says how the sandbox ended.
type CellExit struct {
	Code     int  `json:"code"`               // exit status, 128+n for signal n
	Killed   bool `json:"killed,omitempty"`   // the sandbox's kernel was killed from outside
	OverUsed bool `json:"overUsed,omitempty"` // the cell's watcher ended it for its memory
}

// CellUsage is what the processes of a cell have used.
type CellUsage struct {
	CPUMillis   int64 `json:"cpuMillis"`
	MemoryBytes int64 `json:"memoryBytes"`
	PeakBytes   int64 `json:"peakBytes"` // highest of the samples taken
}
