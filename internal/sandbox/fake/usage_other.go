//go:build unix && !linux

package fake

import "github.com/sallyport/sallyport/internal/sandbox"

// groupUsage does not know.
func groupUsage(int) (sandbox.Usage, error) {
	return sandbox.Usage{CPU: -1, MemoryBytes: -1}, nil
}
