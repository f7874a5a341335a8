package supervise

// LifelineFD is the descriptor at which a helper finds its end of the lifeline.
// It carries one JSON value per line: the helper's configuration first, then
// [Command]s to the helper and [Event]s from it.
const LifelineFD = 3

// FirstFile is the descriptor of the first of [Config.Files] in the helper.
const FirstFile = LifelineFD + 1

// RoomFD is open in a helper that is started with [Config.Room], which keeps it open and
// passes it to no other program. Linux makes the table of descriptors of a new process
// large enough for its parent's highest one. A table that has to grow while threads share
// it makes its process wait until all processors have noticed, which takes several
// milliseconds each time.
const RoomFD = 511

// Operations of a Command. A helper answers those that it does not know with an
// error.
const (
	OpInterrupt = "interrupt" // send SIGINT to the guest's init
	OpUsage     = "usage"
	OpPause     = "pause"
	OpResume    = "resume"
	OpSnapshot  = "snapshot" // write a snapshot to Command.Dir
	OpRestore   = "restore"  // the snapshot was verified; always the first command, never answered
)

// Command asks a helper to do something. The Event with the same ID answers it.
type Command struct {
	ID  int64  `json:"id"`
	Op  string `json:"op"`
	Dir string `json:"dir,omitempty"` // where a snapshot goes: an empty directory
	// Keep lets the sandbox run on after a snapshot.
	Keep bool `json:"keep,omitempty"`
}

// Kinds of Event.
const (
	EventStarted = "started" // the guest's init is running
	EventFailed  = "failed"  // the sandbox did not start; the helper ends
	EventExited  = "exited"  // the sandbox has ended; the helper ends
	EventReply   = "reply"   // answers the Command with the same ID
)

// Event reports a helper's progress.
type Event struct {
	Kind   string `json:"kind"`
	ID     int64  `json:"id,omitempty"`
	Error  string `json:"error,omitempty"`
	Exit   *Exit  `json:"exit,omitempty"`
	Usage  *Usage `json:"usage,omitempty"`
	Detail string `json:"detail,omitempty"` // the engine's own diagnostics
}

// Exit is how a sandbox ended, as its helper saw it.
type Exit struct {
	Code     int  `json:"code"`               // exit status, 128+n for signal n
	Killed   bool `json:"killed,omitempty"`   // something outside killed the sandbox
	OverUsed bool `json:"overUsed,omitempty"` // the helper killed it for its memory
}

// Usage is what the processes below a helper have used.
type Usage struct {
	CPUMillis   int64 `json:"cpuMillis"`
	MemoryBytes int64 `json:"memoryBytes"`
	PeakBytes   int64 `json:"peakBytes"` // the highest sample
}
