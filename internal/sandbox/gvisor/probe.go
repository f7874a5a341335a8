//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/hostroot"
)

// Probe implements sandbox.Backend. It starts no sandbox.
func (b *Backend) Probe(ctx context.Context) (*sandbox.Report, error) {
	rep := &sandbox.Report{
		Backend:   Name,
		Usable:    true,
		Isolation: sandbox.KernelIsolation,
		Duplex:    true,
		Snapshots: true,
		Limits:    b.groups.limitsOn(b.userns && b.scopes.available(ctx)),
	}
	rep.Limits[sandbox.Processes] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: "gVisor RLIMIT_NPROC"}
	rep.Limits[sandbox.Disk] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: "gVisor tmpfs size"}
	rep.Limits[sandbox.OpenFiles] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: "gVisor RLIMIT_NOFILE"}

	if b.opts.Image != "" {
		b.probeImage(rep)
	} else if p, err := b.interpreter(ctx, ""); err != nil {
		rep.Findings = append(rep.Findings, sandbox.Finding{
			Fatal:  true,
			Title:  "no usable Python on this host",
			Detail: err.Error(),
			Remedy: fmt.Sprintf("install Python %s or newer (Debian, Ubuntu: apt-get install python3), or name one with --python", hostroot.MinPython),
		})
	} else {
		rep.Python = fmt.Sprintf("%s (%s)", p.Executable, p.Version)
	}
	if f := b.obstacle(); f != nil {
		rep.Findings = append(rep.Findings, *f)
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

// obstacle looks for what keeps this user from starting a sandbox, and
// returns nil where nothing does.
func (b *Backend) obstacle() *sandbox.Finding {
	if !b.userns {
		return nil
	}
	if err := tryUserNamespace(b.opts.Executable); err == nil {
		return nil
	}
	setting := func(file string) string {
		v, err := os.ReadFile(file)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(v))
	}
	f := &sandbox.Finding{Fatal: true, Title: "this user may not create user namespaces"}
	switch {
	case setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		f.Detail = "AppArmor restricts unprivileged user namespaces (the default of Ubuntu 23.10 and later)"
		f.Remedy = "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give this executable an AppArmor profile with 'userns,'"
	case setting("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		f.Detail = "kernel.unprivileged_userns_clone is 0"
		f.Remedy = "sudo sysctl -w kernel.unprivileged_userns_clone=1"
	case setting("/proc/sys/user/max_user_namespaces") == "0":
		f.Detail = "user.max_user_namespaces is 0"
		f.Remedy = "sudo sysctl -w user.max_user_namespaces=15000"
	default:
		f.Detail = "the kernel refuses; in a container, its seccomp profile or its masked /proc may be the reason"
		f.Remedy = "run as root, or allow user namespaces for this container"
	}
	return f
}

// tryUserNamespace runs a program in the namespaces that a cell gets. The
// program ends at once.
func tryUserNamespace(executable string) error {
	cmd := exec.Command(executable)
	cmd.Args = []string{CellName} // a cell without a lifeline ends
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = cmd.Wait()
	return nil
}
