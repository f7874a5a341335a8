// Package host is the child process of the engine wasm: the process in which sessions
// run. It loads the compiled interpreter, gives up every way to files, sockets,
// programs and other processes, and then serves the engine over one socket (package
// control). A session that broke out of WebAssembly would find the memory of the
// other sessions, their pipes and this socket, and nothing else.
package host

import (
	"context"
	"io"
	"io/fs"
	"os"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/control"
)

// An Opener compiles the interpreter and leaves the result in a file, or loads it from the
// file unless that is empty. Without a file nothing is kept. It calls progress when a
// compilation begins and when it has ended.
type Opener func(ctx context.Context, o control.Open, code *os.File, progress func(control.Progress)) (Machine, error)

// A Confiner takes from the process what it does not need to run sessions, and returns
// what walls there are now.
type Confiner func() (walls []string, err error)

// A Machine is the compiled interpreter.
type Machine interface {
	// Boot maps a saved image, or runs a program's preparations and saves the image if
	// the file is empty.
	Boot(ctx context.Context, p Program, image *os.File) (Image, error)
}

// Program is a program as an image is made of it.
type Program struct {
	Key   string // identifies all of it
	Files fs.FS
	Argv  []string
	Env   []string
}

// An Image starts sessions of one program.
type Image interface {
	Start(ctx context.Context, cfg Session) (Running, error)
	// Restore continues a session. It does not use the snapshot after it has returned.
	Restore(ctx context.Context, cfg Session, snapshot io.Reader) (Running, error)
}

// Session describes a session. The streams belong to it, also if it does not start.
type Session struct {
	ID                    string
	Limits                sandbox.Limits // complete
	Env                   []string
	Files                 []sandbox.File
	Stdin, Stdout, Stderr *os.File // pipes that do not block

	Packages string      // the digest of Archive; empty: there is none
	Archive  io.ReaderAt // packages, which are not used after the start
}

// Running is a session. Its methods are safe for concurrent use.
type Running interface {
	Interrupt()
	Kill(reason sandbox.Reason)
	// Pause returns when the session has stopped.
	Pause(ctx context.Context) error
	Resume()
	Usage() sandbox.Usage
	// Done is closed when the session has ended and its streams are closed.
	Done() <-chan struct{}
	// Exit is how it ended. It may be called once Done is closed.
	Exit() sandbox.Exit
	Put(path string, r io.Reader, size int64) error
	Get(path string) (io.ReadCloser, error)
	// Snapshot writes the session's state. With keep false the session has ended when
	// it returns nil.
	Snapshot(ctx context.Context, w io.Writer, keep bool) error
}
