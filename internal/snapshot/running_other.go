//go:build !unix

package snapshot

// running says whether there is such a process, where that can be told.
func running(int) bool { return false }
