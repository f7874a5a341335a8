// Package sandboxtest is the conformance suite for sandbox engines: every
// implementation of the contract in package sandbox passes it, including the
// fake. Tests of something an engine cannot do are skipped according to the
// capabilities it declares, never by its name; the environment variable
// [MustRunEnv] turns a skip into a failure.
//
// The isolation part is a catalogue of attempts ([Catalogue]), each with a
// positive control: the same probe must succeed on the host, outside the
// sandbox, or "blocked" inside it proves nothing.
package sandboxtest

import (
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Config says what to test.
type Config struct {
	// Engine names the engine and how it runs, for messages and for
	// [MustRunEnv]: "gvisor.root".
	Engine string
	// New makes a fresh backend. The suite closes it.
	New func(t testing.TB) sandbox.Engine
	// Root is the sandboxes' file system, if not the default one.
	Root sandbox.Root
	// StateDir is where the engine keeps its own files on the host, which no
	// sandbox may see. It is empty if there are none.
	StateDir string
	// HostPython runs the positive controls. Every user of the host must be
	// able to run it.
	HostPython string
	// ProofsFile, if not empty, is where a suite run by root saves its proofs.
	// Later runs by root reuse them; a run by an ordinary user takes from it
	// the proofs that only root can produce.
	ProofsFile string
	// Leftovers, if not nil, lists what the engine has on the host: processes,
	// mounts, files, and cgroups with mark in their names, as the IDs of all
	// runs have. After the suite it must be empty.
	Leftovers func(mark string) []string
	// Attempts names the attempts of the catalogue that [Attack] makes. [Run]
	// makes all of them.
	Attempts []string
}
