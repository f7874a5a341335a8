// Package sandboxtest is the one conformance suite of the sandbox engines:
// every implementation of the contract in package sandbox passes it, the fake
// included. What an engine cannot do is skipped by the capability that it
// declares, never by its name, and the environment variable [MustRunEnv] turns
// a skip into a failure.
//
// The isolation part is a catalogue of attempts ([Catalogue]), each with a
// positive control: the same probe must succeed on the host, outside the
// sandbox, or "blocked" inside it proves nothing.
package sandboxtest

import (
	"testing"

	"sallyport/internal/sandbox"
)

// Config says what to test.
type Config struct {
	// Engine names the engine and how it runs, for messages and for
	// [MustRunEnv]: "gvisor.root".
	Engine string
	// New makes a fresh backend. The suite closes it.
	New func(t testing.TB) sandbox.Backend
	// Root is the file system of the sandboxes, where not the default one.
	Root sandbox.Root
	// StateDir is where the engine keeps its own files on the host, which no
	// sandbox may see. Empty where it keeps none.
	StateDir string
	// HostPython runs the positive controls. It must be one that every user of
	// the host may run.
	HostPython string
	// ProofsFile, if not empty, is where a suite that runs as root leaves its
	// proofs. Another as root takes them for its own, and one that runs as an
	// ordinary user those that only root can give.
	ProofsFile string
	// Leftovers, if not nil, lists what of the engine's is on the host:
	// processes, mounts, files, and cgroups that have mark in their names, as
	// the IDs of all runs have. After the suite it must be empty.
	Leftovers func(mark string) []string
}
