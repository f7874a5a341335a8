//go:build linux

package sandboxtest

import "sallyport/internal/sandbox"

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
	// Probe is the body of a Python function probe(P) that runs after
	// prelude.py in a process of its own. It returns a text where it reached
	// what it tries, and raises OSError or Blocked where it did not. Any other
	// exception is a bug in the probe and fails the test.
	Probe string
	// Level is the weakest isolation that must block the attempt. The zero
	// value means every kind of isolation.
	Level sandbox.Isolation
	// Control is the positive control.
	Control Control
	// Canary asks for a fresh process on the host as P["canary"]; that it was
	// signalled or died counts as reached, whatever the probe says.
	Canary bool
	// Wrecks: the attempt may end its own sandbox, so it gets one to itself.
	Wrecks bool
	// OwnKernel says why reaching it is no escape from an engine that has a
	// kernel of its own, where it concerns that kernel alone. The summary shows
	// it, and nothing fails.
	OwnKernel string
}

// Control says how an attempt is proved: natively on the host its probe must
// reach what it tries, or "blocked" inside the sandbox means nothing.
type Control struct {
	// Root: it succeeds only for the host's root. A suite that runs as an
	// ordinary user takes the verdict that root's run found.
	Root bool
	// Nobody: it has to run as an ordinary user, since root proves nothing.
	Nobody bool
	// Private runs the control in mount, UTS and IPC namespaces of its own, so
	// that it changes nothing of the host.
	Private bool
	// Probe replaces the attempt's own probe where that would harm the host.
	// Why says what it proves instead.
	Probe string
	Why   string
	// Unproven says why a control that does not succeed is accepted, for what
	// not every kernel or machine has. Empty: it fails the test.
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
