//go:build linux && (amd64 || arm64)

package gvisor

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Settings of the kernel that forbid user namespaces.
const (
	maxUserNamespaces = "/proc/sys/user/max_user_namespaces"
	usernsClone       = "/proc/sys/kernel/unprivileged_userns_clone"             // Debian's
	apparmorUserns    = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns" // Ubuntu's
)

var settings = []string{maxUserNamespaces, usernsClone, apparmorUserns}

// A host is what is known about a host on which no sandbox starts.
type host struct {
	container string // "docker", "podman", or "" for another or none
	root      bool
	admin     bool // CAP_SYS_ADMIN
	setfcap   bool // CAP_SETFCAP, which root needs to map itself into a user namespace
	sysChroot bool // CAP_SYS_CHROOT in the bounding set: containers have it by default
	filtered  bool // a seccomp filter applies
	chroot    bool
	masked    []string          // mounts that hide parts of /proc
	apparmor  string            // the profile that confines this process, if one does
	settings  map[string]string // those of the kernel that exist
	limits    []string          // resource limits that are too low
	dynamic   bool              // the executable needs a dynamic linker
	bare      error             // from making a user namespace
	mapped    error             // from making one in which this user is mapped
}

// look examines the host.
func (b *Engine) look() host {
	h := host{
		root: os.Geteuid() == 0, admin: hasCapability(unix.CAP_SYS_ADMIN), setfcap: hasCapability(unix.CAP_SETFCAP),
		settings: map[string]string{},
	}
	bounding, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_CHROOT, 0, 0, 0)
	h.sysChroot = err == nil && bounding == 1
	for _, file := range settings {
		if v, err := os.ReadFile(file); err == nil {
			h.settings[file] = strings.TrimSpace(string(v))
		}
	}
	mounts := procLines("/proc/self/mountinfo")
	h.chroot = len(mounts) > 0
	for _, line := range mounts {
		switch point := mountPoint(line); {
		case point == "/":
			h.chroot = false // unless the chroot is a mount point
		case strings.HasPrefix(point, "/proc/") && point != "/proc/sys/fs/binfmt_misc":
			h.masked = append(h.masked, point)
		}
	}
	for _, line := range procLines("/proc/self/status") {
		if name, value, _ := strings.Cut(line, ":"); name == "Seccomp" {
			h.filtered = strings.TrimSpace(value) == "2"
		}
	}
	// A virtual machine made from a container image may have these files, too.
	if restricted := h.filtered || len(h.masked) > 0; !restricted {
	} else if _, err := os.Lstat("/.dockerenv"); err == nil {
		h.container = "docker"
	} else if _, err := os.Lstat("/run/.containerenv"); err == nil {
		h.container = "podman"
	}
	if label, err := os.ReadFile("/proc/self/attr/apparmor/current"); err == nil {
		h.apparmor = strings.TrimRight(string(label), "\x00\n")
		if h.apparmor == "unconfined" {
			h.apparmor = ""
		}
	}
	h.limits = lowLimits()
	h.dynamic = dynamic(b.opts.Executable)
	h.bare = inUserNamespace(b.opts.Executable, false)
	h.mapped = inUserNamespace(b.opts.Executable, true)
	return h
}

// inUserNamespace starts a process that ends at once in a user namespace.
func inUserNamespace(executable string, mapped bool) error {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	if mapped {
		attr.UidMappings, attr.GidMappings = ownIDs()
	}
	// Not exec.Cmd, which needs a /dev/null. A supervisor without a lifeline ends.
	p, err := os.StartProcess(executable, []string{SupervisorName}, &os.ProcAttr{Env: []string{}, Sys: attr})
	if err != nil {
		return err
	}
	_, err = p.Wait()
	return err
}

// dynamic reports whether an executable names a dynamic linker, which is not there
// in the empty root that gVisor's processes run in.
func dynamic(executable string) bool {
	f, err := elf.Open(executable)
	if err != nil {
		return false
	}
	defer f.Close()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// ownIDs returns the maps of this user, and no other, to root of a user namespace.
func ownIDs() (users, groups []syscall.SysProcIDMap) {
	return []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		[]syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
}

// lowLimits lists resource limits below what gVisor's processes need.
func lowLimits() []string {
	var low []string
	for _, l := range []struct {
		name, option string
		resource     int
		need         uint64
	}{
		{"RLIMIT_AS", "ulimit -v", unix.RLIMIT_AS, unix.RLIM_INFINITY},
		{"RLIMIT_DATA", "ulimit -d", unix.RLIMIT_DATA, 4 << 30},
		{"RLIMIT_FSIZE", "ulimit -f", unix.RLIMIT_FSIZE, unix.RLIM_INFINITY},
		{"RLIMIT_NOFILE", "ulimit -n", unix.RLIMIT_NOFILE, 256},
		{"RLIMIT_NPROC", "ulimit -u", unix.RLIMIT_NPROC, 256},
	} {
		var r unix.Rlimit
		if err := unix.Getrlimit(l.resource, &r); err == nil && r.Cur < l.need {
			low = append(low, fmt.Sprintf("%s is %d (%s)", l.name, r.Cur, l.option))
		}
	}
	return low
}

// obstacle explains why no sandbox starts here, and how to change that.
func (b *Engine) obstacle(err error) *sandbox.Finding {
	var failed *unusable
	if !errors.As(err, &failed) {
		return &sandbox.Finding{Fatal: true, Title: "a sandbox could not be tried", Detail: err.Error()}
	}
	f := b.look().explain(failed.attempts)
	f.Fatal = true
	return f
}

// unavailable returns a finding as an error.
func unavailable(f *sandbox.Finding) error {
	text := f.Title
	if f.Remedy != "" {
		text += ": " + f.Remedy
	}
	if f.Detail != "" {
		text += " (" + f.Detail + ")"
	}
	return errors.New(text)
}

// explain finds the cause. The errors of the attempts come last: they are gVisor's
// or the kernel's.
func (h host) explain(attempts []attempt) *sandbox.Finding {
	said := make([]string, len(attempts))
	for i, a := range attempts {
		said[i] = strings.Join(strings.Fields(a.err.Error()), " ")
		if long := 240; len(said[i]) > long { // a stack trace from gVisor
			said[i] = strings.ToValidUTF8(said[i][:long], "") + "…"
		}
		if len(attempts) > 1 {
			said[i] = map[bool]string{rootWay: "as root: ", usernsWay: "in a user namespace: "}[a.userns] + said[i]
		}
	}
	words := strings.Join(said, "; ")
	f := func(title, detail, remedy string) *sandbox.Finding {
		if detail != "" {
			detail += ". "
		}
		return &sandbox.Finding{Title: title, Detail: detail + "The trial failed with: " + words, Remedy: remedy}
	}
	mentions := func(what string) bool { return strings.Contains(words, what) }
	_, restricted := h.settings[apparmorUserns]
	restricted = restricted && h.settings[apparmorUserns] != "0"
	switch {
	case h.dynamic:
		return f("this executable is linked dynamically, and gVisor's processes must be static", "it was built with cgo", "build it with CGO_ENABLED=0 go build ./cmd/sallyport")
	case h.settings[maxUserNamespaces] == "0" && h.bare != nil:
		return f("user namespaces are switched off", "user.max_user_namespaces is 0", h.outside("sudo sysctl -w user.max_user_namespaces=15000"))
	case errors.Is(h.bare, unix.ENOSPC):
		return f("no more user namespaces can be made", "the limit user.max_user_namespaces, here or in an outer namespace, is reached", h.outside("sudo sysctl -w user.max_user_namespaces=15000"))
	case h.settings[usernsClone] == "0" && !h.admin:
		return f("user namespaces are switched off for ordinary users", "kernel.unprivileged_userns_clone is 0", h.outside("sudo sysctl -w kernel.unprivileged_userns_clone=1"))
	case h.chroot && errors.Is(h.bare, unix.EPERM), errors.Is(h.bare, unix.EPERM) && !h.filtered && h.apparmor == "" && !restricted:
		// The kernel itself refuses, and only a chroot is left as the reason.
		return f("this process runs in a chroot", "the kernel forbids user namespaces there",
			"enter the directory as a container instead, such as with podman run --rootfs DIR, or systemd-nspawn -D DIR")
	case errors.Is(h.bare, unix.EINVAL):
		return f("this kernel has no user namespaces", "", "run as root, with CAP_SYS_ADMIN")
	case h.bare == nil && h.mapped != nil && h.root && !h.setfcap && !h.filtered && len(h.masked) == 0:
		return f("root without CAP_SYS_ADMIN and CAP_SETFCAP cannot start a sandbox",
			"mapping root into a user namespace requires CAP_SETFCAP", "run as an ordinary user, or as root with either capability")
	case len(h.limits) > 0 && h.bare == nil && len(h.masked) == 0:
		return f("a resource limit is too low", strings.Join(h.limits, ", "), "raise it, with ulimit or docker run --ulimit")
	case restricted && !h.admin && !h.filtered && len(h.masked) == 0:
		return f("AppArmor restricts user namespaces", "kernel.apparmor_restrict_unprivileged_userns is 1, the default of Ubuntu 23.10 and later",
			"sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give this executable an AppArmor profile with 'userns,'")
	}
	return h.explainContainer(f, mentions)
}

// explainContainer is explain for restrictions of containers.
func (h host) explainContainer(f func(title, detail, remedy string) *sandbox.Finding, mentions func(string) bool) *sandbox.Finding {
	// With CAP_SYS_ADMIN, Docker's filter allows namespaces and mounts, but not
	// pivot_root; without it, no namespaces. Podman's allows them to everyone, but
	// forbids chroot in a container without CAP_SYS_CHROOT, even in a user
	// namespace.
	filter := h.filtered && (h.bare != nil || !h.sysChroot || mentions("pivot_root") || len(h.masked) == 0)
	// With CAP_SYS_ADMIN, masked parts of /proc do not matter.
	masked := len(h.masked) > 0 && !(h.admin && filter)
	var why, flags []string
	if filter {
		why = append(why, "its seccomp filter forbids system calls that make a sandbox")
		flags = append(flags, "--security-opt seccomp=unconfined")
	}
	if h.apparmor != "" {
		why = append(why, fmt.Sprintf("the AppArmor profile %s forbids mounts", h.apparmor))
		flags = append(flags, "--security-opt apparmor=unconfined")
	}
	asAdmin := append([]string{"--cap-add SYS_ADMIN"}, flags...)
	if masked {
		why = append(why, "parts of its /proc are hidden ("+someOf(h.masked)+"), so no other can be mounted")
	}
	if h.root && !h.admin && !h.setfcap {
		why = append(why, "root lacks CAP_SETFCAP, so no user namespace can map it")
		flags = append(flags, "--cap-add SETFCAP")
	}
	if len(why) == 0 {
		return f("no sandbox starts here", "", "SALLYPORT_DEBUG_GVISOR=DIR sallyport doctor writes gVisor's logs to DIR")
	}
	unmask := map[string]string{
		"docker": "--security-opt systempaths=unconfined",
		"podman": "--security-opt unmask=ALL",
	}
	engines := []string{h.container}
	if h.container == "" {
		engines = []string{"docker", "podman"}
	}
	var remedies []string
	for _, engine := range engines {
		with := slices.Clone(flags)
		if masked {
			with = append(with, unmask[engine])
		}
		remedy := "add to `" + engine + " run`: " + strings.Join(with, " ")
		if h.root && !h.admin {
			remedy += " (safer with --user 1000: root of a container may write to the host's /proc/sys), or " + strings.Join(asAdmin, " ")
		}
		remedies = append(remedies, remedy)
	}
	return f("this container keeps gVisor from starting a sandbox", strings.Join(why, "; "), strings.Join(remedies, "; or "))
}

// outside returns a remedy that must be applied on a container's host.
func (h host) outside(remedy string) string {
	if h.filtered || len(h.masked) > 0 {
		return remedy + ", on the container's host"
	}
	return remedy
}

func someOf(paths []string) string {
	if len(paths) > 2 {
		return strings.Join(paths[:2], ", ") + ", …"
	}
	return strings.Join(paths, ", ")
}
