package process

import "sallyport/internal/sandbox/hostroot"

// lifelineFD is where a stage finds its end of the lifeline, a stream socket
// with one JSON value a line: a stageConfig, then commands to the stage and
// events from it. entryFD is where an entry reads its entryConfig, and reportFD
// where it says why it did not become the guest.
const (
	lifelineFD = 3
	entryFD    = 3
	reportFD   = 4
)

// stageConfig is all that a stage needs to know.
type stageConfig struct {
	// Try asks for the namespaces and the root only, to see whether they can be
	// had: the stage answers started, and ends.
	Try bool `json:"try,omitempty"`
	// Namespaces: the stage is the first process of namespaces of its own, and
	// makes the root in the empty directory Mountpoint.
	Namespaces     bool            `json:"namespaces"`
	UserNamespace  bool            `json:"userNamespace"`
	OwnNetwork     bool            `json:"ownNetwork"`
	Mountpoint     string          `json:"mountpoint,omitempty"`
	Rootfs         hostroot.Rootfs `json:"rootfs"`
	Devices        []string        `json:"devices,omitempty"`
	Sys            bool            `json:"sys,omitempty"`
	WorkspaceBytes int64           `json:"workspaceBytes"`
	TmpBytes       int64           `json:"tmpBytes"`
	MemoryBytes    int64           `json:"memoryBytes"`
	Entry          entryConfig     `json:"entry"`
}

// entryConfig is how an entry confines itself, and what it becomes.
type entryConfig struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
	// UID and GID to become; -1 keeps them.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Limits; 0 is none of ours.
	Processes    int   `json:"processes"`
	OpenFiles    int   `json:"openFiles"`
	FileBytes    int64 `json:"fileBytes"`
	AddressSpace int64 `json:"addressSpace"`
	MemoryLocked int64 `json:"memoryLocked"`
	// SharedUser: the user is the program's own, which others' services trust
	// and whose other processes it may set limits to.
	SharedUser bool `json:"sharedUser,omitempty"`
	// Umask of the code; 0 is the place's.
	Umask int `json:"umask,omitempty"`
	// Sockets the code may have besides its own pairs and AF_UNIX.
	Sockets bool `json:"sockets"`
	// Paths are what Landlock leaves it. Nil: it is not asked.
	Paths *paths `json:"paths,omitempty"`
}

// paths are parts of the file system by what code may do there.
type paths struct {
	Run     []string `json:"run"`  // read files and run programs
	Read    []string `json:"read"` // read
	Write   []string `json:"write"`
	Devices []string `json:"devices"` // read, write and control
	// Connect: TCP is free.
	Connect bool `json:"connect"`
}

// Operations of a command.
const (
	opInterrupt = "interrupt"
	opUsage     = "usage"
	opPause     = "pause"
	opResume    = "resume"
)

type command struct {
	ID int64  `json:"id"`
	Op string `json:"op"`
}

// Kinds of event.
const (
	eventStarted = "started"
	eventFailed  = "failed"
	eventExited  = "exited"
	eventReply   = "reply"
)

type event struct {
	Kind  string `json:"kind"`
	ID    int64  `json:"id,omitempty"`
	Error string `json:"error,omitempty"`
	// Of exited.
	Code     int  `json:"code,omitempty"`
	OverUsed bool `json:"overUsed,omitempty"`
	// Of a reply to usage.
	Usage *usage `json:"usage,omitempty"`
}

type usage struct {
	CPUMillis   int64 `json:"cpuMillis"`
	MemoryBytes int64 `json:"memoryBytes"`
	PeakBytes   int64 `json:"peakBytes"`
}
