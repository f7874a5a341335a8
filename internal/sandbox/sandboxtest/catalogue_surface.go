//go:build linux

package sandboxtest

import "github.com/sallyport/sallyport/internal/sandbox"

// surfaceAttempts reach parts of the host's kernel in which vulnerabilities
// have been found. They gain nothing, but a vulnerability there would be
// exposed.
func surfaceAttempts() []Attempt {
	const c = "kernel-surface"
	root := Control{Root: true}
	forbidden := Control{Unproven: "some hosts forbid user namespaces to ordinary users, or have no such part"}
	return []Attempt{
		{Name: "userns-fsopen", Category: c, Tries: "as root of a user namespace, gives a file system parameters by fsconfig", Probe: `
# The way to CVE-2022-0185.
enter_userns(CLONE_NEWNS)
def attempt(kind):
    def go():
        fd = syscall("fsopen", kind, 0)
        syscall("fsconfig", fd, 1, "source", "none", 0)
        return "gave %s a source" % kind
    return go
return first([attempt(k) for k in ("cgroup2", "tmpfs", "ramfs", "proc")])
`, Control: forbidden},
		{Name: "userns-overlay", Category: c, Tries: "as root of a user namespace, mounts an overlay", Probe: `
# The way to CVE-2023-0386 and CVE-2021-3493.
d = tempfile.mkdtemp()
enter_userns(CLONE_NEWNS)
syscall("mount", "none", d, "tmpfs", 0, None)
for name in ("low", "up", "work", "on"):
    os.mkdir(d + "/" + name)
syscall("mount", "none", d + "/on", "overlay", 0, "lowerdir=%s/low,upperdir=%s/up,workdir=%s/work" % (d, d, d))
return "mounted"
`, Control: forbidden},
		{Name: "userns-cgroup", Category: c, Tries: "as root of user and cgroup namespaces, mounts a cgroup hierarchy and opens what it holds for writing", Probe: `
# The way to CVE-2022-0492.
d = tempfile.mkdtemp()
enter_userns(CLONE_NEWNS | CLONE_NEWCGROUP)
def attempt(kind, options):
    def go():
        syscall("mount", "none", d, kind, 0, options)
        return first([lambda n=n: can_open(d + "/" + n, os.O_WRONLY) for n in ("release_agent", "notify_on_release", "cgroup.procs", "tasks")])
    return go
return first([attempt("cgroup", o) for o in ("rdma", "memory", "misc", "pids", "none,name=systemd")] + [attempt("cgroup2", None)])
`, Control: Control{Root: true, Private: true, Unproven: "not every host lets a user namespace mount one"}},
		{Name: "userns-nftables", Category: c, Tries: "as root of user and network namespaces, speaks to nf_tables", Probe: `
# The way to CVE-2022-32250, CVE-2023-32233, CVE-2024-1086 and more.
enter_userns(CLONE_NEWNET)
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
s.settimeout(2)
# NFT_MSG_GETTABLE, a dump.
s.send(struct.pack("=IHHIIBBH", 20, (10 << 8) | 1, 0x301, 1, 0, 0, 0, 0))
answer = s.recv(4096)
if struct.unpack_from("=IH", answer)[1] == 2 and struct.unpack_from("=i", answer, 16)[0] != 0:
    raise Blocked("an error: %d" % struct.unpack_from("=i", answer, 16)[0])
return "it answered"
`, Control: forbidden},
		{Name: "userns-iptables", Category: c, Tries: "as root of user and network namespaces, reaches the packet filter's tables", Probe: `
# The way to CVE-2021-22555.
enter_userns(CLONE_NEWNET)
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)
info = s.getsockopt(0, 64, 84)
return "%d bytes of the filter's table" % len(info)
`, Control: forbidden},
		{Name: "iptables", Category: c, Tries: "reads the host's packet filter", Probe: `
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)
s.getsockopt(0, 64, 84)
return "read it"
`, Control: Control{Root: true, Unproven: "a host without iptables has no such tables"}},
		{Name: "userns-traffic-control", Category: c, Tries: "as root of user and network namespaces, adds a queueing discipline", Probe: `
# The way to CVE-2023-31436 and CVE-2023-3611.
enter_userns(CLONE_NEWNET)
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
s.settimeout(2)
kind = struct.pack("=HH8s", 4 + 5, 1, b"pfifo\0")
body = struct.pack("=BBHiIII", 0, 0, 0, 1, 0x10000, 0xffffffff, 0) + kind
s.send(struct.pack("=IHHII", 16 + len(body), 36, 0x405, 1, 0) + body)
code = struct.unpack_from("=i", s.recv(4096), 16)[0]
if code:
    raise OSError(-code, os.strerror(-code))
return "added"
`, Control: forbidden},
		{Name: "userns-keyring", Category: c, Tries: "as root of a user namespace, makes a kernel keyring", Probe: `
enter_userns()
return "made key %d" % syscall("add_key", "keyring", "sallyport-probe", None, 0, -2)
`, Control: forbidden},
		{Name: "modify-ldt", Category: c, Tries: "changes the processor's descriptor table", Probe: `
# An entry that is readable and nothing else.
syscall("modify_ldt", 1, struct.pack("IIII", 0, 0, 0xffff, 0b1110001), 16)
return "changed"
`, Level: sandbox.KernelIsolation, Control: Control{Unproven: "only x86 has one, and some kernels leave it out"}},
		{Name: "exotic-protocols", Category: c, Tries: "opens an Internet socket of a protocol other than TCP, UDP and ICMP", Probe: `
# DCCP, SCTP, UDP-Lite, MPTCP, SMC; a kernel may load a module for one.
kinds = ((socket.SOCK_DGRAM, 136), (6, 33), (socket.SOCK_SEQPACKET, 132), (socket.SOCK_STREAM, 132), (socket.SOCK_STREAM, 262), (socket.SOCK_STREAM, 256))
return first([lambda k=k, p=p, f=f: "opened protocol %d" % socket.socket(f, k, p).proto for f in (socket.AF_INET, socket.AF_INET6) for k, p in kinds])
`, Level: sandbox.KernelIsolation, Control: Control{Unproven: "a kernel may have none of them"}},
		{Name: "protocol-layer", Category: c, Tries: "puts a protocol of the kernel's upon a TCP connection", Probe: `
a = socket.socket()
a.bind(("127.0.0.1", 0))
a.listen(1)
b = socket.create_connection(a.getsockname(), 2)
def attempt(name):
    def go():
        b.setsockopt(socket.IPPROTO_TCP, 31, name)
        # A kernel of one's own may take the call and do nothing.
        if b.getsockopt(socket.IPPROTO_TCP, 31, 16).rstrip(b"\0") == name:
            return "put %s on it" % name.decode()
    return go
return first([attempt(n) for n in (b"tls", b"espintcp", b"mptcp")])
`, Level: sandbox.KernelIsolation, Control: Control{Unproven: "a kernel may have none of them"}},
		{Name: "socket-filter", Category: c, Tries: "has the host's kernel run a filter program upon a socket", Probe: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 0))
s.settimeout(1)
s.sendto(b"x", s.getsockname())
s.recv(1)  # without the filter it arrives
program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0), 8)  # lets nothing through
s.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxQ", 1, ctypes.addressof(program)))
try:
    s.sendto(b"x", s.getsockname())
    s.recv(1)
except socket.timeout:
    return "the filter holds"
`, Level: sandbox.KernelIsolation},
		{Name: "socket-mark", Category: c, Tries: "marks its packets for the host's routing and filters", Probe: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 36, 7)
if s.getsockopt(socket.SOL_SOCKET, 36) == 7:
    return "marked"
`, Control: root},
		{Name: "process-madvise", Category: c, Tries: "advises the host's kernel about another process's memory", Canary: true, Probe: `
fd = syscall("pidfd_open", P["canary"]["pid"], 0)
page = P["canary"]["address"] & ~4095
return "advised about %d bytes" % syscall("process_madvise", fd, struct.pack("QQ", page, 4096), 1, 20, 0)
`, Control: Control{Root: true, Unproven: "some kernels have no process_madvise"}},
		{Name: "robust-list", Category: c, Tries: "reads a pointer of a host process by get_robust_list", Canary: true, Probe: `
head, size = ctypes.c_void_p(), ctypes.c_size_t()
syscall("get_robust_list", P["canary"]["pid"], ctypes.byref(head), ctypes.byref(size))
return "its list is %d bytes long" % size.value
`},
		{Name: "session-of-host", Category: c, Tries: "asks for the session and the scheduler of a host process", Canary: true, Probe: `
pid = P["canary"]["pid"]
return first([lambda: "session %d" % os.getsid(pid), lambda: "group %d" % os.getpgid(pid), lambda: "scheduler %d" % os.sched_getscheduler(pid)])
`},
		{Name: "kernel-keys", Category: c, Tries: "lists the kernel's keys in /proc/keys", Probe: `
if read_some("/proc/keys").strip():
    return "it has entries"
`, Control: Control{Unproven: "some kernels have no keyrings"}},
		{Name: "kernel-symbols", Category: c, Tries: "reads where the host's kernel lies in memory", Probe: `
def attempt(p):
    def go():
        for line in open(p, errors="replace"):
            if line.split()[0].strip("0"):
                return "%s: %s" % (p, line.strip())
    return go
return first([attempt("/proc/kallsyms"), attempt("/proc/modules")])
`, Control: Control{Root: true, Unproven: "a kernel may have been built without them"}},
		{Name: "masked-files", Category: c, Tries: "reads one of the files that container engines hide", Probe: `
def attempt(p):
    return lambda: (os.listdir(p) if os.path.isdir(p) else read_some(p)) and "%s is not empty" % p
return first([attempt(p) for p in ("/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats", "/proc/timer_stats", "/proc/acpi", "/proc/asound", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap", "/sys/fs/selinux")])
`, Control: Control{Root: true, Unproven: "a kernel may have none of them"}},
		{Name: "console", Category: c, Tries: "opens the host's console or a virtual terminal", Probe: `
return first([lambda p=p: can_open(p, os.O_RDWR) for p in ["/dev/console", "/dev/tty0", "/dev/tty1", "/dev/vcs", "/dev/vcsa", "/dev/ttyS0", "/dev/hvc0"]])
`, Control: Control{Root: true, Unproven: "a machine may have none that opens"}},
		{Name: "mount-list", Category: c, Tries: "lists mounts of the host by listmount and statmount", Probe: `
buf = ctypes.create_string_buffer(8 * 512)
n = syscall("listmount", struct.pack("IIQQQ", 32, 0, 0xffffffffffffffff, 0, 0), buf, 512, 0)
for mount in struct.unpack_from("%dQ" % n, buf):
    text = ctypes.create_string_buffer(65536)
    try:
        # What it is mounted on, from what, of which kind.
        syscall("statmount", struct.pack("IIQQQ", 32, 0, mount, 0x10 | 0x8 | 0x20 | 0x200, 0), text, 65536, 0)
    except OSError:
        continue
    for word in P["hostwords"]:
        if word.encode() in text.raw:
            return "a mount names " + word
`, Control: Control{Root: true, Private: true, Probe: `
d = tempfile.mkdtemp(suffix=P["token"])
syscall("mount", "none", d, "tmpfs", 0, None)
buf = ctypes.create_string_buffer(8 * 512)
n = syscall("listmount", struct.pack("IIQQQ", 32, 0, 0xffffffffffffffff, 0, 0), buf, 512, 0)
for mount in struct.unpack_from("%dQ" % n, buf):
    text = ctypes.create_string_buffer(65536)
    syscall("statmount", struct.pack("IIQQQ", 32, 0, mount, 0x10 | 0x8 | 0x20, 0), text, 65536, 0)
    if P["token"].encode() in text.raw:
        return "found the mount"
`, Why: "the host need have no mount with such a name: the control makes one", Unproven: "a kernel before 6.8 has no such calls"}},
	}
}

// egressAttempts look for a way out to anything but the host and other
// sandboxes.
func egressAttempts() []Attempt {
	const c = "network"
	return []Attempt{
		{Name: "route-out", Category: c, Tries: "finds a route to the Internet, a private network or a cloud's metadata", Probe: `
# Connecting a datagram socket sends nothing: the kernel looks for a route.
def attempt(family, address):
    def go():
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.connect((address, 80))
        return "a route to %s from %s" % (address, s.getsockname()[0])
    return go
return first([attempt(socket.AF_INET, a) for a in ("192.0.2.1", "8.8.8.8", "10.0.0.1", "172.17.0.1", "192.168.0.1", "169.254.169.254", "100.100.100.200")]
             + [attempt(socket.AF_INET6, a) for a in ("2001:db8::1", "fd00:ec2::254", "fe80::1")])
`, Control: Control{Unproven: "a host may have no route out"}},
		{Name: "metadata-service", Category: c, Tries: "reads a cloud's credentials from its metadata service", Probe: `
def attempt(address, path):
    def go():
        s = socket.create_connection((address, 80), 1)
        s.sendall(("GET %s HTTP/1.0\r\nHost: %s\r\nMetadata-Flavor: Google\r\n\r\n" % (path, address)).encode())
        return s.recv(64) and "an answer from " + address
    return go
return first([attempt(a, "/") for a in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254")])
`, Control: Control{Unproven: "only a machine in a cloud has one"}},
		{Name: "multicast6", Category: c, Tries: "speaks to every neighbour on the link by IPv6", Probe: `
def attempt(index, name):
    def go():
        s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        s.sendto(b"x", ("ff02::1", 9, 0, index))
        return "sent on " + name
    return go
return first([attempt(i, n) for i, n in socket.if_nameindex() if n != "lo"])
`, Control: Control{Unproven: "a host may have no IPv6"}},
		{Name: "internet-gateway-names", Category: c, Tries: "connects to the names by which container engines offer the host", Probe: `
def attempt(name):
    return lambda: socket.create_connection((name, P["tcp"]), 1) and "connected to " + name
return first([attempt(n) for n in ("host.docker.internal", "host.containers.internal", "gateway.docker.internal", "host.lima.internal", P["hostname"], "localhost")])
`},
	}
}

// sharingAttempts use what two sandboxes of one user might share in the host's
// kernel, though no file and no network connects them.
func sharingAttempts() []Attempt {
	const c = "neighbours"
	return []Attempt{
		{Name: "neighbour-keyring", Category: c, Tries: "finds a key that another sandbox put on its user's keyring", Probe: `
def attempt(ring):
    return lambda: "found key %d" % syscall("keyctl", 10, ring, "user", P["neighbour"], 0)
return first([attempt(r) for r in (-4, -5, -3)])
`, Control: Control{Unproven: "some kernels have no keyrings"}},
		{Name: "neighbour-terminal", Category: c, Tries: "opens a terminal of another sandbox", Probe: `
# The neighbour's own has a size that nobody else chose.
for p in sorted(glob.glob("/dev/pts/[0-9]*")):
    try:
        fd = os.open(p, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        rows, columns = struct.unpack("HHHH", fcntl.ioctl(fd, 0x5413, b"\0" * 8))[:2]
        os.close(fd)
    except OSError:
        continue
    if rows << 16 | columns == P["neighbourkey"]:
        return "opened " + p
`},
		{Name: "neighbour-lock", Category: c, Tries: "notices that another sandbox has locked a file of the root file system", Probe: `
for name in ("string", "struct", "textwrap"):
    path = os.path.join(os.path.dirname(os.__file__), name + ".py")
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
    except BlockingIOError:
        return "%s is locked" % path
    finally:
        os.close(fd)
`, Level: sandbox.ContainerIsolation},
		{Name: "neighbour-semaphore", Category: c, Tries: "finds a System V semaphore or message queue of another sandbox", Probe: `
return first([lambda: "semaphore %d" % syscall("semget", P["neighbourkey"], 0, 0), lambda: "queue %d" % syscall("msgget", P["neighbourkey"], 0)])
`},
	}
}

// passingAttempts reach the host through what a channel can carry besides
// bytes.
func passingAttempts() []Attempt {
	return []Attempt{
		{Name: "channel-socket", Category: "channel", Tries: "finds a Unix socket, its own or another process's, over which descriptors could be passed to the host", Probe: `
for p in os.listdir("/proc"):
    if not p.isdigit():
        continue
    for fd in glob.glob("/proc/%s/fd/*" % p):
        try:
            if not stat.S_ISSOCK(os.stat(fd).st_mode):
                continue
            mine = syscall("pidfd_getfd", syscall("pidfd_open", int(p), 0), int(os.path.basename(fd)), 0) if int(p) != os.getpid() else os.dup(int(os.path.basename(fd)))
            s = socket.socket(fileno=mine)
        except OSError:
            continue
        if s.family == socket.AF_UNIX:
            peer = struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            # Of a peer in another process namespace the number is 0.
            if peer == 0 or not os.path.exists("/proc/%d" % peer):
                return "descriptor %s of process %s, whose peer is outside" % (os.path.basename(fd), p)
`, Control: Control{Root: true, Probe: `
a, b = socket.socketpair()
r, w = os.pipe()
socket.send_fds(a, [b"x"], [w])
_, fds, _, _ = socket.recv_fds(b, 1, 1)
os.write(fds[0], b"y")
if os.read(r, 1) == b"y":
    return "passed a descriptor"
`, Why: "natively there is no channel: the control shows that a socket carries descriptors", Unproven: "Python passes descriptors from 3.9 on"}},
	}
}
