//go:build !linux || !(amd64 || arm64)

// Package supervisor is the part of the gVisor engine that runs inside a sandbox's
// namespaces. It exists only on Linux on amd64 and arm64.
package supervisor

// Main reports that args name no part of the engine.
func Main([]string) (code int, ok bool) { return 0, false }
