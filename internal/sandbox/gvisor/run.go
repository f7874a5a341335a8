//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"path/filepath"
	"syscall"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// run is one sandbox, as seen by the program that started it.
type run struct{ *supervise.Run }

// launch starts the supervisor of cfg's sandbox in namespaces of its own, and
// waits until the guest's init runs. configure is called when the supervisor
// exists and has not done anything yet. An image is checked while the supervisor
// prepares; nil means a new sandbox.
func (b *Engine) launch(ctx context.Context, r supervise.Config, cfg *SupervisorConfig, image *sandbox.Image, configure func(pid int) error) (*run, error) {
	r.Handle = b.runs.Handle(cfg.ID)
	r.Executable, r.Name = b.opts.Executable, SupervisorName
	r.Attr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET,
	}
	if cfg.OwnUserNamespace {
		r.Attr.Cloneflags |= syscall.CLONE_NEWUSER
		r.Attr.UidMappings, r.Attr.GidMappings = ownIDs()
	}
	r.Room = true // for the kernel and the file server, which have many
	if image != nil {
		r.Files = image.Files
		for _, f := range image.Files {
			cfg.Restore = append(cfg.Restore, filepath.Base(f.Name()))
		}
		r.Confirm = func(ctx context.Context) error {
			if image.Check == nil {
				return nil
			}
			return image.Check(ctx)
		}
	}
	r.Configure = func(pid int) (any, error) { return cfg, configure(pid) }
	started, err := supervise.Start(ctx, r)
	if err != nil {
		return nil, err
	}
	return &run{started}, nil
}
