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

	outer "github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// snapshot writes the whole state of the sandbox into a directory. Pages are in a
// file of their own, from which a restored sandbox loads them on demand.
func (s *supervisor) snapshot(dir string, keep bool) error {
	// gVisor ends a sandbox that it cannot save, unless that is to go on. An open file of
	// a folder is a reason that the code can remove, so the sandbox stands still meanwhile,
	// and is ended here.
	hold := !keep && len(s.cfg.Mounts) > 0
	if hold {
		if err := s.container.Pause(); err != nil {
			return err
		}
	}
	err := s.container.Checkpoint(s.conf, dir, sandbox.CheckpointOpts{
		Compression:               statefile.CompressionLevelNone,
		Resume:                    keep || hold,
		ExcludeCommittedZeroPages: true,
	})
	if err != nil && strings.Contains(err.Error(), "invalidated dentries can't be saved") {
		err = outer.ErrHeld // a restored sandbox could not find the file
	}
	switch {
	case hold && err == nil:
		s.saved.Store(true)
		return unix.Kill(s.container.SandboxPid(), unix.SIGKILL)
	case hold:
		return errors.Join(err, s.container.Resume())
	}
	return err
}

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
