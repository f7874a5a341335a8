//go:build linux

package sandboxtest

// writeAttempts change what must not change.
func writeAttempts() []Attempt {
	const c = "writes"
	return []Attempt{
		{Name: "write-root", Category: c, Tries: "creates a file in a directory of the root file system", Probe: `
def attempt(d):
    def go():
        p = "%s/.sallyport-probe-%d" % (d, os.getpid())
        os.close(os.open(p, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(p)
        return "created a file in " + d
    return go
return first([attempt(d) for d in ("", "/etc", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/opt", "/var", "/lib", "/bin", "/dev", "/run", "/home", os.path.dirname(os.__file__))])
`, Control: Control{Root: true}},
		{Name: "write-anywhere", Category: c, Tries: "finds a directory that it can write to, other than those that are meant to be written to", Probe: `
# Message queues are files of their own namespace, and bounded by a limit.
allowed = ("/workspace", "/tmp", "/dev/shm", "/dev/mqueue", "/packages", "/proc")
for d in walk(["/"], 150000, ()):
    if any(d == a or d.startswith(a + "/") for a in allowed) or not os.path.isdir(d) or os.path.islink(d):
        continue
    if os.access(d, os.W_OK):
        p = "%s/.sallyport-probe-%d" % (d, os.getpid())
        try:
            os.close(os.open(p, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError:
            continue
        os.unlink(p)
        return "created a file in " + d
`, Control: Control{Root: true}},
		{Name: "write-file", Category: c, Tries: "opens a file of the root file system for writing", Probe: `
return first([lambda p=p: can_open(p, os.O_WRONLY) for p in (os.__file__, "/etc/passwd", "/etc/hosts", "/etc/ld.so.cache", "/usr/bin/env", "/etc/resolv.conf")])
`, Control: Control{Root: true}},
		{Name: "metadata", Category: c, Tries: "changes the mode, owner or times of a file of the root file system", Probe: `
def attempt(p, change):
    return lambda: change(p, os.stat(p)) or "changed " + p
changes = [lambda p, s: os.chmod(p, s.st_mode & 0o7777), lambda p, s: os.chown(p, s.st_uid, s.st_gid),
           lambda p, s: os.utime(p, ns=(s.st_atime_ns, s.st_mtime_ns)), lambda p, s: os.setxattr(p, "user.sallyport", b"1", os.XATTR_CREATE)]
# The control stops at the first: what it changes must not be part of a snapshot's root.
return first([attempt(p, ch) for p in ("/", os.__file__, "/etc/passwd", "/usr/bin/env") for ch in changes[:3]])
`, Control: Control{Root: true}},
		{Name: "rename-root", Category: c, Tries: "renames or removes a directory entry of the root file system", Probe: `
# Onto itself: a file system that would allow it does nothing.
def attempt(p):
    return lambda: os.rename(p, p) or "renamed " + p
def make(d):
    def go():
        p = "%s/.sallyport-probe-dir-%d" % (d, os.getpid())
        os.mkdir(p)
        os.rename(p, p + "x")
        os.rmdir(p + "x")
        return "renamed a directory in " + d
    return go
return first([make(d) for d in ("", "/etc", "/usr/lib", "/var")])
`, Control: Control{Root: true}},
		{Name: "preload", Category: c, Tries: "plants /etc/ld.so.preload or a sitecustomize for the next interpreter", Probe: `
import sysconfig
def attempt(p):
    def go():
        os.close(os.open(p, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(p)
        return "created " + p
    return go
# The control stops at the first: a change of the library makes snapshots of other tests unfit.
return first([attempt(p) for p in ("/etc/ld.so.preload.sallyport-probe", sysconfig.get_path("stdlib") + "/sallyport_probe.pth", sysconfig.get_path("stdlib") + "/site-packages.pth")])
`, Control: Control{Root: true}},
		{Name: "exec-writable", Category: c, Tries: "runs a program from a place that it can write to", Probe: `
import shutil
def attempt(d):
    def go():
        p = "%s/prog-%d" % (d, os.getpid())
        shutil.copyfile("/bin/true" if os.path.exists("/bin/true") else "/usr/bin/true", p)
        os.chmod(p, 0o755)
        try:
            if subprocess.call([p]) == 0:
                return "ran " + p
        finally:
            os.unlink(p)
    return go
return first([attempt(d) for d in ("/workspace", "/tmp", "/dev/shm", "/var/tmp")])
`},
		{Name: "mmap-exec-writable", Category: c, Tries: "maps a file that it wrote as executable", Probe: `
def attempt(d):
    def go():
        p = "%s/lib-%d" % (d, os.getpid())
        with open(p, "wb") as f:
            f.write(b"\xc3" * 4096)
        try:
            fd = os.open(p, os.O_RDONLY)
            mmap.mmap(fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
            return "mapped " + p
        finally:
            os.unlink(p)
    return go
return first([attempt(d) for d in ("/workspace", "/tmp", "/dev/shm", "/var/tmp")])
`},
	}
}

// mountAttempts change the sandbox's view of the file system.
func mountAttempts() []Attempt {
	const c = "mounts"
	private := Control{Root: true, Private: true}
	return []Attempt{
		{Name: "mount-tmpfs", Category: c, Tries: "mounts a tmpfs", Probe: `
d = tempfile.mkdtemp()
syscall("mount", "none", d, "tmpfs", 0, None)
return "mounted"
`, Control: private},
		{Name: "mount-proc", Category: c, Tries: "mounts another procfs or sysfs", Probe: `
d = tempfile.mkdtemp()
return first([lambda t=t: syscall("mount", t, d, t, 0, None) or "mounted " + t for t in ("proc", "sysfs", "devtmpfs", "debugfs", "cgroup2")])
`, Control: private},
		{Name: "mount-bind", Category: c, Tries: "binds a directory over another", Probe: `
d = tempfile.mkdtemp()
syscall("mount", "/", d, None, MS_BIND | MS_REC, None)
return "bound"
`, Control: private},
		{Name: "mount-block", Category: c, Tries: "mounts the host's root device", Probe: `
d = tempfile.mkdtemp()
def attempt(dev, kind):
    return lambda: syscall("mount", dev, d, kind, MS_RDONLY, None) or "mounted " + dev
devs = [l.split()[0] for l in open("/proc/mounts") if l.startswith("/dev/")] + ["/dev/vda", "/dev/sda", "/dev/sda1", "/dev/nvme0n1p1"]
return first([attempt(dev, k) for dev in devs for k in ("ext4", "xfs", "btrfs")])
`, Control: Control{Root: true, Private: true, Unproven: "the root need not be a block device"}},
		{Name: "remount-rw", Category: c, Tries: "remounts the root, or /proc and /sys, writable", Probe: `
return first([lambda p=p: syscall("mount", None, p, None, MS_REMOUNT | MS_BIND, None) or "remounted " + p for p in ("/", "/proc", "/sys", "/proc/sys")])
`, Control: private},
		{Name: "remount-exec", Category: c, Tries: "remounts /tmp or /workspace without noexec", Probe: `
return first([lambda p=p: syscall("mount", None, p, None, MS_REMOUNT | MS_BIND, None) or "remounted " + p for p in ("/workspace", "/tmp", "/dev/shm", "/dev")])
`, Control: private},
		{Name: "umount", Category: c, Tries: "unmounts what hides something: /proc, /sys, /dev, masked paths", Probe: `
points = [l.split()[1] for l in open("/proc/self/mounts")][::-1]
return first([lambda p=p: syscall("umount2", p, 2) or "unmounted " + p for p in points])
`, Control: private},
		{Name: "pivot-root", Category: c, Tries: "changes the root by pivot_root", Probe: `
# An invalid target: the kernel asks for the privilege first.
return permitted("pivot_root", "/nonexistent", "/nonexistent", passed=("ENOENT", "EINVAL"))
`, Control: private},
		{Name: "chroot", Category: c, Tries: "changes its root directory", Probe: `
d = tempfile.mkdtemp()
syscall("chroot", d)
return "changed"
`, Control: Control{Root: true}},
		{Name: "chroot-escape", Category: c, Tries: "leaves the root by chroot with a descriptor kept open", Probe: `
fd = os.open("/", os.O_RDONLY)
syscall("chroot", tempfile.mkdtemp())
os.fchdir(fd)
for _ in range(64):
    os.chdir("..")
syscall("chroot", ".")
if read_some(P["files"]["/tmp"]).decode() == P["token"]:
    return "read a file of the host"
`, Control: Control{Root: true}},
		{Name: "fsopen", Category: c, Tries: "mounts with the descriptor-based calls", Probe: `
fd = syscall("fsopen", "tmpfs", 0)
syscall("fsconfig", fd, 6, None, None, 0)
mnt = syscall("fsmount", fd, 0, 0)
syscall("move_mount", mnt, "", AT_FDCWD, tempfile.mkdtemp(), 4)
return "mounted"
`, Control: private},
		{Name: "open-tree", Category: c, Tries: "clones a mount tree by open_tree", Probe: `
syscall("open_tree", AT_FDCWD, "/", 1)
return "cloned"
`, Control: private},
		{Name: "fuse-mount", Category: c, Tries: "mounts a file system that it serves itself", Probe: `
fd = os.open("/dev/fuse", os.O_RDWR)
syscall("mount", "probe", tempfile.mkdtemp(), "fuse", 0, "fd=%d,rootmode=40000,user_id=%d,group_id=%d" % (fd, os.getuid(), os.getgid()))
return "mounted"
`, Control: Control{Root: true, Private: true, Unproven: "a kernel without FUSE has none"}},
		{Name: "mount-setattr", Category: c, Tries: "clears mount flags by mount_setattr", Probe: `
attr = struct.pack("QQQQ", 0, 1, 0, 0)
return first([lambda p=p: syscall("mount_setattr", AT_FDCWD, p, 0, attr, len(attr)) or "changed " + p for p in ("/", "/tmp", "/workspace", "/proc")])
`, Control: private},
		{Name: "file-handle", Category: c, Tries: "opens a file by its handle, past every path check", Probe: `
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + b"\0" * 128, 136)
mount_id = ctypes.c_int()
fd = os.open("/", os.O_RDONLY)
def named():
    syscall("name_to_handle_at", AT_FDCWD, "/etc", handle, ctypes.byref(mount_id), 0)
    return syscall("open_by_handle_at", fd, handle, os.O_RDONLY) and "opened /etc"
def inode2():
    h = ctypes.create_string_buffer(struct.pack("IiII", 8, 1, 2, 0), 16)
    return syscall("open_by_handle_at", fd, h, os.O_RDONLY) and "opened inode 2"
return first([named, inode2])
`, Control: Control{Root: true}},
	}
}

// namespaceAttempts enter or make namespaces.
func namespaceAttempts() []Attempt {
	const c = "namespaces"
	root := Control{Root: true, Private: true}
	kinds := []struct{ name, flag string }{
		{"mount", "CLONE_NEWNS"}, {"uts", "CLONE_NEWUTS"}, {"ipc", "CLONE_NEWIPC"},
		{"pid", "CLONE_NEWPID"}, {"net", "CLONE_NEWNET"}, {"cgroup", "CLONE_NEWCGROUP"}, {"time", "CLONE_NEWTIME"},
	}
	var list []Attempt
	for _, k := range kinds {
		list = append(list, Attempt{
			Name: "unshare-" + k.name, Category: c, Tries: "makes a " + k.name + " namespace without a user namespace",
			Probe:   "syscall('unshare', " + k.flag + ")\nreturn 'made one'\n",
			Control: root,
		})
	}
	return append(list, []Attempt{
		{Name: "userns-mount", Category: c, Tries: "becomes root of a user namespace and mounts a tmpfs that runs programs", Probe: `
import shutil
enter_userns(CLONE_NEWNS)
d = tempfile.mkdtemp()
syscall("mount", "none", d, "tmpfs", 0, None)
shutil.copyfile("/usr/bin/true", d + "/true")
os.chmod(d + "/true", 0o755)
return "mounted, and a program there returned %d" % subprocess.call([d + "/true"])
`, Control: Control{Unproven: "some hosts forbid user namespaces to ordinary users"}},
		{Name: "userns-proc", Category: c, Tries: "becomes root of user and PID namespaces and mounts a procfs without masks", Probe: `
enter_userns(CLONE_NEWNS | CLONE_NEWPID)
d = tempfile.mkdtemp()
pid = os.fork()
if pid == 0:
    try:
        syscall("mount", "proc", d, "proc", 0, None)
        os._exit(0)
    except OSError as e:
        os._exit(e.errno)
code = os.WEXITSTATUS(os.waitpid(pid, 0)[1])
if code:
    raise OSError(code, os.strerror(code))
return "mounted"
`, Control: Control{Unproven: "some hosts forbid user namespaces to ordinary users"}},
		{Name: "userns-net", Category: c, Tries: "becomes root of user and network namespaces and opens a packet socket", Probe: `
enter_userns(CLONE_NEWNET)
socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
return "opened"
`, Control: Control{Unproven: "some hosts forbid user namespaces to ordinary users"}},
		{Name: "userns-fuse", Category: c, Tries: "becomes root of a user namespace and mounts a file system that it serves itself", Probe: `
enter_userns(CLONE_NEWNS)
fd = os.open("/dev/fuse", os.O_RDWR)
syscall("mount", "probe", tempfile.mkdtemp(), "fuse", 0, "fd=%d,rootmode=40000,user_id=0,group_id=0" % fd)
return "mounted"
`, Control: Control{Unproven: "some hosts forbid user namespaces to ordinary users, or have no FUSE"}},
		{Name: "userns-clone", Category: c, Tries: "makes a user namespace by clone and clone3", Probe: `
def old():
    pid = syscall("clone", CLONE_NEWUSER | int(signal.SIGCHLD), 0, 0, 0, 0)
    return pid
def new():
    args = struct.pack("8Q", CLONE_NEWUSER, 0, 0, 0, int(signal.SIGCHLD), 0, 0, 0)
    return syscall("clone3", args, len(args))
def attempt(call):
    def go():
        pid = call()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return "made one"
    return go
return first([attempt(old), attempt(new)])
`, Control: Control{Unproven: "some hosts forbid user namespaces to ordinary users"}},
		{Name: "userns-capability", Category: c, Tries: "gains every capability in a user namespace", Probe: `
enter_userns()
eff = [l for l in open("/proc/self/status") if l.startswith("CapEff")][0].split()[1]
if int(eff, 16) & (1 << 21):
    return "CapEff is " + eff
`, Control: Control{Unproven: "some hosts forbid user namespaces to ordinary users"}},
		{Name: "userns-chroot", Category: c, Tries: "leaves the root by chroot as root of a user namespace", Probe: `
enter_userns(CLONE_NEWNS)
fd = os.open("/", os.O_RDONLY)
syscall("chroot", tempfile.mkdtemp())
os.fchdir(fd)
for _ in range(64):
    os.chdir("..")
syscall("chroot", ".")
if read_some(P["files"]["/tmp"]).decode() == P["token"]:
    return "read a file of the host"
`, Control: Control{Unproven: "some hosts forbid user namespaces to ordinary users"}},
		{Name: "userns-bind-write", Category: c, Tries: "as root of a user namespace, remounts the root writable and writes to it", Probe: `
enter_userns(CLONE_NEWNS)
def attempt(d):
    def go():
        syscall("mount", d, d, None, MS_BIND, None)
        try:
            syscall("mount", None, d, None, MS_REMOUNT | MS_BIND, None)
        except OSError:
            pass
        p = d + "/.sallyport-probe-%d" % os.getpid()
        os.close(os.open(p, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(p)
        return "created a file in " + d
    return go
return first([attempt(d) for d in ("/etc", "/usr/lib", "/opt", "/var")])
`, Control: Control{Root: true, Private: true}},
		{Name: "userns-mknod", Category: c, Tries: "as root of a user namespace, makes a device node that opens", Probe: `
enter_userns(CLONE_NEWNS)
p = tempfile.mkdtemp() + "/null"
os.mknod(p, stat.S_IFCHR | 0o600, os.makedev(1, 3))
return can_open(p, os.O_RDONLY)
`, Control: Control{Root: true, Private: true, Probe: `
p = tempfile.mkdtemp() + "/null"
os.mknod(p, stat.S_IFCHR | 0o600, os.makedev(1, 3))
return can_open(p, os.O_RDONLY)
`, Why: "Linux refuses it in any user namespace, too; the control makes the node as root of the host", Unproven: "a /tmp that is mounted nodev opens none"}},
		{Name: "setns-init", Category: c, Tries: "enters a namespace of process 1 by /proc/PID/ns", Probe: `
def attempt(kind, flag):
    def go():
        fd = os.open("/proc/%d/ns/%s" % (P["init"], kind), os.O_RDONLY)
        syscall("setns", fd, flag)
        return "entered the %s namespace of process 1" % kind
    return go
return first([attempt("mnt", CLONE_NEWNS), attempt("uts", CLONE_NEWUTS), attempt("net", CLONE_NEWNET), attempt("ipc", CLONE_NEWIPC)])
`, Control: root},
		{Name: "setns-pidfd", Category: c, Tries: "enters the namespaces of a host process by a pidfd", Probe: `
fd = syscall("pidfd_open", P["canary"]["pid"], 0)
syscall("setns", fd, CLONE_NEWUTS)
return "entered"
`, Control: root, Canary: true},
	}...)
}
