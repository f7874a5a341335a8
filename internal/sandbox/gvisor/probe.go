//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Probe implements sandbox.Engine. It starts a sandbox that exits at once, or
// finds that one did in the same surroundings before.
func (b *Engine) Probe(ctx context.Context) (*sandbox.Report, error) {
	userns, obstacle := b.way(ctx)
	if err := ctx.Err(); err != nil {
		return nil, &sandbox.Error{Op: "probe", Backend: Name, Err: err}
	}
	rep := &sandbox.Report{
		Backend:   Name,
		Usable:    true,
		Isolation: sandbox.KernelIsolation,
		Duplex:    true,
		Snapshots: true,
		Limits:    b.groups.limitsOn(userns && b.scopes.available(ctx)),
	}
	rep.Limits[sandbox.Processes] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: "gVisor RLIMIT_NPROC"}
	rep.Limits[sandbox.Disk] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: "gVisor tmpfs size"}
	rep.Limits[sandbox.OpenFiles] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: "gVisor RLIMIT_NOFILE"}

	if b.opts.Image != "" {
		b.probeImage(rep)
	} else {
		b.host.Describe(ctx, b.opts.Program, rep)
	}
	if obstacle != nil {
		rep.Findings = append(rep.Findings, *b.obstacle(obstacle))
	}
	if rep.Limits[sandbox.Memory].Enforcement == sandbox.Soft {
		rep.Findings = append(rep.Findings, sandbox.Finding{
			Title:  "the memory limit is soft",
			Detail: "a watcher samples the sandbox's memory and ends it past the limit; a control group would enforce it in the host's kernel",
			Remedy: "run as root, or log in through systemd on a host with cgroup v2: its user manager makes control groups (loginctl enable-linger $USER; systemctl --user status)",
		})
	}
	for _, f := range rep.Findings {
		rep.Usable = rep.Usable && !f.Fatal
	}
	return rep, nil
}
