//go:build linux

package sandboxtest

import "github.com/sallyport/sallyport/internal/sandbox"

// privilegeAttempts gain a user, a group or a capability.
func privilegeAttempts() []Attempt {
	const c = "privileges"
	root := Control{Root: true}
	return []Attempt{
		{Name: "setuid", Category: c, Tries: "becomes user 0", Probe: `
def attempt(change):
    def go():
        change()
        if 0 in os.getresuid():
            return "user ids are now %s" % (os.getresuid(),)
    return go
return first([attempt(lambda: os.setuid(0)), attempt(lambda: os.setresuid(-1, 0, -1)), attempt(lambda: os.setreuid(0, 0))])
`, Control: root},
		{Name: "setgid", Category: c, Tries: "becomes group 0 or adds groups", Probe: `
def attempt(change):
    def go():
        change()
        if 0 in os.getresgid() or 0 in os.getgroups():
            return "group ids are now %s %s" % (os.getresgid(), os.getgroups())
    return go
return first([attempt(lambda: os.setgroups([0, 6])), attempt(lambda: os.setgid(0)), attempt(lambda: os.setresgid(-1, 0, -1))])
`, Control: root},
		{Name: "capset", Category: c, Tries: "gives itself a capability", Probe: `
admin = 1 << 21
syscall("capset", struct.pack("IiI", 0x20080522, 0, 0)[:8], struct.pack("6I", admin, admin, admin, 0, 0, 0))
eff = [l for l in open("/proc/self/status") if l.startswith("CapEff")][0].split()[1]
if int(eff, 16) & admin:
    return "CapEff is " + eff
`, Control: root},
		{Name: "ambient-capability", Category: c, Tries: "raises an ambient capability or one in the bounding set", Probe: `
admin = 1 << 21
syscall("capset", struct.pack("IiI", 0x20080522, 0, 0)[:8], struct.pack("6I", admin, admin, admin, 0, 0, 0))
ctypes.set_errno(0)
if _LIBC.prctl(47, 2, 21, 0, 0) != 0:
    raise OSError(ctypes.get_errno(), "prctl")
return "raised"
`, Control: root},
		{Name: "file-capability", Category: c, Tries: "gives a file of its own capabilities", Probe: `
d = tempfile.mkdtemp()
with open(d + "/f", "w") as f:
    f.write("x")
os.setxattr(d + "/f", "security.capability", struct.pack("<5I", 0x02000001, 1 << 21, 0, 0, 0))
return "set"
`, Control: root},
		{Name: "setuid-programs", Category: c, Tries: "gains root by one of the host's setuid programs", Probe: `
names = ["su", "mount", "sudo", "passwd", "newgrp", "chsh", "gpasswd", "pkexec", "fusermount", "fusermount3", "ping", "crontab"]
dirs = ("/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/lib/openssh", "/usr/lib/dbus-1.0")
def attempt(p):
    def go():
        r, w = os.pipe()
        child = subprocess.Popen([p], stdin=r, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(100):
                for line in open("/proc/%d/status" % child.pid):
                    if line.startswith("Uid:") and line.split()[2] == "0":
                        return "%s runs as root" % p
                if child.poll() is not None:
                    break
        finally:
            child.kill()
            child.wait()
            os.close(r)
            os.close(w)
    return go
if os.geteuid() == 0:
    raise Blocked("root proves nothing")
return first([attempt(d + "/" + n) for n in names for d in dirs if os.path.exists(d + "/" + n)])
`, Control: Control{Nobody: true, Unproven: "a test that itself runs with no_new_privs gains nothing either"}},
		{Name: "personality", Category: c, Tries: "turns off address randomisation by personality", Probe: `
syscall("personality", 0x0040000)
if syscall("personality", 0xffffffff) & 0x0040000:
    return "changed"
`, Level: sandbox.KernelIsolation},
		{Name: "nice", Category: c, Tries: "raises its scheduling priority", Probe: `
os.setpriority(os.PRIO_PROCESS, 0, -10)
if os.getpriority(os.PRIO_PROCESS, 0) < 0:
    return "nice is now %d" % os.getpriority(os.PRIO_PROCESS, 0)
`, Control: root, OwnKernel: "gVisor keeps the number and shows it, and schedules nothing by it"},
		{Name: "realtime", Category: c, Tries: "takes a real-time scheduling class", Probe: `
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
if os.sched_getscheduler(0) == os.SCHED_FIFO:
    return "FIFO"
`, Control: Control{Root: true, Unproven: "a cgroup without real-time bandwidth refuses root, too"}},
		{Name: "ioprio", Category: c, Tries: "takes the real-time class for input and output", Probe: `
syscall("ioprio_set", 1, 0, (1 << 13) | 1)
return "taken"
`, Control: root},
		{Name: "rlimit", Category: c, Tries: "raises a hard resource limit", Probe: `
import resource
def attempt(which):
    def go():
        soft, hard = resource.getrlimit(which)
        if hard == resource.RLIM_INFINITY:
            raise Blocked("it is unlimited")
        try:
            resource.setrlimit(which, (soft, hard + 1))
        except ValueError as e:
            raise Blocked(str(e))
        return "raised limit %d to %d" % (which, hard + 1)
    return go
return first([attempt(w) for w in (resource.RLIMIT_NPROC, resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_NICE)])
`, Control: Control{Root: true, Unproven: "a root without CAP_SYS_RESOURCE cannot raise one either"}},
		{Name: "tty-inject", Category: c, Tries: "pushes input into a terminal of the host", Probe: `
def attempt(fd):
    def go():
        fcntl.ioctl(fd, 0x5412, b"\n")
        return "pushed into descriptor %d" % fd
    return go
fds = [0, 1, 2]
try:
    fds.append(os.open("/dev/tty", os.O_RDWR))
except OSError:
    pass
return first([attempt(f) for f in fds])
`, Control: Control{Root: true, Probe: `
master, slave = os.openpty()
os.setsid()
fcntl.ioctl(slave, 0x540e, 0)
fcntl.ioctl(slave, 0x5412, b"\n")
return "pushed"
`, Why: "the test has no terminal: the control pushes into one of its own", Unproven: "dev.tty.legacy_tiocsti=0 forbids it"}},
	}
}

// kernelAttempts reach the host's kernel by privileged or rarely audited
// system calls. Where the real thing would harm the host, the call is made in
// a form that the kernel refuses only after it has checked the privilege.
func kernelAttempts() []Attempt {
	const c = "kernel"
	root := Control{Root: true}
	return []Attempt{
		{Name: "init-module", Category: c, Tries: "loads a kernel module", Probe: `
return permitted("init_module", b"not a module", 12, "", passed=("ENOEXEC", "EINVAL"))
`, Control: Control{Root: true, Unproven: "a kernel without modules has no such call"}},
		{Name: "finit-module", Category: c, Tries: "loads a kernel module from a file", Probe: `
fd = os.open(os.__file__, os.O_RDONLY)
return permitted("finit_module", fd, "", 0, passed=("ENOEXEC", "EINVAL"))
`, Control: Control{Root: true, Unproven: "a kernel without modules has no such call"}},
		{Name: "delete-module", Category: c, Tries: "unloads a kernel module", Probe: `
return permitted("delete_module", "sallyport_no_such_module", 0x800, passed=("ENOENT",))
`, Control: Control{Root: true, Unproven: "a kernel without modules has no such call"}},
		{Name: "kexec-load", Category: c, Tries: "loads another kernel", Probe: `
return permitted("kexec_load", 0, 0, None, 0xffffff, passed=("EINVAL",))
`, Control: Control{Root: true, Unproven: "a kernel without kexec has no such call"}},
		{Name: "kexec-file-load", Category: c, Tries: "loads another kernel from a file", Probe: `
return permitted("kexec_file_load", -1, -1, 0, None, 0xffffff, passed=("EINVAL", "EBADF"))
`, Control: Control{Root: true, Unproven: "a kernel without kexec has no such call"}},
		{Name: "reboot", Category: c, Tries: "reboots the machine", Probe: `
# Wrong magic numbers: the kernel asks for CAP_SYS_BOOT first.
return permitted("reboot", 0, 0, 0, None, passed=("EINVAL",))
`, Control: root},
		{Name: "reboot-now", Category: c, Tries: "reboots the machine with the right magic numbers", Probe: `
syscall("reboot", 0xfee1dead, 672274793, 0x1234567, None)
return "rebooting"
`, Wrecks: true, Control: Control{Root: true, Probe: `
return permitted("reboot", 0, 0, 0, None, passed=("EINVAL",))
`, Why: "it would reboot the host: the control shows that root passes the kernel's check, and that the test is still here after the attempt is the evidence"}},
		{Name: "sethostname", Category: c, Tries: "changes the host's name", Probe: `
syscall("sethostname", "sallyport-probe", 15)
return "changed"
`, Control: Control{Root: true, Private: true}},
		{Name: "setdomainname", Category: c, Tries: "changes the host's NIS domain", Probe: `
syscall("setdomainname", "sallyport-probe", 15)
return "changed"
`, Control: Control{Root: true, Private: true}},
		{Name: "settimeofday", Category: c, Tries: "sets the host's clock", Probe: `
# With neither time nor zone: the kernel checks the privilege and does nothing.
syscall("settimeofday", None, None)
return "passed the permission check"
`, Control: root},
		{Name: "clock-settime", Category: c, Tries: "sets the host's clock by clock_settime", Probe: `
before = time.time()
time.clock_settime(time.CLOCK_REALTIME, 86400.0 * 365 * 30)
if time.time() < before - 1000:
    return "the clock is set back"
`, Control: Control{Root: true, Probe: `
syscall("settimeofday", None, None)
return "passed the permission check"
`, Why: "it would set the host's clock back by decades: the control shows that root passes the same check"}},
		{Name: "adjtimex", Category: c, Tries: "shifts the host's clock", Probe: `
# ADJ_SETOFFSET by nothing.
buf = ctypes.create_string_buffer(struct.pack("I", 0x0100), 256)
syscall("clock_adjtime", 0, buf)
return "shifted"
`, Control: root},
		{Name: "swapon", Category: c, Tries: "adds swap space", Probe: `
return permitted("swapon", "/nonexistent", 0, passed=("ENOENT", "EINVAL"))
`, Control: Control{Root: true, Unproven: "a kernel without swap has no such call"}},
		{Name: "swapoff", Category: c, Tries: "removes swap space", Probe: `
return permitted("swapoff", "/nonexistent", passed=("ENOENT", "EINVAL"))
`, Control: Control{Root: true, Unproven: "a kernel without swap has no such call"}},
		{Name: "quotactl", Category: c, Tries: "sets a disk quota", Probe: `
fd = os.open("/", os.O_RDONLY)
return permitted("quotactl_fd", fd, 0x80000800, 65534, b"\0" * 128, passed=("ESRCH", "EINVAL"))
`, Control: Control{Root: true, Unproven: "many file systems know no quotas"}},
		{Name: "acct", Category: c, Tries: "makes the kernel write accounting records", Probe: `
return permitted("acct", "/nonexistent/file", passed=("ENOENT",))
`, Control: Control{Root: true, Unproven: "a kernel without accounting has no such call"}},
		{Name: "bpf-map", Category: c, Tries: "makes a BPF map", Probe: `
attr = struct.pack("IIII", 2, 4, 4, 1) + b"\0" * 56
return "made map %d" % syscall("bpf", 0, attr, len(attr))
`, Control: root},
		{Name: "bpf-program", Category: c, Tries: "loads a BPF program", Probe: `
insns = ctypes.create_string_buffer(struct.pack("<BBhi", 0xb7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0), 16)
licence = ctypes.create_string_buffer(b"GPL")
attr = struct.pack("IIQQ", 1, 2, ctypes.addressof(insns), ctypes.addressof(licence)) + b"\0" * 96
return "loaded program %d" % syscall("bpf", 5, attr, len(attr))
`, Control: root},
		{Name: "perf-event", Category: c, Tries: "opens a performance counter", Probe: `
attr = bytearray(struct.pack("IIQ", 1, 112, 0) + b"\0" * 96)
attr[40] |= 0b1100001
return "opened %d" % syscall("perf_event_open", bytes(attr), 0, -1, -1, 0)
`, Control: Control{Root: true, Unproven: "a kernel without performance events has no such call"}},
		{Name: "io-uring", Category: c, Tries: "makes an io_uring", Probe: `
params = ctypes.create_string_buffer(120)
return "made %d" % syscall("io_uring_setup", 8, params)
`, Control: Control{Unproven: "kernel.io_uring_disabled forbids it on some hosts"}},
		{Name: "userfaultfd", Category: c, Tries: "makes a userfaultfd", Probe: `
def attempt(flags):
    return lambda: "made %d" % syscall("userfaultfd", flags)
return first([attempt(0), attempt(1)])
`, Control: Control{Root: true, Unproven: "some kernels have none"}},
		{Name: "add-key", Category: c, Tries: "puts a key on a kernel keyring", Probe: `
return "added key %d" % syscall("add_key", "user", "sallyport-probe", b"x", 1, -2)
`, Control: Control{Unproven: "some kernels have no keyrings"}},
		{Name: "read-key", Category: c, Tries: "reads a key that the host put on its user's keyring", Probe: `
def attempt(ring):
    def go():
        key = syscall("keyctl", 10, ring, "user", "sallyport-" + P["token"], 0)
        return "found key %d" % key
    return go
return first([attempt(r) for r in (-4, -5, -3, -1)])
`, Control: Control{Probe: `
syscall("add_key", "user", "sallyport-" + P["token"], P["token"].encode(), len(P["token"]), -2)
return "found key %d" % syscall("keyctl", 10, -2, "user", "sallyport-" + P["token"], 0)
`, Why: "keyrings follow the session: the control finds a key on one of its own", Unproven: "some kernels have no keyrings"}},
		{Name: "fanotify", Category: c, Tries: "watches a file system by fanotify", Probe: `
return "made %d" % syscall("fanotify_init", 0, 0)
`, Control: Control{Root: true, Unproven: "some kernels have none"}},
		{Name: "io-ports", Category: c, Tries: "gains access to the machine's I/O ports", Probe: `
return first([lambda: syscall("iopl", 3) == 0 and "iopl", lambda: syscall("ioperm", 0x80, 1, 1) == 0 and "ioperm"])
`, Control: Control{Root: true, Unproven: "only x86 has them, and some kernels leave them out"}},
		{Name: "migrate-pages", Category: c, Tries: "moves the pages of a host process", Probe: `
return "moved %d" % syscall("move_pages", P["canary"]["pid"], 0, None, None, None, 0)
`, Canary: true, Control: Control{Root: true, Unproven: "a kernel without NUMA has no such call"}},
		{Name: "kvm", Category: c, Tries: "opens /dev/kvm or another powerful device", Probe: `
paths = ("/dev/kvm", "/dev/vhost-net", "/dev/vhost-vsock", "/dev/loop-control", "/dev/mapper/control", "/dev/cpu/0/msr", "/dev/uinput", "/dev/userfaultfd", "/dev/ppp")
return first([lambda p=p: can_open(p, os.O_RDWR) for p in paths])
`, Control: root},
	}
}
