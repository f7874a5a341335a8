package container

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// probeTime bounds a probe of an engine that does not answer.
const probeTime = 20 * time.Second

// Probe implements sandbox.Engine. If the image is present, it starts a container
// of it, inspects that from inside and outside, and removes it. It does not pull
// images or start machines.
func (b *Engine) Probe(ctx context.Context) (*sandbox.Report, error) {
	rep := &sandbox.Report{
		Backend:   b.Name(),
		Isolation: sandbox.ContainerIsolation,
		Duplex:    true,
		Limits:    map[sandbox.Resource]sandbox.LimitReport{},
	}
	for _, r := range []sandbox.Resource{sandbox.Memory, sandbox.Processes, sandbox.CPU, sandbox.Disk, sandbox.OpenFiles} {
		rep.Limits[r] = sandbox.LimitReport{By: "unknown: the engine cannot be used"}
	}
	reference := b.reference(nil)
	if _, given := handed(reference); given {
		// It needs no network. What goes wrong, the examination says.
		if err := b.fetch(ctx, reference); err != nil {
			b.log.Debug("cannot get an image", "image", reference, "error", err)
		}
	}
	probe, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	f, img, err := b.examine(probe, reference)
	if ctx.Err() != nil {
		return nil, &sandbox.Error{Op: "probe", Backend: b.Name(), Err: ctx.Err()}
	}
	switch {
	case err == nil:
		b.describe(rep, f, img.inspection)
		rep.NoFolders = b.hides(f, img.inspection)
		b.promise(rep.Limits)
	case errors.Is(err, errNoImage) && (b.opts.Pull != PullNever || !pullable(reference)):
		// What the engine reports about itself, until an image can be inspected.
		b.describe(rep, f, &inspection{})
		rep.Limits, rep.Provisional = f.claimed(), true
		rep.Measure = "get the image with `" + b.opts.Engine + " pull " + b.opts.Image + "`"
		if rep.Possible = sandbox.KernelIsolation; (&inspection{runtime: b.runtime(f)}).shares() {
			rep.Possible = sandbox.ContainerIsolation
		}
		b.promise(rep.Limits)
		rep.Findings = append(rep.Findings, sandbox.Finding{
			Title:  "the image " + b.opts.Image + " is not here",
			Detail: "the first sandbox pulls it, which may take longer than a call may; limits and isolation are measured then",
			Remedy: b.opts.Engine + " pull " + b.opts.Image,
		})
	default:
		rep.Findings = append(rep.Findings, b.imageFinding(ctx, err))
	}
	rep.Usable = true
	for _, f := range rep.Findings {
		rep.Usable = rep.Usable && !f.Fatal
	}
	if !rep.Usable {
		rep.Isolation = sandbox.NoIsolation
	}
	return rep, nil
}

// promise remembers the limits that a probe reported.
func (b *Engine) promise(limits map[sandbox.Resource]sandbox.LimitReport) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.promised = limits
}

// errLess: an engine enforces less than a probe reported.
var errLess = errors.New("the engine enforces less than before")

// honest rejects a start if less was measured than the last probe reported: that
// report is what the policy accepted.
func (b *Engine) honest(measured map[sandbox.Resource]sandbox.LimitReport) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var less []string
	for r, said := range b.promised {
		if found := measured[r]; found.Enforcement < said.Enforcement {
			less = append(less, fmt.Sprintf("the limit on %s is %s, not %s (%s)", r, found.Enforcement, said.Enforcement, found.By))
		}
	}
	if less == nil {
		return nil
	}
	slices.Sort(less)
	return fmt.Errorf("%w: %s; try again: the policy then judges what was measured now (`sallyport doctor` shows what %s enforces)",
		errLess, strings.Join(less, ", "), b.opts.Engine)
}

// imageFinding explains an image that cannot be used, or an engine.
func (b *Engine) imageFinding(ctx context.Context, err error) sandbox.Finding {
	var unsafe *unsafeError
	switch {
	case errors.Is(err, errNoImage):
		return sandbox.Finding{
			Fatal: true, Title: "the image " + b.opts.Image + " is not here, and images.pull is never",
			Remedy: b.opts.Engine + " pull " + b.opts.Image,
		}
	case errors.As(err, &unsafe):
		return sandbox.Finding{
			Fatal: true, Title: "containers of " + b.opts.Engine + " are less isolated than requested", Detail: err.Error(),
			Remedy: "check what ~/.config/containers/containers.conf, /etc/containers/containers.conf and mounts.conf, or Docker's daemon.json, add to every container",
		}
	}
	return b.finding(ctx, err)
}

// describe completes the report of a working engine.
func (b *Engine) describe(rep *sandbox.Report, f *facts, t *inspection) {
	rep.Limits = t.limits(f)
	if t.inside.Python != "" {
		rep.Runtime = fmt.Sprintf("%s (%s) in %s", t.inside.Executable, t.inside.Python, b.opts.Image)
	}
	if kernel, own := t.ownKernel(f); own {
		rep.Isolation = sandbox.KernelIsolation
		rep.Findings = append(rep.Findings, sandbox.Finding{Title: "containers have a kernel of their own", Detail: kernel})
	} else if b.opts.Runtime != "" && t.inside.Python != "" {
		rep.Findings = append(rep.Findings, sandbox.Finding{
			Title:  "the OCI runtime " + b.opts.Runtime + " shares the host's kernel",
			Detail: "a container shows " + t.inside.Kernel,
		})
	}
	if rep.Isolation < sandbox.KernelIsolation {
		switch {
		case t.inside.Python != "" && !t.filtered():
			rep.Findings = append(rep.Findings, sandbox.Finding{
				Title:  "containers have no seccomp filter",
				Detail: "code in a sandbox can make every system call of the host's kernel",
				Remedy: "use an engine and an OCI runtime with seccomp",
			})
		case f.NoProfile:
			rep.Findings = append(rep.Findings, sandbox.Finding{
				Title:  "the seccomp filter is Podman's own",
				Detail: "the service cannot read Sallyport's profile, which lies on this machine; Podman's lets code make user namespaces",
			})
		}
	}
	for _, r := range []sandbox.Resource{sandbox.Memory, sandbox.Processes} {
		if l := rep.Limits[r]; l.Enforcement != sandbox.Hard && t.inside.Python != "" {
			finding := sandbox.Finding{
				Title:  fmt.Sprintf("the limit on %s is %s", r, l.Enforcement),
				Detail: f.where() + ": " + l.By,
			}
			if f.Rootless && !f.CgroupV2 {
				finding.Remedy = "boot with cgroup v2 (kernel argument systemd.unified_cgroup_hierarchy=1), or use the embedded gVisor"
			} else if f.Rootless {
				finding.Remedy = "delegate control groups to this user: https://rootlesscontaine.rs/getting-started/common/cgroup2/"
			}
			rep.Findings = append(rep.Findings, finding)
		}
	}
}

// claimed returns how limits are enforced according to the engine.
func (f *facts) claimed() map[sandbox.Resource]sandbox.LimitReport {
	by := "according to the engine; not measured yet"
	report := map[sandbox.Resource]sandbox.LimitReport{
		sandbox.Disk:      {Enforcement: sandbox.Hard, By: "tmpfs size"},
		sandbox.OpenFiles: {Enforcement: sandbox.Hard, By: "RLIMIT_NOFILE"},
	}
	for r, can := range map[sandbox.Resource]bool{sandbox.Memory: f.Memory, sandbox.Processes: f.Pids || f.ownUsers(), sandbox.CPU: f.CPU} {
		if can {
			report[r] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: by}
		} else {
			report[r] = sandbox.LimitReport{Enforcement: sandbox.Absent, By: unenforced(f, false)}
		}
	}
	return report
}
