package process

import (
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
)

// initFD is where the child init reads its initConfig, and reportFD where it
// reports why it did not become the guest.
const (
	initFD   = 3
	reportFD = 4
)

// supervisorConfig is the configuration of a supervisor.
type supervisorConfig struct {
	// Try tests only whether the namespaces and the root can be made: the
	// supervisor then reports started, and ends.
	Try bool `json:"try,omitempty"`
	// Namespaces: the supervisor is the first process of namespaces of its own, and
	// makes the root in the empty directory Mountpoint.
	Namespaces     bool            `json:"namespaces"`
	UserNamespace  bool            `json:"userNamespace"`
	OwnNetwork     bool            `json:"ownNetwork"`
	Mountpoint     string          `json:"mountpoint,omitempty"`
	Rootfs         hostroot.Rootfs `json:"rootfs"`
	Mounts         []sandbox.Mount `json:"mounts,omitempty"`
	Devices        []string        `json:"devices,omitempty"`
	Sys            bool            `json:"sys,omitempty"`
	WorkspaceBytes int64           `json:"workspaceBytes"`
	TmpBytes       int64           `json:"tmpBytes"`
	PackagesBytes  int64           `json:"packagesBytes"`
	MemoryBytes    int64           `json:"memoryBytes"`
	Init           initConfig      `json:"init"`
}

// initConfig tells the child init how to confine itself, and what to become.
type initConfig struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
	// UID and GID to change to; -1 keeps them.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Limits; 0 sets none.
	Processes    int   `json:"processes"`
	OpenFiles    int   `json:"openFiles"`
	FileBytes    int64 `json:"fileBytes"`
	AddressSpace int64 `json:"addressSpace"`
	MemoryLocked int64 `json:"memoryLocked"`
	// SharedUser: the code runs as this program's own user, whom services trust
	// and whose other processes' limits could be changed.
	SharedUser bool `json:"sharedUser,omitempty"`
	// Umask of the code; 0 keeps the place's.
	Umask int `json:"umask,omitempty"`
	// Sockets allows sockets other than pairs and AF_UNIX.
	Sockets bool `json:"sockets"`
	// Folders: the code sees folders of the host. It gets no Unix sockets except
	// pairs, because one may be in a folder, and sets no setuid bits.
	Folders bool `json:"folders,omitempty"`
	// Paths are what Landlock allows. Nil: do not use Landlock.
	Paths *paths `json:"paths,omitempty"`
}

// paths lists parts of the file system by what code may do there.
type paths struct {
	Run     []string `json:"run"`  // read files and run programs
	Read    []string `json:"read"` // read
	Write   []string `json:"write"`
	Devices []string `json:"devices"` // read, write and control
	// Connect allows TCP.
	Connect bool `json:"connect"`
}
