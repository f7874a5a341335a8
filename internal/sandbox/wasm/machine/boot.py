"""The first program of the interpreter in WebAssembly.

The host executes it once, as the module _sallyport_boot, and keeps an image of the
memory: every session begins as a copy of it. It then calls run whenever a frame has
arrived, or the time that the call before has returned is over.
"""

import posix
import sys

HERE = __file__.rpartition("/")[0]
PROGRAM = "/opt/sallyport"
START = "/run/sallyport/start.json"  # what only this session has
FOREVER = 1 << 62


def part(name):
    """Execute a file next to this one, as a module that user code does not meet by
    accident."""
    path = "%s/%s.py" % (HERE, name)
    with open(path, encoding="utf-8") as f:
        code = compile(f.read(), "<sallyport>/" + name, "exec")
    module = type(sys)("_sallyport_" + name)
    module.__file__ = path
    sys.modules[module.__name__] = module
    exec(code, vars(module))
    return module


def boot():
    """Make a session that waits for its first call, with everything loaded that code is
    likely to use."""
    global absent
    absent = part("absent")
    absent.install()
    sys.argv = [PROGRAM + "/sallyport_guest/__main__.py"]
    sys.executable = ""  # there is no file of the interpreter: platform.libc_ver would read it
    sys.path.insert(0, PROGRAM)
    from sallyport_guest import single

    sys.path.remove(PROGRAM)
    made = single.parked()
    warm = part("warm")
    warm.up(made)
    part("locks")
    part("threads").install(made)
    pools = part("pools")
    pools.install()
    made.imports.after["multiprocessing.context"] = absent.multiprocessing_imported
    made.imports.after["multiprocessing.pool"] = pools.imported
    made.imports.after["ctypes"] = absent.ctypes_imported
    warm.settle()
    return made


session = boot()
resume = sys.modules["sallyport_guest.session"].resume
opened = False


def run():
    """Do all the work that has come. Return the milliseconds until there is more."""
    global opened
    if not opened:
        opened = True
        first()
        session.open()
    wait = resume(session)
    return FOREVER if wait is None else min(wait, FOREVER)


def first():
    """Make the session that was copied from the image one of its own. Only the hashes of
    its strings stay those of the image."""
    import json
    import os
    import site

    from sallyport_guest.reseed import reseed

    try:
        with open(START, encoding="utf-8") as f:
            start = json.load(f)
    except FileNotFoundError:
        start = {}
    os.environ.update(start.get("env", {}))
    absent.deepest = start.get("recursion") or absent.deepest
    if start.get("argv"):
        sys.argv = start["argv"][:1]
    reseed(bytes.fromhex(start.get("seed", "")) or posix.urandom(32))
    try:
        posix.chdir(session.workspace.path)
    except OSError:
        pass
    session.workspace.scan()  # the files of the host are not the first execution's
    # An import that failed may have looked for packages before there were any.
    environment = any(map(os.path.isdir, site.getsitepackages()))
    session.paths.added = not environment
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not session.paths]
    if environment:
        sys.meta_path.append(session.paths)
