//go:build linux && (amd64 || arm64)

package gvisor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"sallyport/internal/sandbox"
)

// Settings of the kernel that forbid user namespaces.
const (
	maxUserNamespaces = "/proc/sys/user/max_user_namespaces"
	usernsClone       = "/proc/sys/kernel/unprivileged_userns_clone"             // Debian's
	apparmorUserns    = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns" // Ubuntu's
)

var settings = []string{maxUserNamespaces, usernsClone, apparmorUserns}

// A host is what is known of the place in which no sandbox starts.
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
	bare      error             // of making a user namespace
	mapped    error             // of making one in which this user is mapped
}

// look finds out what there is to know.
func (b *Backend) look() host {
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
			h.chroot = false // or its root is a mount point
		case strings.HasPrefix(point, "/proc/") && point != "/proc/sys/fs/binfmt_misc":
			h.masked = append(h.masked, point)
		}
	}
	for _, line := range procLines("/proc/self/status") {
		if name, value, _ := strings.Cut(line, ":"); name == "Seccomp" {
			h.filtered = strings.TrimSpace(value) == "2"
		}
	}
	// A machine made from an image may have these files too.
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
	h.bare = inUserNamespace(b.opts.Executable, false)
	h.mapped = inUserNamespace(b.opts.Executable, true)
	return h
}

// inUserNamespace starts a process in a user namespace that ends at once.
func inUserNamespace(executable string, mapped bool) error {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	if mapped {
		attr.UidMappings, attr.GidMappings = ownIDs()
	}
	// Not exec.Cmd, which needs a /dev/null. A cell without a lifeline ends.
	p, err := os.StartProcess(executable, []string{CellName}, &os.ProcAttr{Env: []string{}, Sys: attr})
	if err != nil {
		return err
	}
	_, err = p.Wait()
	return err
}

// ownIDs map this user, and nobody else, to root of a user namespace.
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

// obstacle says why no sandbox starts here and what would let one start.
func (b *Backend) obstacle(err error) *sandbox.Finding {
	var failed *unusable
	if !errors.As(err, &failed) {
		return &sandbox.Finding{Fatal: true, Title: "a sandbox cannot be tried out", Detail: err.Error()}
	}
	f := b.look().explain(failed.attempts)
	f.Fatal = true
	return f
}

// unavailable is an error that says what a finding says.
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

// explain finds the cause. What the attempts say comes last: it is gVisor's
// words, or the kernel's.
func (h host) explain(attempts []attempt) *sandbox.Finding {
	said := make([]string, len(attempts))
	for i, a := range attempts {
		said[i] = strings.Join(strings.Fields(a.err.Error()), " ")
		if long := 240; len(said[i]) > long { // a stack trace of gVisor's
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
		return &sandbox.Finding{Title: title, Detail: detail + "The trial said: " + words, Remedy: remedy}
	}
	mentions := func(what string) bool { return strings.Contains(words, what) }
	_, restricted := h.settings[apparmorUserns]
	restricted = restricted && h.settings[apparmorUserns] != "0"
	switch {
	case h.settings[maxUserNamespaces] == "0" && h.bare != nil:
		return f("user namespaces are switched off", "user.max_user_namespaces is 0", h.outside("sudo sysctl -w user.max_user_namespaces=15000"))
	case errors.Is(h.bare, unix.ENOSPC):
		return f("no further user namespace can be made", "user.max_user_namespaces, here or further out, is reached", h.outside("sudo sysctl -w user.max_user_namespaces=15000"))
	case h.settings[usernsClone] == "0" && !h.admin:
		return f("user namespaces are switched off for ordinary users", "kernel.unprivileged_userns_clone is 0", h.outside("sudo sysctl -w kernel.unprivileged_userns_clone=1"))
	case h.chroot && errors.Is(h.bare, unix.EPERM), errors.Is(h.bare, unix.EPERM) && !h.filtered && h.apparmor == "" && !restricted:
		// Of what makes the kernel itself refuse, a chroot is what is left.
		return f("this process runs in a chroot", "the kernel forbids user namespaces there",
			"enter the directory as a container instead, such as with podman run --rootfs DIR, or systemd-nspawn -D DIR")
	case errors.Is(h.bare, unix.EINVAL):
		return f("this kernel has no user namespaces", "", "run as root, with CAP_SYS_ADMIN")
	case h.bare == nil && h.mapped != nil && h.root && !h.setfcap && !h.filtered && len(h.masked) == 0:
		return f("root without CAP_SYS_ADMIN and CAP_SETFCAP can start no sandbox",
			"a user namespace that maps root takes CAP_SETFCAP", "run as an ordinary user, or as root with either capability")
	case len(h.limits) > 0 && h.bare == nil && len(h.masked) == 0:
		return f("a resource limit is too low", strings.Join(h.limits, ", "), "raise it, with ulimit or docker run --ulimit")
	case restricted && !h.admin && !h.filtered && len(h.masked) == 0:
		return f("AppArmor restricts user namespaces", "kernel.apparmor_restrict_unprivileged_userns is 1, the default of Ubuntu 23.10 and later",
			"sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give this executable an AppArmor profile with 'userns,'")
	}
	return h.explainContainer(f, mentions)
}

// explainContainer is explain for what containers restrict.
func (h host) explainContainer(f func(title, detail, remedy string) *sandbox.Finding, mentions func(string) bool) *sandbox.Finding {
	// Docker's filter lets CAP_SYS_ADMIN make namespaces and mounts, but not
	// pivot_root; without it, no namespaces. Podman's lets everybody, but forbids
	// chroot to a container without CAP_SYS_CHROOT, also in a user namespace.
	filter := h.filtered && (h.bare != nil || !h.sysChroot || mentions("pivot_root") || len(h.masked) == 0)
	// With CAP_SYS_ADMIN nothing of /proc is in the way.
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

// outside is a remedy that a container can only have from its host.
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
