// Package fake is a sandbox engine for tests: it isolates nothing and enforces
// nothing, and reports that. It runs the real guest with an interpreter of the
// host, as a plain process. It honours the whole contract of package sandbox,
// and a test can make it fail in every way that a real engine or a hostile
// guest could ([Faults]).
//
// It exists on systems with process groups only.
package fake
