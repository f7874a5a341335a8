"""Run a file as a program: with a name and arguments, until its threads have
ended."""

from . import BUILTINS as __builtins__

import sys

from . import execute, mainfile


def run(session, source, filename, args):
    """Run a script. Return the status and the exit code of the execution."""
    namespace = session.namespace
    arguments, before = getattr(sys, "argv", []), namespace.get("__file__")
    if source[:1] == "\ufeff":  # a byte order mark
        source = source[1:]
    sys.argv = ["-" if filename == "<stdin>" else filename, *args]
    if filename[:1] == "<":
        if "__file__" in source:
            session.name_file(source)
    else:
        session.file = mainfile.MainFile(session.workspace.path, filename.rpartition("/")[2], source)
        session.scripted = True
        namespace["__file__"] = session.file.path
        if "__file__" in source or "nterpreter" in source:  # concurrent.interpreters runs it
            session.file.write()
    try:
        outcome = execute.run(session, source, filename, False)
        if outcome[0] != "interrupted":
            outcome = wind_down(session) or outcome
        return outcome
    finally:
        sys.argv = arguments
        session.remove_file()
        session.scripted = False
        namespace.pop("__file__", None)
        if before is not None or "__file__" in source:  # functions stay, and may use it
            namespace["__file__"] = before or session.workspace.path + "/" + mainfile.CELL


def wind_down(session):
    """Do what an interpreter does when it ends. Return how that failed, if it did."""
    interrupts = session.interrupts
    interrupts.begun, before = True, interrupts.happened
    outcome = None
    try:
        try:
            interrupts.arm()
            wait_for_threads()
            run_exit_functions()
            stop_fork_server()
            interrupts.check()
            if interrupts.happened and not before:
                raise KeyboardInterrupt  # an exit function has hidden it
        finally:
            try:
                sys.settrace(None)
                sys.setprofile(None)
            except BaseException:
                pass
            interrupts.disarm()
    except execute.Gone:
        raise
    except BaseException as e:
        outcome = execute.failed(session, e, False)
    interrupts.disarm()
    return outcome


def wait_for_threads():
    threading = sys.modules.get("threading")
    if threading is None:
        return
    # Executors end their threads here; otherwise these would wait forever.
    for call in reversed(list(getattr(threading, "_threading_atexits", ()))):
        call()
    for name, flag in (("thread", "_shutdown"), ("process", "_global_shutdown")):
        executors = sys.modules.get("concurrent.futures." + name)
        if hasattr(executors, flag):
            setattr(executors, flag, False)  # the session goes on
    me = threading.current_thread()
    while True:
        others = [t for t in threading.enumerate() if t is not me and not t.daemon and t is not threading.main_thread()]
        if not others:
            return
        others[0].join()


def stop_fork_server():
    """The exit functions have removed its socket: the next program needs another
    one."""
    module = sys.modules.get("multiprocessing.forkserver")
    if module is not None:
        try:
            module._forkserver._stop()
        except OSError:
            pass


def run_exit_functions():
    atexit = sys.modules.get("atexit")
    if atexit is not None:
        try:
            atexit._run_exitfuncs()
        except Exception:  # before 3.10 the last failure, which has been shown
            pass
