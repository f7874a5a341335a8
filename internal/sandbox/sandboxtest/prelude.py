# What every probe of the catalogue can use. It runs unchanged inside a sandbox
# and, as the positive control, natively on the host: standard library only.
import array, ctypes, errno, fcntl, glob, json, mmap, os, platform, select, signal
import socket, stat, struct, subprocess, sys, tempfile, textwrap, threading, time

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

_NUMBERS = {
    "x86_64": dict(
        ioctl=16, shmget=29, shmat=30, ptrace=101, syslog=103, capset=126, mknod=133,
        personality=135, setpriority=141, sched_setscheduler=144, pivot_root=155,
        adjtimex=159, chroot=161, acct=163, settimeofday=164, mount=165, umount2=166,
        swapon=167, swapoff=168, reboot=169, sethostname=170, setdomainname=171,
        iopl=172, ioperm=173, init_module=175, delete_module=176, quotactl=179,
        setxattr=188, mq_open=240, mq_unlink=241, mq_timedreceive=243, kexec_load=246, add_key=248,
        request_key=249, keyctl=250, ioprio_set=251, migrate_pages=256, unshare=272,
        move_pages=279, vmsplice=278, perf_event_open=298, fanotify_init=300,
        name_to_handle_at=303, open_by_handle_at=304, clock_adjtime=305, setns=308,
        process_vm_readv=310, process_vm_writev=311, kcmp=312, finit_module=313,
        memfd_create=319, kexec_file_load=320, bpf=321, execveat=322, userfaultfd=323,
        tgkill=234, rt_sigqueueinfo=129, clone=56, semget=64, msgget=68, getcwd=79,
        modify_ldt=154, get_robust_list=274, splice=275, timerfd_create=283, renameat2=316),
    "aarch64": dict(
        ioctl=29, shmget=194, shmat=196, ptrace=117, syslog=116, capset=91,
        personality=92, setpriority=140, sched_setscheduler=119, pivot_root=41,
        adjtimex=171, chroot=51, acct=89, settimeofday=170, mount=40, umount2=39,
        swapon=224, swapoff=225, reboot=142, sethostname=161, setdomainname=162,
        init_module=105, delete_module=106, quotactl=60, setxattr=5, mq_open=180, mq_unlink=181,
        mq_timedreceive=183, kexec_load=104, add_key=217, request_key=218, keyctl=219,
        ioprio_set=30, migrate_pages=238, unshare=97, move_pages=239, vmsplice=75,
        perf_event_open=241, fanotify_init=262, name_to_handle_at=264,
        open_by_handle_at=265, clock_adjtime=266, setns=268, process_vm_readv=270,
        process_vm_writev=271, kcmp=272, finit_module=273, memfd_create=279,
        kexec_file_load=294, bpf=280, execveat=281, userfaultfd=282, tgkill=131,
        rt_sigqueueinfo=138, clone=220, semget=190, msgget=186, getcwd=17,
        get_robust_list=100, splice=76, timerfd_create=85, renameat2=276),
}
_COMMON = dict(pidfd_send_signal=424, io_uring_setup=425, open_tree=428,
               move_mount=429, fsopen=430, fsconfig=431, fsmount=432, pidfd_open=434,
               pidfd_getfd=438, mount_setattr=442, quotactl_fd=443, clone3=435,
               landlock_create_ruleset=444, memfd_secret=447, process_madvise=440,
               statmount=457, listmount=458)
NR = dict(_COMMON, **_NUMBERS[platform.machine()])

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x00020000, 0x02000000, 0x04000000
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
CLONE_NEWTIME = 0x00000080
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
AT_FDCWD = -100


class Blocked(Exception):
    """The attempt did not reach what it tried."""


def syscall(name, *args):
    """Calls the kernel; returns its result or raises OSError."""
    if name not in NR:
        raise OSError(errno.ENOSYS, name + " does not exist on this architecture")
    ctypes.set_errno(0)
    r = _LIBC.syscall(ctypes.c_long(NR[name]), *[_arg(a) for a in args])
    if r < 0:
        e = ctypes.get_errno()
        raise OSError(e, "%s: %s" % (name, os.strerror(e)))
    return r


def _arg(a):
    if a is None:
        return ctypes.c_void_p(0)
    if isinstance(a, int):
        return ctypes.c_long(a)
    if isinstance(a, str):
        return ctypes.c_char_p(a.encode())
    if isinstance(a, bytes):
        return ctypes.c_char_p(a)
    return a


def permitted(name, *args, passed):
    """A privileged call in a form that does nothing: the kernel checks the
    privilege first and the arguments next, so an error in passed says that the
    privilege was there."""
    try:
        return "%s returned %d" % (name, syscall(name, *args))
    except OSError as e:
        if errno.errorcode.get(e.errno) in passed:
            return "%s passed the permission check (%s)" % (name, errno.errorcode[e.errno])
        raise


def first(attempts):
    """The result of the first of several callables that reaches something."""
    last = []
    for a in attempts:
        try:
            r = a()
            if r:
                return r
        except (OSError, Blocked) as e:
            last.append(str(e))
    raise Blocked("; ".join(last[:4]) or "none of them reached anything")


def can_open(path, flags):
    os.close(os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK))
    return "opened " + path


def read_some(path, n=4096):
    with open(path, "rb", buffering=0) as f:
        return f.read(n) or b""


def walk(roots, limit=20000, skip=("/proc", "/sys")):
    """Every path below roots, breadth first, at most limit of them."""
    queue, seen = list(roots), 0
    while queue:
        d = queue.pop(0)
        try:
            entries = list(os.scandir(d))
        except OSError:
            continue
        for e in entries:
            seen += 1
            if seen > limit:
                return
            yield e.path
            try:
                if e.is_dir(follow_symlinks=False) and e.path not in skip:
                    queue.append(e.path)
            except OSError:
                pass


def enter_userns(more=0):
    """Becomes root of a user namespace of its own."""
    uid, gid = os.getuid(), os.getgid()
    syscall("unshare", CLONE_NEWUSER | more)
    for path, text in (("setgroups", "deny"), ("uid_map", "0 %d 1" % uid), ("gid_map", "0 %d 1" % gid)):
        try:
            with open("/proc/self/" + path, "w") as f:
                f.write(text)
        except OSError:
            if path != "setgroups":
                raise


def cloexec_only(fd):
    return bool(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC)


def run_attempt(spec):
    """Runs one probe in a child and prints its verdict as one line of JSON."""
    r, w = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        try:
            verdict = _judge(spec)
        except BaseException as e:  # a bug in the probe proves nothing
            verdict = dict(verdict="broken", detail="%s: %s" % (type(e).__name__, e))
        try:
            os.write(w, json.dumps(verdict).encode())
        finally:
            os._exit(0)
    os.close(w)
    data, deadline = b"", time.monotonic() + spec.get("seconds", 20)
    while time.monotonic() < deadline:
        ready, _, _ = select.select([r], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        chunk = os.read(r, 65536)
        if not chunk:
            break
        data += chunk
    os.close(r)
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except OSError:
        pass
    if data:
        verdict = json.loads(data.decode())
    else:
        verdict = dict(verdict="blocked", detail="the probe's process was killed or hung")
    print("\nPROBE " + json.dumps(verdict), flush=True)


def _judge(spec):
    scope = dict(globals())
    source = "def probe(P):\n" + textwrap.indent(textwrap.dedent(spec["probe"]), "    ")
    exec(compile(source, "<%s>" % spec["name"], "exec"), scope)
    try:
        detail = scope["probe"](spec["params"])
    except OSError as e:
        return dict(verdict="blocked", errno=errno.errorcode.get(e.errno or 0, ""), detail=str(e)[:300])
    except Blocked as e:
        return dict(verdict="blocked", detail=str(e)[:300])
    if detail:
        return dict(verdict="reached", detail=str(detail)[:300])
    return dict(verdict="blocked", detail="nothing found")
