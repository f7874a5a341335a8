//go:build linux && (amd64 || arm64)

package process

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// endGrace is how long a supervisor may take to end what it started. Only the
// supervisor can do that: without namespaces nothing else finds all processes.
const endGrace = 5 * time.Second

// launch starts the supervisor of a run and waits until the guest runs. release
// removes what else belongs to the run.
func (b *Engine) launch(ctx context.Context, id string, l *launch, release func() error) (*supervise.Run, error) {
	attr := &syscall.SysProcAttr{}
	if l.cfg.Namespaces {
		attr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
		if l.cfg.OwnNetwork {
			attr.Cloneflags |= syscall.CLONE_NEWNET
		}
	}
	if l.cfg.UserNamespace {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return supervise.Start(ctx, supervise.Config{
		Handle:     b.runs.Handle(id),
		Executable: b.opts.Executable,
		Name:       SupervisorName,
		Attr:       attr,
		Configure:  func(pid int) (any, error) { return &l.cfg, l.prepare(pid, &l.cfg) },
		Grace:      endGrace,
		Release:    release,
	})
}
