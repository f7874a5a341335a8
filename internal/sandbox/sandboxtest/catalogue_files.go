//go:build linux

package sandboxtest

import (
	"fmt"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// canaryDirs are the host directories where the test plants a file. Those that
// only root can write to stay unproven unless root planted a file there.
var canaryDirs = []string{"/tmp", "/var/tmp", "/dev/shm", "/root", "/home", "/run", "/srv", "/opt", "/mnt", "/media", "/var/lib"}

// hostFileAttempts read the host's files.
func hostFileAttempts() []Attempt {
	const c = "host-files"
	list := []Attempt{
		{Name: "shadow", Category: c, Tries: "reads /etc/shadow", Probe: `
if b":" in read_some("/etc/shadow"):
    return "read it"
`, Control: Control{Root: true}},
		{Name: "etc-secrets", Category: c, Tries: "reads another secret of /etc: sudoers, gshadow, host keys, keytabs", Probe: `
def attempt(p):
    return lambda: read_some(p) and "read " + p
paths = ["/etc/sudoers", "/etc/gshadow", "/etc/shadow-", "/etc/krb5.keytab", "/etc/security/opasswd"]
paths += glob.glob("/etc/ssh/ssh_host_*_key") + glob.glob("/etc/ssl/private/*") + glob.glob("/etc/kubernetes/*")
return first([attempt(p) for p in paths])
`, Control: Control{Root: true}},
		{Name: "machine-id", Category: c, Tries: "reads the host's machine id", Probe: `
def attempt(p):
    return lambda: read_some(p).strip() and "read " + p
return first([attempt("/etc/machine-id"), attempt("/var/lib/dbus/machine-id")])
`, Control: Control{Unproven: "a host without systemd or D-Bus has none"}},
		{Name: "host-users", Category: c, Tries: "lists the host's ordinary users", Probe: `
import pwd
found = [u.pw_name for u in pwd.getpwall() if 1000 <= u.pw_uid < 60000]
if found:
    return "found " + ", ".join(found)
`, Control: Control{Unproven: "a host may have no ordinary user"}},
		{Name: "host-directories", Category: c, Tries: "lists a directory of the host that Python does not need", Probe: `
def attempt(p):
    return lambda: os.listdir(p) and "%s has entries" % p
return first([attempt(p) for p in ("/root", "/home", "/var/lib", "/var/log", "/var/cache", "/boot", "/srv", "/media", "/mnt", "/run/systemd")])
`},
		{Name: "find-canary", Category: c, Tries: "finds a canary file of the host anywhere in the file system", Probe: `
for p in walk(["/tmp", "/var/tmp", "/run", "/dev", "/mnt", "/media", "/srv", "/opt", "/root", "/home", "/workspace", "/"], 150000):
    if P["token"] in p:
        return "found " + p
`},
		{Name: "dotdot", Category: c, Tries: "leaves the root by .. from every place that has one", Probe: `
canary = P["files"]["/tmp"].lstrip("/")
def attempt(base):
    return lambda: read_some(base + "/../" * 40 + canary).decode() == P["token"] and "read it from " + base
return first([attempt(b) for b in ("/workspace", "/tmp", "/proc/self/cwd", "/proc/self/root", "/proc/1/root", "/proc/1/cwd", "/dev/fd", "/sys")])
`},
		{Name: "proc-root", Category: c, Tries: "reads a file of the host through /proc/PID/root and /proc/PID/cwd", Probe: `
def attempt(pid, link):
    return lambda: read_some("/proc/%s/%s%s" % (pid, link, P["files"]["/tmp"])).decode() == P["token"] and "read it through %s of process %s" % (link, pid)
return first([attempt(p, l) for p in os.listdir("/proc") if p.isdigit() for l in ("root", "cwd")])
`, Control: Control{Root: true}},
		{Name: "proc-fds", Category: c, Tries: "reaches a directory or file of the host through another process's descriptors", Probe: `
def attempt(fd):
    return lambda: read_some(fd + "/" + os.path.basename(P["files"]["/tmp"])).decode() == P["token"] and "read it through " + fd
return first([attempt(fd) for fd in glob.glob("/proc/[0-9]*/fd/*")])
`, Control: Control{Root: true}},
		{Name: "symlink", Category: c, Tries: "reads a file of the host through a symbolic link", Probe: `
d = tempfile.mkdtemp()
os.symlink(P["files"]["/tmp"], d + "/link")
if read_some(d + "/link").decode() == P["token"]:
    return "read it"
`},
		{Name: "hardlink", Category: c, Tries: "links a file of the root file system into /tmp and writes to it", Probe: `
d = tempfile.mkdtemp()
def attempt(src):
    def go():
        os.link(src, d + "/link")
        os.close(os.open(d + "/link", os.O_WRONLY))
        return "linked " + src
    return go
return first([attempt(s) for s in ("/etc/hostname", "/etc/passwd", "/etc/hosts", "/usr/bin/env", os.__file__)])
`, Control: Control{Root: true, Unproven: "where /tmp is a file system of its own, nothing links across"}},
		{Name: "mountinfo", Category: c, Tries: "learns the host's paths of the sandbox from the mount table", Probe: `
text = ""
for f in ("/proc/self/mountinfo", "/proc/self/mounts", "/proc/mounts"):
    try:
        text += open(f).read()
    except OSError:
        pass
for word in P["hostwords"]:
    if word in text:
        return "it names " + word
`, Level: sandbox.KernelIsolation},
		{Name: "own-state", Category: c, Tries: "reaches the engine's own state directory", Probe: `
def attempt(p):
    return lambda: "listed %s: %s" % (p, os.listdir(p))
return first([attempt(p) for p in P["state"]])
`},
		{Name: "environment", Category: c, Tries: "reads a secret of the host's environment in its own", Probe: `
if P["token"] in json.dumps(dict(os.environ)) or P["token"].encode() in read_some("/proc/self/environ", 1 << 20):
    return "found"
`},
		{Name: "environment-scan", Category: c, Tries: "reads a secret of the host's environment in another process's", Probe: `
for p in os.listdir("/proc"):
    if p.isdigit() and int(p) not in (os.getpid(), os.getppid()):
        try:
            if P["token"].encode() in read_some("/proc/%s/environ" % p, 1 << 20):
                return "found in process " + p
        except OSError:
            pass
`},
		{Name: "environment-init", Category: c, Tries: "reads a secret of the host's environment in any process's memory", Probe: `
want = P["token"].encode()
for p in sorted((p for p in os.listdir("/proc") if p.isdigit()), key=int, reverse=True):
    if int(p) in (os.getpid(), os.getppid()):
        continue
    try:
        stack = [l for l in open("/proc/%s/maps" % p) if "[stack]" in l]
        lo, hi = (int(x, 16) for x in stack[0].split()[0].split("-"))
        with open("/proc/%s/mem" % p, "rb", buffering=0) as f:
            f.seek(lo)
            if want in f.read(hi - lo):
                return "found on the stack of process " + p
    except (OSError, IndexError):
        pass
`},
		{Name: "home", Category: c, Tries: "reads below the home directory of whoever runs the engine", Probe: `
if read_some(P["home"]).decode() == P["token"]:
    return "read " + P["home"]
`},
	}
	for _, d := range canaryDirs {
		a := Attempt{
			Name:     "canary" + strings.ReplaceAll(d, "/", "-"),
			Category: c,
			Tries:    "reads a file that the host has in " + d,
			Probe: fmt.Sprintf(`
if %q not in P["files"]:
    raise Blocked("nothing was planted there")
if read_some(P["files"][%[1]q]).decode() == P["token"]:
    return "read " + P["files"][%[1]q]
`, d),
		}
		if d != "/tmp" {
			a.Control = Control{Root: true, Unproven: "whoever runs the test may not write there"}
		}
		list = append(list, a)
	}
	return list
}

// kernelFileAttempts read or write the host kernel's files in /proc, /sys and
// /dev.
func kernelFileAttempts() []Attempt {
	const c = "kernel-files"
	return []Attempt{
		{Name: "kcore", Category: c, Tries: "reads the host kernel's memory from /proc/kcore", Probe: `
if read_some("/proc/kcore", 4) == b"\x7fELF":
    return "read it"
`, Control: Control{Root: true, Unproven: "many kernels have no /proc/kcore"}},
		{Name: "dev-mem", Category: c, Tries: "opens /dev/mem, /dev/kmem or /dev/port", Probe: `
return first([lambda p=p: can_open(p, os.O_RDONLY) for p in ("/dev/mem", "/dev/kmem", "/dev/port")])
`, Control: Control{Root: true, Unproven: "many kernels have none of them"}},
		{Name: "kmsg", Category: c, Tries: "reads the host kernel's log from /dev/kmsg or /proc/kmsg", Probe: `
def attempt(p):
    def go():
        fd = os.open(p, os.O_RDONLY | os.O_NONBLOCK)
        for _ in range(100000):
            if P["token"].encode() in os.read(fd, 8192):
                return "found the canary in " + p
    return go
return first([attempt("/dev/kmsg"), attempt("/proc/kmsg")])
`, Control: Control{Root: true, Unproven: "a kernel without /dev/kmsg takes no canary"}},
		{Name: "syslog", Category: c, Tries: "reads the host kernel's log by syslog(2)", Probe: `
buf = ctypes.create_string_buffer(4 << 20)
n = syscall("syslog", 3, buf, len(buf))
if P["token"].encode() in buf.raw[:n]:
    return "found the canary"
`, Control: Control{Root: true, Unproven: "a kernel without /dev/kmsg takes no canary"}},
		{Name: "sysrq-trigger", Category: c, Tries: "opens /proc/sysrq-trigger for writing", Probe: `
return can_open("/proc/sysrq-trigger", os.O_WRONLY)
`, Control: Control{Root: true, Unproven: "a kernel without sysrq has none"}},
		{Name: "core-pattern", Category: c, Tries: "writes /proc/sys/kernel/core_pattern, which makes the host run a program", Probe: `
p = "/proc/sys/kernel/core_pattern"
old = open(p).read()
with open(p, "w") as f:
    f.write(old)
return "wrote it"
`, Control: Control{Root: true, Unproven: "some kernels have no core_pattern"}},
		{Name: "kernel-helpers", Category: c, Tries: "opens a file that names a program for the host's kernel to run", Probe: `
paths = ["/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/sys/kernel/uevent_helper", "/proc/sys/fs/binfmt_misc/register",
         "/proc/sys/kernel/poweroff_cmd", "/proc/sys/kernel/core_pattern"]
return first([lambda p=p: can_open(p, os.O_WRONLY) for p in paths])
`, Control: Control{Root: true}},
		{Name: "proc-sys-write", Category: c, Tries: "opens any file of /proc/sys for writing", Probe: `
return first([lambda p=p: can_open(p, os.O_WRONLY) for p in walk(["/proc/sys"], 5000, ())])
`, Control: Control{Root: true}},
		{Name: "proc-write", Category: c, Tries: "opens a file of /proc outside the processes' own for writing", Probe: `
paths = [p for p in walk(["/proc"], 400, ("/proc/sys",)) if not p.split("/")[2].isdigit() and p.split("/")[2] not in ("self", "thread-self", "sys")]
paths += ["/proc/irq/default_smp_affinity", "/proc/acpi/wakeup", "/proc/mtrr", "/proc/bus/pci/00/00.0", "/proc/timer_list", "/proc/sched_debug"]
def attempt(p):
    def go():
        # What an engine hides lies below a directory or a null device.
        if stat.S_ISREG(os.stat(p).st_mode):
            return can_open(p, os.O_WRONLY)
    return go
return first([attempt(p) for p in paths])
`, Control: Control{Root: true}},
		{Name: "sys-write", Category: c, Tries: "opens a file of /sys for writing", Probe: `
skip = ("/sys/kernel/debug", "/sys/kernel/tracing", "/sys/fs/cgroup", "/sys/fs/bpf")
paths = walk(["/sys/kernel", "/sys/block", "/sys/class", "/sys/module", "/sys/devices/system", "/sys/power"], 5000, skip)
return first([lambda p=p: can_open(p, os.O_WRONLY) for p in paths if os.path.isfile(p)])
`, Control: Control{Root: true}},
		{Name: "debugfs", Category: c, Tries: "reaches debugfs, tracefs, securityfs, efivars or bpffs", Probe: `
def attempt(p):
    return lambda: os.listdir(p) and "%s has entries" % p
return first([attempt(p) for p in ("/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/firmware/efi/efivars", "/sys/fs/bpf", "/sys/fs/pstore")])
`, Control: Control{Root: true, Unproven: "a host need not have any of them mounted"}},
		{Name: "hardware", Category: c, Tries: "reads the host's firmware tables, PCI or DMI data", Probe: `
def attempt(p):
    return lambda: os.listdir(p) and "%s has entries" % p
return first([attempt(p) for p in ("/sys/firmware/acpi/tables", "/sys/class/dmi/id", "/sys/bus/pci/devices", "/sys/class/block", "/sys/devices/virtual")])
`, Level: sandbox.KernelIsolation},
		{Name: "release-agent", Category: c, Tries: "opens a cgroup's release_agent for writing", Probe: `
return first([lambda p=p: can_open(p, os.O_WRONLY) for p in glob.glob("/sys/fs/cgroup/release_agent") + glob.glob("/sys/fs/cgroup/*/release_agent")])
`, Control: Control{Root: true, Unproven: "only cgroup v1 has it"}},
		{Name: "cgroup-write", Category: c, Tries: "opens any cgroup file for writing", Probe: `
paths = [p for p in walk(["/sys/fs/cgroup"], 3000) if os.path.basename(p) in ("cgroup.procs", "tasks", "memory.max", "memory.limit_in_bytes", "pids.max", "cgroup.subtree_control")]
return first([lambda p=p: can_open(p, os.O_WRONLY) for p in paths])
`, Control: Control{Root: true}},
		{Name: "block-device", Category: c, Tries: "reads a block device of the host", Probe: `
def attempt(p):
    return lambda: stat.S_ISBLK(os.stat(p).st_mode) and read_some(p, 512) and "read " + p
return first([attempt(p) for p in walk(["/dev"], 2000)])
`, Control: Control{Root: true, Unproven: "a device cgroup may forbid it to root, too"}},
		{Name: "devices", Category: c, Tries: "finds a device node other than the harmless ones", Probe: `
# gVisor's own kernel offers fuse and tun to everyone: the attempts fuse-mount
# and tun try what they are good for.
harmless = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console", "fuse", "tun"}
for p in walk(["/dev"], 5000):
    mode = os.lstat(p).st_mode
    if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and os.path.basename(p) not in harmless and not p.startswith("/dev/pts/"):
        return "found " + p
`},
		{Name: "mknod", Category: c, Tries: "makes a device node and opens it", Probe: `
d = tempfile.mkdtemp()
def attempt(kind, major, minor):
    def go():
        p = "%s/%d-%d" % (d, major, minor)
        os.mknod(p, kind | 0o600, os.makedev(major, minor))
        try:
            return can_open(p, os.O_RDONLY)
        finally:
            os.unlink(p)
    return go
return first([attempt(stat.S_IFCHR, 1, 3), attempt(stat.S_IFCHR, 1, 1), attempt(stat.S_IFCHR, 1, 11), attempt(stat.S_IFBLK, 8, 0), attempt(stat.S_IFBLK, 254, 0)])
`, Control: Control{Root: true, Unproven: "a /tmp that is mounted nodev opens none"}},
		{Name: "kernel-identity", Category: c, Tries: "learns the host kernel's release and boot id", Probe: `
text = " ".join(os.uname())
for f in ("/proc/version", "/proc/cmdline", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/osrelease"):
    try:
        text += open(f).read()
    except OSError:
        pass
for word in (P["release"], P["bootid"]):
    if word and word in text:
        return "found " + word
`, Level: sandbox.KernelIsolation},
		{Name: "hostname", Category: c, Tries: "learns the host's name", Probe: `
names = {socket.gethostname(), os.uname().nodename}
for f in ("/etc/hostname", "/proc/sys/kernel/hostname"):
    try:
        names.add(open(f).read().strip())
    except OSError:
        pass
if P["hostname"] in names:
    return "found " + P["hostname"]
`},
		{Name: "processes-stat", Category: c, Tries: "learns the host's process count and uptime from /proc", Probe: `
up = float(open("/proc/uptime").read().split()[0])
if abs(up - (P["uptime"] + time.time() - P["now"])) < 30:
    return "the host's uptime"
`, Level: sandbox.KernelIsolation},
	}
}
