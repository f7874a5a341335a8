//go:build !unix

package snapshot

// running reports whether the process exists, where that is known.
func running(int) bool { return false }
