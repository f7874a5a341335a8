// Package fake is a sandbox engine for tests: it isolates nothing and enforces
// nothing, and says so. It has two personalities. The duplex one runs the real
// guest with an interpreter of the host, as a plain process; the batch one runs
// Spec.Code with it and answers once. Both honour the whole contract of package
// sandbox, and a script can make either fail in every way that a real engine
// or a hostile guest could ([Faults]).
//
// It exists on systems with process groups only.
package fake
