

# Where code is a single process, the channel is the process's own standard streams.
_write = next(cell.cell_contents for cell in os.write.__closure__ if type(cell.cell_contents) is type(len))


def channel_fds():
    return [1]


def control_fds():
    return [1]


def init_fds():
    return []


def put(fd, data):
    view = memoryview(data)
    while view:
        view = view[_write(fd, view) :]
