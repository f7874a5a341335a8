//go:build !linux || !(amd64 || arm64)

package host

// Main names no part of an engine here.
func Main([]string) (code int, ok bool) { return 0, false }
