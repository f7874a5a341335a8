# What hostile code inside a guest does to the channel. It shares a process
# with the guest's interpreter, so it can write on the guest's own descriptors.
import fcntl, json, os, select, socket, stat, struct, sys, threading, time


def _writable(fd):
    try:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            return False
        mode = os.fstat(fd).st_mode
        return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    except OSError:
        return False


def channel_fds():
    """Every pipe or socket of this process that could carry frames."""
    return [int(f) for f in os.listdir("/proc/self/fd") if int(f) > 2 and _writable(int(f))]


def control_fds():
    """One of each of them that is not captured output."""
    def same(fd):
        return os.fstat(fd)[1:3]
    one = {}
    for fd in channel_fds():
        try:
            one.setdefault(same(fd), fd)
        except OSError:
            pass
    for fd in (0, 1, 2):
        one.pop(same(fd), None)
    return list(one.values())


def calls(count, params, method=b"call_tool"):
    """Makes calls with numbers of their own, on every descriptor at once: one
    that is no channel blocks."""
    def send(fd):
        for i in range(count):
            head = b'{"type":"call","id":%d,"run":1,"method":"%s","params":"' % (i, method)
            try:
                put(fd, struct.pack(">I", len(head) + len(params) + 2) + head)
                put(fd, params)
                put(fd, b'"}')
            except OSError:
                return
    for fd in control_fds():
        threading.Thread(target=send, args=(fd,), daemon=True).start()


def init_fds():
    """The same descriptors of the guest's init, our parent, opened anew if it
    lets us."""
    out, place = [], "/proc/%d/fd/" % os.getppid()
    for f in os.listdir(place):
        try:
            out.append(os.open(place + f, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            pass
    return out


def put(fd, data):
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view):]
        except BlockingIOError:
            select.select([], [fd], [], 1)


def everywhere(data):
    for fd in channel_fds():
        try:
            put(fd, data)
        except OSError:
            pass


def frame(obj):
    body = obj if isinstance(obj, bytes) else json.dumps(obj).encode()
    return struct.pack(">I", len(body)) + body


def output(kind, payload):
    return struct.pack(">I", len(payload) + 1) + kind + payload


def forever():
    while True:
        time.sleep(0.1)
