package gvisor

import (
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
)

// SupervisorName is argv[0] of a supervisor: our own executable, called to be the first
// process of a sandbox's namespaces. See package supervisor.
const SupervisorName = "sallyport-supervisor"

// RuntimePrefix begins argv[0] of the processes that the gVisor runtime
// starts from the same executable ("runsc-sandbox", "runsc-gofer").
const RuntimePrefix = "runsc"

// SupervisorConfig is the configuration of a supervisor. It carries no secrets.
type SupervisorConfig struct {
	ID         string          `json:"id"`
	Mountpoint string          `json:"mountpoint"` // an empty directory, covered in the supervisor's own mount namespace
	Rootfs     hostroot.Rootfs `json:"rootfs"`
	// Mounts are folders of the host that the sandbox sees.
	Mounts []sandbox.Mount `json:"mounts,omitempty"`
	Args   []string        `json:"args"`
	Env    []string        `json:"env"`
	// MemoryBytes is shown in /proc/meminfo, and enforced by the supervisor's
	// watcher if WatchMemory is set because no cgroup enforces it.
	MemoryBytes int64 `json:"memoryBytes"`
	WatchMemory bool  `json:"watchMemory"`
	// CPUs is shown as the number of processors; 0 is all of the host.
	CPUs           float64 `json:"cpus,omitempty"`
	Processes      int     `json:"processes"`
	OpenFiles      int     `json:"openFiles"`
	WorkspaceBytes int64   `json:"workspaceBytes"`
	TmpBytes       int64   `json:"tmpBytes"`
	PackagesBytes  int64   `json:"packagesBytes"`
	// DebugLog is a directory for the runtime's own logs; empty means none.
	DebugLog string `json:"debugLog,omitempty"`
	// OwnUserNamespace: the supervisor was started in a user namespace that maps
	// only its creator.
	OwnUserNamespace bool `json:"ownUserNamespace"`
	// Restore names the files of a snapshot to go on from instead of starting
	// Args, which the supervisor finds at the descriptors from supervise.FirstFile on;
	// empty is none. It waits for supervise.OpRestore before it reads them.
	Restore []string `json:"restore,omitempty"`
}
