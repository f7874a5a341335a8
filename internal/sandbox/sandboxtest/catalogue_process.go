//go:build linux

package sandboxtest

import "github.com/sallyport/sallyport/internal/sandbox"

// processAttempts act on the host's processes.
func processAttempts() []Attempt {
	const c = "processes"
	return []Attempt{
		{Name: "see-processes", Category: c, Tries: "sees a process of the host in /proc", Canary: true, Probe: `
for p in os.listdir("/proc"):
    if p.isdigit() and int(p) != os.getpid():
        try:
            if P["canary"]["mark"].encode() in read_some("/proc/%s/cmdline" % p):
                return "process " + p
        except OSError:
            pass
`},
		{Name: "hidden-processes", Category: c, Tries: "sees a process of the host by its number, listed in /proc or not", Canary: true, Probe: `
if P["canary"]["mark"].encode() in read_some("/proc/%d/cmdline" % P["canary"]["pid"]):
    return "read its command line"
`},
		{Name: "signal-canary", Category: c, Tries: "kills a process of the host by its number", Canary: true, Probe: `
os.kill(P["canary"]["pid"], signal.SIGKILL)
return "killed"
`},
		{Name: "signal-group", Category: c, Tries: "signals the process group of a process of the host", Canary: true, Probe: `
os.killpg(P["canary"]["pid"], signal.SIGKILL)
return "killed"
`},
		{Name: "signal-all", Category: c, Tries: "signals every process that it may, by kill(-1)", Canary: true, Probe: `
# SIGWINCH: whoever does not wait for it ignores it.
os.kill(-1, signal.SIGWINCH)
time.sleep(0.3)
`},
		{Name: "signal-scan", Category: c, Tries: "signals every number from 2 to 70000 as a thread of a host process", Canary: true, Probe: `
for pid in range(2, 70000):
    if pid in (os.getpid(), os.getppid()):
        continue
    try:
        syscall("tgkill", pid, pid, int(signal.SIGWINCH))
    except OSError:
        pass
`, Control: Control{Unproven: "on a host that has counted past 70000 the canary's number may lie beyond"}},
		{Name: "kill-all", Category: c, Tries: "kills every process that it may, by kill(-1)", Canary: true, Wrecks: true, Probe: `
os.kill(-1, signal.SIGKILL)
`, Control: Control{Root: true, Probe: `
os.kill(-1, signal.SIGWINCH)
time.sleep(0.3)
`, Why: "it would kill the host: the control shows that kill(-1) with a harmless signal reaches the canary"}},
		{Name: "sigqueue", Category: c, Tries: "queues a signal to a process of the host", Canary: true, Probe: `
info = ctypes.create_string_buffer(struct.pack("iii", int(signal.SIGWINCH), 0, -1), 128)
syscall("rt_sigqueueinfo", P["canary"]["pid"], int(signal.SIGWINCH), info)
time.sleep(0.3)
`},
		{Name: "pidfd", Category: c, Tries: "signals a process of the host by a pidfd", Canary: true, Probe: `
fd = syscall("pidfd_open", P["canary"]["pid"], 0)
syscall("pidfd_send_signal", fd, int(signal.SIGKILL), None, 0)
return "killed"
`},
		{Name: "pidfd-getfd", Category: c, Tries: "takes a descriptor out of a process of the host", Canary: true, Probe: `
fd = syscall("pidfd_open", P["canary"]["pid"], 0)
return "took %d" % syscall("pidfd_getfd", fd, 0, 0)
`},
		{Name: "ptrace-canary", Category: c, Tries: "traces a process of the host", Canary: true, Probe: `
syscall("ptrace", 0x4206, P["canary"]["pid"], 0, 0)
return "traced"
`, Control: Control{Root: true}},
		// Process 1 belongs to the guest. On a shared kernel it is a process of
		// the same user like any other: it holds the output channel and nothing
		// else.
		{Name: "ptrace-init", Category: c, Tries: "traces the sandbox's own process 1", Probe: `
syscall("ptrace", 0x4206, P["init"], 0, 0)
return "traced"
`, Level: sandbox.KernelIsolation, Control: Control{Root: true}, Wrecks: true},
		{Name: "vm-readv", Category: c, Tries: "reads the memory of a process of the host by process_vm_readv", Canary: true, Probe: `
buf = ctypes.create_string_buffer(64)
local = struct.pack("QQ", ctypes.addressof(buf), 64)
remote = struct.pack("QQ", P["canary"]["address"], 64)
syscall("process_vm_readv", P["canary"]["pid"], local, 1, remote, 1, 0)
if P["canary"]["mark"].encode() in buf.raw:
    return "read the canary's secret"
`},
		{Name: "vm-writev", Category: c, Tries: "writes the memory of a process of the host", Canary: true, Probe: `
buf = ctypes.create_string_buffer(64)
local = struct.pack("QQ", ctypes.addressof(buf), 1)
remote = struct.pack("QQ", P["canary"]["address"] + 60, 1)
syscall("process_vm_writev", P["canary"]["pid"], local, 1, remote, 1, 0)
return "wrote"
`},
		{Name: "proc-mem", Category: c, Tries: "reads the memory of a process of the host by /proc/PID/mem", Canary: true, Probe: `
with open("/proc/%d/mem" % P["canary"]["pid"], "rb", buffering=0) as f:
    f.seek(P["canary"]["address"])
    if P["canary"]["mark"].encode() in f.read(64):
        return "read the canary's secret"
`},
		{Name: "proc-mem-init", Category: c, Tries: "opens the memory of the sandbox's own process 1 for writing", Probe: `
return can_open("/proc/%d/mem" % P["init"], os.O_RDWR)
`, Level: sandbox.KernelIsolation, Control: Control{Root: true}},
		{Name: "kcmp", Category: c, Tries: "compares its kernel objects with those of a host process", Canary: true, Probe: `
return "compared: %d" % syscall("kcmp", os.getpid(), P["canary"]["pid"], 1, 0, 0)
`, Control: Control{Root: true, Unproven: "some kernels have no kcmp"}},
		{Name: "priority-of-host", Category: c, Tries: "changes the priority of a process of the host", Canary: true, Probe: `
os.setpriority(os.PRIO_PROCESS, P["canary"]["pid"], 19)
return "changed"
`},
		{Name: "limits-of-host", Category: c, Tries: "reads or changes the limits of a process of the host", Canary: true, Probe: `
import resource
return "limits: %s" % (resource.prlimit(P["canary"]["pid"], resource.RLIMIT_NOFILE),)
`},
		{Name: "affinity-of-host", Category: c, Tries: "pins a process of the host to a processor", Canary: true, Probe: `
os.sched_setaffinity(P["canary"]["pid"], {0})
return "pinned"
`},
		{Name: "pid-numbers", Category: c, Tries: "learns the host's process numbers from those that it gets itself", Probe: `
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
low, high = P["pids"]
if low <= pid <= high + 5000:
    return "its number %d lies among the host's newest" % pid
`, Control: Control{Unproven: "the host's numbers may wrap around"}},
	}
}

// neighbourAttempts try to reach another sandbox that runs at the same time,
// with a secret in each place that two sandboxes might share. Natively a
// stand-in on the host holds the same secrets.
func neighbourAttempts() []Attempt {
	const c = "neighbours"
	return []Attempt{
		{Name: "neighbour-files", Category: c, Tries: "finds a file of another sandbox", Probe: `
for p in walk(["/workspace", "/tmp", "/dev/shm", "/var/tmp", "/run"], 50000):
    if P["neighbour"] in p:
        return "found " + p
`},
		{Name: "neighbour-processes", Category: c, Tries: "sees a process of another sandbox", Probe: `
for p in os.listdir("/proc"):
    if p.isdigit() and int(p) != os.getpid():
        try:
            if P["neighbour"].encode() in read_some("/proc/%s/cmdline" % p):
                return "process " + p
        except OSError:
            pass
`},
		{Name: "neighbour-environment", Category: c, Tries: "reads the environment of another sandbox's process", Probe: `
for p in os.listdir("/proc"):
    if p.isdigit() and int(p) != os.getpid():
        try:
            if P["neighbour"].encode() in read_some("/proc/%s/environ" % p):
                return "process " + p
        except OSError:
            pass
`},
		{Name: "neighbour-abstract", Category: c, Tries: "connects to an abstract socket of another sandbox", Probe: `
s = socket.socket(socket.AF_UNIX)
s.settimeout(2)
s.connect("\0" + P["neighbour"])
if s.recv(64).decode() == P["neighbour"]:
    return "it answered"
`},
		{Name: "neighbour-tcp", Category: c, Tries: "connects to a TCP server of another sandbox", Probe: `
def attempt(addr):
    def go():
        s = socket.create_connection((addr, P["neighbourport"]), 2)
        if s.recv(64).decode() == P["neighbour"]:
            return "it answered"
    return go
return first([attempt(a) for a in ["127.0.0.1"] + P["addresses"]])
`},
		{Name: "neighbour-shm", Category: c, Tries: "attaches the System V shared memory of another sandbox", Probe: `
shm = syscall("shmget", P["neighbourkey"], 0, 0)
return "attached segment %d" % shm
`},
		{Name: "neighbour-mq", Category: c, Tries: "opens a POSIX message queue of another sandbox", Probe: `
return "opened %d" % syscall("mq_open", P["neighbour"], os.O_RDONLY, 0, None)
`, Control: Control{Unproven: "some kernels have no message queues"}},
	}
}

// channelAttempts try to reach the descriptors that carry the frames.
func channelAttempts() []Attempt {
	const c = "channel"
	return []Attempt{
		{Name: "inherited-descriptors", Category: c, Tries: "finds a descriptor beyond 0 to 2 in a program that it starts", Probe: `
# The probe's own descriptors are close-on-exec, so what is left came from the
# guest.
out = subprocess.run([sys.executable, "-S", "-c", "import os; print([f for f in os.listdir('/proc/self/fd') if int(f) > 2])"],
                     close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout.decode()
left = [f for f in eval(out)]
# listdir itself holds one.
if len(left) > 1:
    return "descriptors %s" % left
`, Control: Control{Probe: `
os.set_inheritable(os.open("/dev/null", os.O_RDONLY), True)
out = subprocess.run([sys.executable, "-S", "-c", "import os; print([f for f in os.listdir('/proc/self/fd') if int(f) > 2])"],
                     close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout.decode()
left = [f for f in eval(out)]
if len(left) > 1:
    return "descriptors %s" % left
`, Why: "natively there is no channel: the control leaves a descriptor open on purpose"}},
		{Name: "descriptor-targets", Category: c, Tries: "finds a descriptor, its own or another process's, to a file, a directory or a device of the host", Probe: `
# The files of the root are the sandbox's own; sockets may be an event loop's.
harmless = ("/dev/null", "/dev/urandom", "/dev/pts/", "/proc/", "/workspace", "/tmp")
for p in os.listdir("/proc"):
    if not p.isdigit():
        continue
    for fd in glob.glob("/proc/%s/fd/*" % p):
        try:
            target = os.readlink(fd)
            mode = os.stat(fd).st_mode
        except OSError:
            continue
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or not target.startswith("/") or target.startswith(harmless):
            continue
        return "process %s holds %s" % (p, target)
`, Control: Control{Root: true}},
	}
}
