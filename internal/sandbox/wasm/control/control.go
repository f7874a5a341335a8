// Package control is what the engine wasm and its child process say to each other.
//
// They share a socket. Each message is a length of four bytes and as many bytes of
// JSON. Requests go to the child and may carry descriptors. Messages come from the
// child: answers to requests, and news of sessions. The child runs code that is
// not trusted, so the engine takes no descriptors from it, bounds what it reads, and
// believes nothing that could harm anything but the child's own sessions.
package control

import (
	"github.com/sallyport/sallyport/internal/sandbox"
)

// Name is argv[0] of the child.
const Name = "sallyport-wasm-host"

// FD is the descriptor of the socket in the child.
const FD = 3

// Bounds of what one message may hold.
const (
	MaxRequest = 96 << 20
	MaxMessage = 256 << 10
	MaxFiles   = 5 // descriptors of one request
)

// Operations of a Request.
const (
	OpOpen      = "open"      // compile or load the interpreter, then give up every privilege; always the first; a file, unless nothing is kept: compiled code, or an empty one for it
	OpProgram   = "program"   // load the image of a program, or make it; a file: the image
	OpStart     = "start"     // three files: standard input, output and error; and the archive of packages, if Start names one
	OpRestore   = "restore"   // as start, and at the end another file: the snapshot
	OpInterrupt = "interrupt" // deliver KeyboardInterrupt
	OpKill      = "kill"
	OpPause     = "pause"
	OpResume    = "resume"
	OpUsage     = "usage"
	OpSnapshot  = "snapshot" // two files: a pipe for the snapshot, and one from which Whole comes when it is written
	OpPut       = "put"      // a file: a pipe with the data
	OpGet       = "get"      // a file: a pipe for the data, and for Whole after all of it
	OpCancel    = "cancel"   // give up the request Cancel, which is answered anyway
)

// A Request asks the child to do something. The Message with the same ID answers it.
type Request struct {
	ID      int64    `json:"id"`
	Op      string   `json:"op"`
	Open    *Open    `json:"open,omitempty"`
	Program *Program `json:"program,omitempty"`
	Session int64    `json:"session,omitempty"` // which one; numbers are never used again
	Start   *Start   `json:"start,omitempty"`
	Keep    bool     `json:"keep,omitempty"` // of a snapshot: let the session run on
	Path    string   `json:"path,omitempty"` // of put and get, below /workspace
	Size    int64    `json:"size,omitempty"` // of put
	Cancel  int64    `json:"cancel,omitempty"`
}

// Whole is the last byte of what get sends, so that a file that breaks off differs from
// one that ends, and what the engine says when it has a whole snapshot.
const Whole = 1

// Open describes how the child prepares.
type Open struct {
	// ScratchDir is where the child makes and removes a directory. Empty: one for
	// temporary files.
	ScratchDir string `json:"scratchDir"`
}

// Program is a program as its image needs it.
type Program struct {
	Key   string   `json:"key"`   // names it in later requests, and in its image
	Files []byte   `json:"files"` // a zip archive
	Argv  []string `json:"argv"`
	Env   []string `json:"env"`
}

// Start describes a new session.
type Start struct {
	ID      string         `json:"id"`
	Program string         `json:"program"` // a Program's key
	Limits  sandbox.Limits `json:"limits"`
	Env     []string       `json:"env"`
	Files   []sandbox.File `json:"files,omitempty"`
	// Packages is the digest of an archive of packages, whose file comes with the
	// request; empty: the session has none.
	Packages string `json:"packages,omitempty"`
}

// A Message is an answer, or news: of a session's end, or of work that takes long.
type Message struct {
	ID       int64         `json:"id,omitempty"`
	Error    string        `json:"error,omitempty"`
	Usage    *Usage        `json:"usage,omitempty"`
	Walls    []string      `json:"walls,omitempty"`
	Session  int64         `json:"session,omitempty"`
	Exit     *sandbox.Exit `json:"exit,omitempty"`
	Progress *Progress     `json:"progress,omitempty"`
}

// Progress reports work that takes long: the first compilation of the interpreter.
type Progress struct {
	Done    bool  `json:"done,omitempty"`
	Elapsed int64 `json:"elapsed,omitempty"` // milliseconds
	// Unkept says why the code has to be compiled again by the next process.
	Unkept string `json:"unkept,omitempty"`
}

// Usage is [sandbox.Usage] in numbers.
type Usage struct {
	CPUMicros   int64 `json:"cpuMicros"`
	MemoryBytes int64 `json:"memoryBytes"`
	PeakBytes   int64 `json:"peakBytes"`
}
