//go:build !linux

package image

// flush leaves it to the system when the disk takes what was written.
func flush(string) error { return nil }
