// Package wasm runs code in CPython that is compiled to WebAssembly and is part of this
// program. It needs nothing of the host: no Python, no namespaces, no privileges, no
// virtualization.
//
// A session sees a file system in memory, clocks, random numbers and its channel, and
// nothing else exists for it: no processes, no sockets, no files of the host. All
// sessions of an engine live in one child process (package host), which the kernel
// confines to the use of the descriptors that it has: a session that broke out of
// WebAssembly by a fault of the compiler would find the other sessions of the same
// engine, and no way to the user's files, to the network or to other programs.
//
// The interpreter is compiled to machine code once for each machine, and a program's
// imports run once: their results lie in the cache directory, authenticated by a key of
// the state directory.
package wasm

import (
	"errors"
	"log/slog"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Name is the engine's name.
const Name = "wasm"

// Options configure the engine.
type Options struct {
	// Executable is started as the child: a build of cmd/sallyport. Empty: this
	// program.
	Executable string
	// CacheDir is a private directory for compiled code and images. It is created.
	CacheDir string
	// Key returns the secret of at least 32 bytes that authenticates what is in
	// CacheDir. It must not lie there.
	Key func() ([]byte, error)
	// Program is what Probe looks for in the cache. Nil: it does not say whether the
	// first start takes longer.
	Program *sandbox.Program
	// Progress, if not nil, is called while the interpreter is compiled for the first
	// time, at least twice: when that begins and when it has ended.
	Progress func(Progress)
	// Log may be nil.
	Log *slog.Logger
}

// Progress reports the first compilation of the interpreter.
type Progress struct {
	Done    bool
	Elapsed time.Duration
}

// errIncomplete is the error of options that lack something.
var errIncomplete = errors.New("wasm: CacheDir and Key are needed")
