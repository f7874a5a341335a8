//go:build linux

package sandboxtest

// folderAttempts leave a mounted folder, or change one that is read-only. They run
// in a sandbox that has the folders P["ro"], P["rw"] and P["copy"] (see plantFolder);
// natively these are folders of the host that the probe can write to.
func folderAttempts() []Attempt {
	const c = "folders"
	list := []Attempt{
		{Name: "folder-links", Tries: "follows the folder's symbolic links out of it: absolute, with .., in a chain, through /proc, to a directory", Probe: `
def attempt(p):
    return lambda: P["token"].encode() in read_some(p) and "read the secret through " + p
links = ("absolute", "up", "chain", "proc", "upwards/secret", "dir/deep")
return first([attempt(os.path.join(P[d], l)) for d in ("ro", "rw", "copy") for l in links])
`},
		{Name: "folder-planted-links", Tries: "plants symbolic links in a folder and follows them out of it", Probe: `
def attempt(d, target):
    def go():
        p = os.path.join(d, "planted-%d" % os.getpid())
        os.symlink(target, p)
        try:
            return P["token"].encode() in read_some(p) and "read the secret through " + p
        finally:
            os.unlink(p)
    return go
return first([attempt(P[d], target) for d in ("rw", "copy") for target in (P["secret"], "../outside/secret", "/proc/self/root" + P["secret"])])
`},
		{Name: "folder-dotdot", Tries: "goes up from an open directory of the folder", Probe: `
def attempt(d, sub, up):
    def go():
        fd = os.open(os.path.join(d, sub), os.O_RDONLY | os.O_DIRECTORY)
        f = os.open(up + "outside/secret", os.O_RDONLY, dir_fd=fd)
        return P["token"].encode() in os.read(f, 4096) and "read the secret from " + sub
    return go
return first([attempt(P[d], sub, up) for d in ("ro", "rw", "copy") for sub, up in ((".", "../"), ("dir", "../../"))])
`},
		{Name: "folder-swap", Tries: "opens a path below a directory that the host swaps with a link out of the folder", Probe: `
end = time.monotonic() + 5
while time.monotonic() < end:
    for d in ("ro", "rw"):
        try:
            if P["token"].encode() in read_some(os.path.join(P[d], "swapped/secret")):
                return "read the secret"
        except OSError:
            pass
raise Blocked("never read the secret")
`},
		{Name: "folder-moved", Tries: "goes up from a directory that was moved within the folder", Probe: `
for i in range(50):
    base = os.path.join(P["rw"], "moved-%d-%d" % (os.getpid(), i))
    os.makedirs(base + "/a/b")
    fd = os.open(base + "/a/b", os.O_RDONLY | os.O_DIRECTORY)
    os.rename(base + "/a/b", base + "/b")
    os.rmdir(base + "/a")
    try:
        f = os.open("../../../outside/secret", os.O_RDONLY, dir_fd=fd)
        if P["token"].encode() in os.read(f, 4096):
            return "read the secret"
    finally:
        os.rmdir(base + "/b")
        os.rmdir(base)
`},
		{Name: "folder-socket", Tries: "connects to a socket of the host in a folder", Probe: `
def attempt(d):
    def go():
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(5)
        s.connect(os.path.relpath(os.path.join(P[d], "socket")))
        return P["token"].encode() in s.recv(4096) and "the host answered"
    return go
os.chdir(P["ro"])
return first([attempt(d) for d in ("ro", "rw", "copy")])
`},
		{Name: "folder-fifo", Tries: "opens a pipe of the host in a folder", Probe: `
def attempt(d):
    def go():
        fd = os.open(os.path.join(P[d], "fifo"), os.O_RDWR | os.O_NONBLOCK)
        ready, _, _ = select.select([fd], [], [], 5)
        return ready and P["token"].encode() in os.read(fd, 4096) and "the host's bytes came through"
    return go
return first([attempt(d) for d in ("ro", "rw", "copy")])
`},
		{Name: "folder-device", Tries: "opens a device in a folder", Probe: `
return first([lambda p=os.path.join(P[d], n): can_open(p, os.O_RDONLY) for d in ("ro", "rw", "copy") for n in ("device", "disk")])
`, Control: Control{Root: true, Unproven: "the host may be a container that opens no devices"}},
		{Name: "folder-mknod", Tries: "makes a device in a folder", Probe: `
def attempt(d, kind, number):
    def go():
        p = os.path.join(P[d], "made-%d" % os.getpid())
        os.mknod(p, kind | 0o666, os.makedev(*number))
        try:
            return can_open(p, os.O_RDONLY)
        finally:
            os.unlink(p)
    return go
return first([attempt(d, stat.S_IFCHR, (1, 5)) for d in ("rw", "copy")])
`, Control: Control{Root: true, Unproven: "the host may be a container that makes no devices"}},
		{Name: "folder-whiteout", Tries: "makes a device by renaming a file", Probe: `
def attempt(d):
    def go():
        p = os.path.join(P[d], "whiteout-%d" % os.getpid())
        os.close(os.open(p, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            syscall("renameat2", AT_FDCWD, p, AT_FDCWD, p + "x", 4)
            return stat.S_ISCHR(os.lstat(p).st_mode) and "made one"
        finally:
            for one in (p, p + "x"):
                if os.path.lexists(one):
                    os.unlink(one)
    return go
return first([attempt(d) for d in ("rw", "copy")])
`, Control: Control{Unproven: "not every file system has it"}},
		{Name: "folder-setuid", Tries: "leaves a file with a set-user-ID or set-group-ID bit in a folder", Probe: `
def attempt(make, bit):
    def go():
        p = os.path.join(P["rw"], "setuid-%d" % os.getpid())
        make(p, 0o755 | bit)
        try:
            return os.stat(p).st_mode & bit and "%s has %o" % (p, os.stat(p).st_mode)
        finally:
            os.chmod(p, 0o700)
            (os.rmdir if os.path.isdir(p) else os.unlink)(p)
    return go
def changed(p, mode):
    os.close(os.open(p, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        os.chmod(p, mode)
    except OSError:
        pass
def descriptor(p, mode):
    fd = os.open(p, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.fchmod(fd, mode)
    except OSError:
        pass
    os.close(fd)
makers = (changed, descriptor, lambda p, mode: os.close(os.open(p, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)),
          lambda p, mode: os.mknod(p, stat.S_IFREG | mode))
return first([attempt(m, bit) for m in makers for bit in (stat.S_ISUID, stat.S_ISGID)])
`},
		{Name: "folder-remount", Tries: "mounts a read-only folder again to write to it", Probe: `
def attempt(flags):
    def go():
        syscall("mount", None, P["ro"], None, flags, None)
        p = os.path.join(P["ro"], "remounted-%d" % os.getpid())
        os.close(os.open(p, os.O_WRONLY | os.O_CREAT, 0o600))
        os.unlink(p)
        return "wrote to it"
    return go
return first([attempt(f) for f in (MS_REMOUNT | MS_BIND, MS_REMOUNT)])
`, Control: Control{Root: true, Private: true, Why: "the folder is mounted read-only first", Probe: `
syscall("mount", "none", "/", None, MS_REC | MS_PRIVATE, None)
syscall("mount", P["ro"], P["ro"], None, MS_BIND, None)
syscall("mount", None, P["ro"], None, MS_REMOUNT | MS_BIND | MS_RDONLY, None)
syscall("mount", None, P["ro"], None, MS_REMOUNT | MS_BIND, None)
p = os.path.join(P["ro"], "remounted")
os.close(os.open(p, os.O_WRONLY | os.O_CREAT, 0o600))
os.unlink(p)
return "wrote to it"
`, Unproven: "a container may forbid mounts"}},
	}
	// Each way to change a folder alone: a file system may miss just one.
	for _, w := range []struct{ name, tries, code string }{
		{"write", "writes to a file", `
with open(p, "r+b", buffering=0) as f:
    f.write(b"D")
`},
		{"append", "appends to a file", `
with open(p, "ab", buffering=0) as f:
    f.write(b"x")
`},
		{"truncate", "truncates a file", `os.truncate(p, 4)`},
		{"open-truncate", "opens a file for reading, truncating it", `os.close(os.open(p, os.O_RDONLY | os.O_TRUNC))
if os.path.getsize(p):
    raise Blocked("it is not empty")`},
		{"mmap", "writes through shared memory", `
fd = os.open(d + "/dir/inner.txt", os.O_RDWR)
mmap.mmap(fd, 4, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)[0:1] = b"D"
`},
		{"reopen", "opens a descriptor for reading again, for writing", `
fd = os.open(p, os.O_RDONLY)
with open("/proc/self/fd/%d" % fd, "r+b", buffering=0) as f:
    f.write(b"D")
`},
		{"create", "creates a file", `os.close(os.open(d + "/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)); os.unlink(d + "/new")`},
		{"tmpfile", "creates a file without a name", `os.close(os.open(d, os.O_RDWR | os.O_TMPFILE, 0o600))`},
		{"mkdir", "creates a directory", `os.mkdir(d + "/newdir"); os.rmdir(d + "/newdir")`},
		{"symlink", "creates a symbolic link", `os.symlink("x", d + "/newlink"); os.unlink(d + "/newlink")`},
		{"link", "creates a hard link", `os.link(p, d + "/newhard"); os.unlink(d + "/newhard")`},
		{"rename", "renames a file", `os.rename(p, p + "x"); os.rename(p + "x", p)`},
		{"rename-in", "moves a file in from another place", `
q = "/tmp/in-%d" % os.getpid()
os.close(os.open(q, os.O_WRONLY | os.O_CREAT, 0o600))
try:
    os.rename(q, d + "/in")
except OSError as e:
    if e.errno != errno.EXDEV:
        raise
    os.close(os.open(d + "/in", os.O_WRONLY | os.O_CREAT, 0o600))
os.unlink(d + "/in")
`},
		{"unlink", "removes a file", `os.unlink(p); os.close(os.open(p, os.O_WRONLY | os.O_CREAT, 0o600))`},
		{"rmdir", "removes a directory", `os.rmdir(d + "/empty"); os.mkdir(d + "/empty")`},
		{"chmod", "changes a mode", `os.chmod(p, 0o640)`},
		{"chown", "changes an owner", `os.chown(p, os.getuid(), os.getgid())`},
		{"utime", "changes times", `os.utime(p, (1, 1))`},
		{"xattr", "sets an extended attribute", `os.setxattr(p, "user.sallyport", b"1")`},
		{"allocate", "allocates space", `
fd = os.open(p, os.O_WRONLY)
os.posix_fallocate(fd, 0, 8192)
`},
		{"mkfifo", "makes a pipe", `os.mkfifo(d + "/pipe"); os.unlink(d + "/pipe")`},
		{"bind", "makes a socket", `
os.chdir(d)
s = socket.socket(socket.AF_UNIX); s.bind("bound"); os.unlink("bound")
`},
	} {
		a := Attempt{Name: "folder-ro-" + w.name, Tries: "changes a read-only folder: " + w.tries,
			Probe: "d = P[\"ro\"]; p = d + \"/writes.txt\"\n" + w.code + "\nreturn \"did it\"\n"}
		if w.name == "xattr" || w.name == "tmpfile" {
			a.Control.Unproven = "not every file system has it"
		}
		list = append(list, a)
	}
	for i := range list {
		list[i].Category, list[i].Folders = c, true
	}
	return list
}
