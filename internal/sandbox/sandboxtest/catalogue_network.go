//go:build linux

package sandboxtest

import "github.com/sallyport/sallyport/internal/sandbox"

// networkAttempts reach for what listens on the host.
func networkAttempts() []Attempt {
	const c = "network"
	return []Attempt{
		{Name: "tcp-loopback", Category: c, Tries: "connects to a TCP listener on the host's 127.0.0.1", Probe: `
s = socket.create_connection(("127.0.0.1", P["tcp"]), 3)
if s.recv(64).decode() == P["token"]:
    return "the host's listener answered"
`},
		{Name: "tcp6-loopback", Category: c, Tries: "connects to a TCP listener on the host's ::1", Probe: `
s = socket.create_connection(("::1", P["tcp"]), 3)
if s.recv(64).decode() == P["token"]:
    return "the host's listener answered"
`, Control: Control{Unproven: "a host without IPv6 has no ::1"}},
		{Name: "tcp-host-addresses", Category: c, Tries: "connects to a TCP listener on each other address of the host", Probe: `
def attempt(addr):
    def go():
        s = socket.create_connection((addr, P["tcp"]), 2)
        if s.recv(64).decode() == P["token"]:
            return "the host answered on " + addr
    return go
return first([attempt(a) for a in P["addresses"]])
`, Control: Control{Unproven: "a host with nothing but loopback has no other address"}},
		{Name: "tcp-bind-device", Category: c, Tries: "connects to the host through each interface it can name", Probe: `
def attempt(name, addr):
    def go():
        s = socket.socket()
        s.settimeout(2)
        s.setsockopt(socket.SOL_SOCKET, 25, name.encode() + b"\0")
        s.connect((addr, P["tcp"]))
        if s.recv(64).decode() == P["token"]:
            return "the host answered on %s through %s" % (addr, name)
    return go
return first([attempt(n, a) for _, n in socket.if_nameindex() for a in ["127.0.0.1"] + P["addresses"]])
`},
		{Name: "udp-host", Category: c, Tries: "exchanges a datagram with a UDP listener of the host", Probe: `
def attempt(addr):
    def go():
        s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(1)
        s.sendto(b"ping", (addr, P["udp"]))
        if s.recv(64).decode() == P["token"]:
            return "the host answered on " + addr
    return go
return first([attempt(a) for a in ["127.0.0.1"] + P["addresses"]])
`},
		{Name: "udp-broadcast", Category: c, Tries: "reaches the host's UDP listener by broadcast and multicast", Probe: `
def attempt(addr):
    def go():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        s.settimeout(1)
        s.sendto(b"ping", (addr, P["udp"]))
        if s.recv(64).decode() == P["token"]:
            return "the host answered to " + addr
    return go
return first([attempt(a) for a in ("255.255.255.255", "127.255.255.255", "224.0.0.1", "0.0.0.0")])
`},
		{Name: "dns-query", Category: c, Tries: "sends a DNS query to a name server on the host and to the host's own resolvers", Probe: `
query = struct.pack(">HHHHHH", 0x5a11, 0x100, 1, 0, 0, 0) + b"\x07example\x03com\0\0\1\0\1"
def attempt(addr, port):
    def go():
        s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(1)
        s.sendto(query, (addr, port))
        if s.recv(512):
            return "an answer from %s:%d" % (addr, port)
    return go
return first([attempt(a, 53) for a in P["resolvers"]] + [attempt("127.0.0.1", P["udp"])])
`},
		{Name: "dns-resolve", Category: c, Tries: "resolves a name through the C library", Probe: `
return "resolved: %s" % socket.getaddrinfo("example.com", 443)[0][4][0]
`, Control: Control{Unproven: "a host without a working resolver cannot resolve either"}},
		{Name: "listen-reachable", Category: c, Tries: "offers a TCP server that the host can reach", Probe: `
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", P["dialled"]))
s.listen(8)
s.settimeout(3)
conn, _ = s.accept()
conn.settimeout(2)
if conn.recv(64).decode() == P["token"]:
    return "the host connected to the sandbox"
`},
		{Name: "interfaces-ioctl", Category: c, Tries: "lists an address of the host's interfaces by ioctl", Probe: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
buf = array.array("B", b"\0" * 4096)
out = fcntl.ioctl(s.fileno(), 0x8912, struct.pack("iL", 4096, buf.buffer_info()[0]))
n = struct.unpack("iL", out)[0]
raw = buf.tobytes()[:n]
for i in range(0, n, 40):
    a = socket.inet_ntoa(raw[i + 20:i + 24])
    if a in P["addresses"]:
        return "found " + a
`, Control: Control{Unproven: "a host with nothing but loopback has no other address"}},
		{Name: "interfaces-netlink", Category: c, Tries: "lists the host's interfaces over rtnetlink", Probe: `
names = [n for _, n in socket.if_nameindex() if n != "lo"]
found = sorted(set(names) & set(P["interfaces"]))
if found:
    return "found " + ", ".join(found)
`, Control: Control{Unproven: "a host with nothing but loopback has no other interface"}},
		{Name: "interfaces-sysfs", Category: c, Tries: "lists the host's interfaces in /sys/class/net and /proc/net/dev", Probe: `
names = set()
try:
    names |= set(os.listdir("/sys/class/net"))
except OSError:
    pass
names |= {l.split(":")[0].strip() for l in open("/proc/net/dev").read().splitlines()[2:]}
found = sorted((names - {"lo"}) & set(P["interfaces"]))
if found:
    return "found " + ", ".join(found)
`, Control: Control{Unproven: "a host with nothing but loopback has no other interface"}},
		{Name: "proc-net-tcp", Category: c, Tries: "sees the host's listening socket in /proc/net/tcp", Probe: `
want = ":%04X" % P["tcp"]
for f in ("/proc/net/tcp", "/proc/net/tcp6", "/proc/1/net/tcp"):
    try:
        for line in open(f):
            if want in line.split()[1]:
                return f + " lists it"
    except OSError:
        pass
`},
		{Name: "sock-diag", Category: c, Tries: "lists the host's sockets over NETLINK_SOCK_DIAG", Probe: `
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
s.settimeout(2)
for family in (socket.AF_INET, socket.AF_INET6):
    req = struct.pack("BBBBI", family, 6, 0, 0, 0xffffffff) + b"\0" * 48
    s.send(struct.pack("IHHII", 16 + len(req), 20, 0x301, 1, 0) + req)
    for _ in range(50):
        data = s.recv(65536)
        if struct.pack(">H", P["tcp"]) in data:
            return "found the listener"
        if struct.unpack_from("IHHII", data)[1] in (2, 3):
            break
`, Control: Control{Unproven: "a kernel without INET_DIAG has no sock_diag"}},
		{Name: "route-change", Category: c, Tries: "changes an interface over rtnetlink", Probe: `
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
s.settimeout(2)
# RTM_NEWLINK for the loopback interface with no change of flags: the kernel
# asks for CAP_NET_ADMIN before it looks further.
msg = struct.pack("BxHiII", 0, 0, 1, 0, 0)
s.send(struct.pack("IHHII", 16 + len(msg), 16, 0x5, 1, 0) + msg)
data = s.recv(65536)
kind, err = struct.unpack_from("IHHII", data)[1], struct.unpack_from("i", data, 16)[0]
if kind == 2 and err == 0:
    return "the kernel took the change"
raise OSError(-err, os.strerror(-err))
`, Control: Control{Root: true, Private: true}},
	}
}

// socketAttempts open sockets of families that lead into a kernel or a host.
func socketAttempts() []Attempt {
	const c = "sockets"
	return []Attempt{
		{Name: "unix-path", Category: c, Tries: "connects to a Unix socket of the host by its path", Probe: `
s = socket.socket(socket.AF_UNIX)
s.settimeout(2)
s.connect(P["unix"])
if s.recv(64).decode() == P["token"]:
    return "the host's socket answered"
`},
		{Name: "unix-abstract", Category: c, Tries: "connects to an abstract Unix socket of the host", Probe: `
s = socket.socket(socket.AF_UNIX)
s.settimeout(2)
s.connect("\0" + P["abstract"])
if s.recv(64).decode() == P["token"]:
    return "the host's socket answered"
`},
		{Name: "unix-scan", Category: c, Tries: "connects to any Unix socket of the host in the usual places, docker.sock first", Probe: `
paths = ["/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock",
         "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/journal/socket", "/dev/log"]
paths += [p for p in walk(["/run", "/tmp", "/var/run", "/var/tmp"], 20000)]
def attempt(p):
    def go():
        if not stat.S_ISSOCK(os.stat(p).st_mode):
            return None
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            s = socket.socket(socket.AF_UNIX, kind)
            s.settimeout(1)
            try:
                s.connect(p)
                return "connected to " + p
            except OSError:
                pass
    return go
return first([attempt(p) for p in paths])
`},
		{Name: "proc-net-unix", Category: c, Tries: "finds the host's abstract sockets in /proc/net/unix", Probe: `
if P["abstract"] in open("/proc/net/unix").read():
    return "listed"
`},
		{Name: "raw-inet", Category: c, Tries: "opens a raw IPv4 socket", Probe: `
socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
return "opened"
`, Control: Control{Root: true}},
		{Name: "raw-inet6", Category: c, Tries: "opens a raw IPv6 socket", Probe: `
socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58)
return "opened"
`, Control: Control{Root: true, Unproven: "a host without IPv6 has none"}},
		{Name: "packet", Category: c, Tries: "opens a packet socket", Probe: `
def attempt(kind):
    return lambda: socket.socket(socket.AF_PACKET, kind, socket.htons(3)) and "opened"
return first([attempt(socket.SOCK_RAW), attempt(socket.SOCK_DGRAM)])
`, Control: Control{Root: true}},
		{Name: "ping-host", Category: c, Tries: "pings the host's addresses with an ICMP datagram socket", Probe: `
def attempt(addr):
    def go():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)
        s.settimeout(1)
        body = struct.pack(">BBHHH", 8, 0, 0, 1, 1)
        total = sum(struct.unpack(">4H", body))
        total = ~(total + (total >> 16)) & 0xffff
        s.sendto(struct.pack(">BBHHH", 8, 0, total, 1, 1), (addr, 0))
        if s.recv(256):
            return "an answer from " + addr
    return go
return first([attempt(a) for a in P["addresses"] if ":" not in a])
`, Control: Control{Root: true, Unproven: "net.ipv4.ping_group_range is empty on many hosts"}},
		{Name: "vsock", Category: c, Tries: "opens a socket to the hypervisor", Probe: `
s = socket.socket(40, socket.SOCK_STREAM)
return "opened"
`, Control: Control{Unproven: "a kernel without vsock has none"}},
		{Name: "vsock-device", Category: c, Tries: "opens /dev/vsock", Probe: `
return can_open("/dev/vsock", os.O_RDONLY)
`, Control: Control{Root: true, Unproven: "a kernel without vsock has none"}},
		{Name: "bluetooth", Category: c, Tries: "opens a Bluetooth socket", Probe: `
def attempt(proto):
    return lambda: socket.socket(31, socket.SOCK_RAW, proto) and "opened protocol %d" % proto
return first([attempt(p) for p in range(8)])
`, Control: Control{Root: true, Unproven: "a kernel without Bluetooth has none"}},
		{Name: "alg", Category: c, Tries: "opens a socket to the kernel's cryptography", Probe: `
s = socket.socket(38, socket.SOCK_SEQPACKET)
return "opened"
`, Control: Control{Unproven: "a kernel without AF_ALG has none"}},
		{Name: "xdp", Category: c, Tries: "opens an XDP socket", Probe: `
s = socket.socket(44, socket.SOCK_RAW)
return "opened"
`, Control: Control{Root: true, Unproven: "a kernel without XDP has none"}},
		{Name: "exotic-families", Category: c, Tries: "opens a socket of any family but Unix, IPv4, IPv6 and netlink", Probe: `
opened = []
for family in range(3, 64):
    if family in (socket.AF_INET6, socket.AF_NETLINK):
        continue
    for kind in (1, 2, 3, 4, 5):
        try:
            socket.socket(family, kind, 0).close()
            opened.append(family)
            break
        except OSError:
            pass
if opened:
    return "opened families %s" % opened
`, Control: Control{Root: true}},
		{Name: "netlink-exotic", Category: c, Tries: "opens a netlink socket of a protocol that speaks to the host's kernel", Probe: `
# Of the protocols, 0 (route) and 15 (uevents) exist in gVisor's own kernel.
opened = []
for proto in range(32):
    if proto in (0, 15):
        continue
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, proto).close()
        opened.append(proto)
    except OSError:
        pass
if opened:
    return "opened protocols %s" % opened
`, Level: sandbox.KernelIsolation},
		{Name: "tun", Category: c, Tries: "makes a network device through /dev/net/tun", Probe: `
fd = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(fd, 0x400454ca, struct.pack("16sH22x", b"sptest%d", 0x1002))
return "made a tap device"
`, Control: Control{Root: true, Unproven: "a kernel without tun has no /dev/net/tun"}},
	}
}
