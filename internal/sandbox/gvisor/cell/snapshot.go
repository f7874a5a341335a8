//go:build linux && (amd64 || arm64)

package cell

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/sandbox"

	"sallyport/internal/sandbox/gvisor"
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
// the place of those that the snapshot's guest had. The runtime wants the
// snapshot's files in a directory.
func (c *cell) restore(dir string) error {
	for i, name := range c.cfg.Restore {
		fd := gvisor.ImageFD + i
		defer unix.Close(fd)
		if err := os.Symlink(fmt.Sprintf("/proc/self/fd/%d", fd), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	// The loopback is made anew; a sandbox has no other network.
	return c.container.Restore(c.conf, dir, false, true, &boot.CreateLinksAndRoutesArgs{
		LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink},
		IsRestore:     true,
	})
}
