# A neighbour keeps a secret in each place that two sandboxes might share. It
# runs in a sandbox next to the one under test, and natively as its stand-in.
_kept = []


def neighbour_plant(n):
    token = n["neighbour"]
    for d in ("/workspace", "/tmp", "/dev/shm"):
        try:
            p = d + "/neighbour-" + token
            with open(p, "w") as f:
                f.write(token)
            _kept.append(lambda p=p: os.unlink(p))
        except OSError:
            pass
    for family, address in ((socket.AF_UNIX, "\0" + token), (socket.AF_INET, ("0.0.0.0", n["neighbourport"]))):
        try:
            s = socket.socket(family)
            s.bind(address)
            s.listen(8)
        except OSError:
            continue
        threading.Thread(target=_neighbour_serve, args=(s, token.encode()), daemon=True).start()
    try:
        shm = syscall("shmget", n["neighbourkey"], 4096, 0o1666)
        _kept.append(lambda: _LIBC.shmctl(shm, 0, None))
    except OSError:
        pass
    try:
        syscall("mq_open", token, os.O_CREAT | os.O_RDWR, 0o666, None)
        _kept.append(lambda: syscall("mq_unlink", token))
    except OSError:
        pass
    key = n["neighbourkey"]
    try:
        sem = syscall("semget", key, 1, 0o1666)
        _kept.append(lambda: _LIBC.semctl(sem, 0, 0))
    except OSError:
        pass
    try:
        syscall("add_key", "user", token, b"x", 1, -4)
        _kept.append(lambda: syscall("keyctl", 9, syscall("keyctl", 10, -4, "user", token, 0), -4))
    except OSError:
        pass
    try:
        master, slave = os.openpty()
        fcntl.ioctl(slave, 0x5414, struct.pack("HHHH", key >> 16, key & 0xffff, 0, 0))
        _kept.append(lambda: (os.close(master), os.close(slave)))
    except OSError:
        pass
    for name in ("string", "struct", "textwrap"):
        try:
            fd = os.open(os.path.join(os.path.dirname(os.__file__), name + ".py"), os.O_RDONLY)
        except OSError:
            continue
        _kept.append(lambda fd=fd: os.close(fd))
        # Shared, because suites run side by side, and each has a neighbour. One
        # that is looking for this lock may hold the file for a moment.
        for _ in range(100):
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.01)
    env = dict(os.environ, NEIGHBOUR=token)
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(3600)", token], env=env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _kept.append(child.kill)


def _neighbour_serve(s, answer):
    while True:
        c, _ = s.accept()
        try:
            c.sendall(answer)
        except OSError:
            pass
        c.close()


def neighbour_remove():
    for undo in _kept:
        try:
            undo()
        except OSError:
            pass
