//go:build linux && (amd64 || arm64)

package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/sandbox"

	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// snapshot writes the whole state of the sandbox into a directory. Pages are in a
// file of their own, from which a restored sandbox loads them on demand.
func (s *supervisor) snapshot(dir string, keep bool) error {
	err := s.container.Checkpoint(s.conf, dir, sandbox.CheckpointOpts{
		Compression:               statefile.CompressionLevelNone,
		Resume:                    keep,
		ExcludeCommittedZeroPages: true,
	})
	if err != nil && strings.Contains(err.Error(), "invalidated dentries can't be saved") {
		err = errHeld
	}
	return err
}

// errHeld: a restored sandbox could not find such a file again.
var errHeld = errors.New("the code has a file of a mounted folder open that was removed or replaced on the host. It must close it first")

// restore restores a snapshot. This process's descriptors 0 to 2 replace those of
// the snapshot's guest. The runtime requires the snapshot's files in a directory.
func (s *supervisor) restore(dir string) error {
	for i, name := range s.cfg.Restore {
		fd := supervise.FirstFile + i
		defer unix.Close(fd)
		if err := os.Symlink(fmt.Sprintf("/proc/self/fd/%d", fd), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	// Make the loopback interface again: a sandbox has no other network.
	return s.container.Restore(s.conf, dir, false, true, &boot.CreateLinksAndRoutesArgs{
		LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink},
		IsRestore:     true,
	})
}
