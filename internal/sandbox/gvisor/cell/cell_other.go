//go:build !linux || !(amd64 || arm64)

// Package cell is the inside of the gVisor engine, which exists on Linux on
// amd64 and arm64 only.
package cell

// Main reports that no part of the engine is here.
func Main([]string) (code int, ok bool) { return 0, false }
