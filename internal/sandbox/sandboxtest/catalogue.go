//go:build linux

package sandboxtest

import (
	"fmt"
	"slices"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// An Attempt is one entry of the isolation catalogue: something that hostile
// code tries. To add one, append to a category's list; the runner needs
// nothing else.
type Attempt struct {
	// Name is unique in the catalogue: [a-z0-9-].
	Name string
	// Category groups the summary.
	Category string
	// Tries says in one sentence what the code does when it succeeds.
	Tries string
	// Probe is the body of a Python function probe(P), run after prelude.py in
	// a process of its own. It returns a string if it reached what it tries to
	// reach, and raises OSError or Blocked if it did not. Any other exception
	// is a bug in the probe and fails the test.
	Probe string
	// Level is the weakest isolation that must block the attempt. The zero
	// value means every kind of isolation.
	Level sandbox.Isolation
	// Control is the positive control.
	Control Control
	// Canary requests a fresh host process as P["canary"]. If it is signalled
	// or dies, the attempt counts as reached, whatever the probe reports.
	Canary bool
	// Wrecks is set if the attempt may end its own sandbox, so it gets one to
	// itself.
	Wrecks bool
	// Folders runs the attempt in a sandbox with mounted folders. An engine that
	// mounts none skips it.
	Folders bool
	// OwnKernel explains why reaching this is not an escape from an engine with
	// its own kernel: only that kernel is affected. The summary shows it, and
	// nothing fails.
	OwnKernel string
}

// Control says how an attempt is proved: its probe must succeed natively on the
// host, or "blocked" inside the sandbox means nothing.
type Control struct {
	// Root is set if only the host's root can succeed. A suite that runs as an
	// ordinary user takes the verdict that root's run found.
	Root bool
	// Nobody is set if it must run as an ordinary user, since root proves
	// nothing.
	Nobody bool
	// Private runs the control in its own mount, UTS and IPC namespaces, so
	// that it does not change the host.
	Private bool
	// Probe replaces the attempt's own probe where that would harm the host.
	// Why says what it proves instead.
	Probe string
	Why   string
	// Unproven says why the control may fail: not every kernel or machine has
	// what it needs. If empty, a failing control fails the test.
	Unproven string
}

// Catalogue returns every attempt, in a fixed order.
func Catalogue() []Attempt {
	var all []Attempt
	for _, list := range [][]Attempt{
		networkAttempts(),
		egressAttempts(),
		socketAttempts(),
		hostFileAttempts(),
		kernelFileAttempts(),
		writeAttempts(),
		mountAttempts(),
		namespaceAttempts(),
		privilegeAttempts(),
		confinementAttempts(),
		kernelAttempts(),
		surfaceAttempts(),
		runtimeAttempts(),
		processAttempts(),
		neighbourAttempts(),
		sharingAttempts(),
		channelAttempts(),
		passingAttempts(),
		folderAttempts(),
	} {
		all = append(all, list...)
	}
	for i := range all {
		if all[i].Level == sandbox.NoIsolation {
			all[i].Level = sandbox.PlatformIsolation
		}
	}
	return all
}

// selected returns the attempts with these names in the catalogue's order, or
// all of them if names is nil.
func selected(names []string) ([]Attempt, error) {
	all := Catalogue()
	if names == nil {
		return all, nil
	}
	for i, name := range names {
		if !slices.ContainsFunc(all, func(a Attempt) bool { return a.Name == name }) {
			return nil, fmt.Errorf("the catalogue has no attempt %q", name)
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("the attempt %q is named twice", name)
		}
	}
	return slices.DeleteFunc(all, func(a Attempt) bool { return !slices.Contains(names, a.Name) }), nil
}
