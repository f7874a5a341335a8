//go:build linux && (amd64 || arm64)

package cell

import (
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/sandbox"
)

// snapshot writes the whole state of the sandbox into a directory. Pages lie in
// a file of their own, from which a restored sandbox takes them as it needs
// them.
func (c *cell) snapshot(dir string, keep bool) error {
	return c.container.Checkpoint(c.conf, dir, sandbox.CheckpointOpts{
		Compression:               statefile.CompressionLevelNone,
		Resume:                    keep,
		ExcludeCommittedZeroPages: true,
	})
}

// restore goes on from a snapshot, with this process's descriptors 0 to 2 in
// the place of those that the snapshot's guest had.
func (c *cell) restore() error {
	return c.container.Restore(c.conf, c.cfg.Restore, false, true, &boot.CreateLinksAndRoutesArgs{})
}
