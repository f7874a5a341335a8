"""Runs one module of CPython's own tests in a session.

The host sends {"module": NAME, "skip": [PATTERN...]} in a line, and hears a JSON array in
a line for each event:

    ["begin", TEST]          a test begins
    ["pass", TEST]           it has passed
    ["fail", TEST, REASON]   it has failed; also for a module that cannot be imported
    ["skip", TEST, REASON]   it has skipped itself
    ["leave", TEST]          a pattern excludes it
    ["none", MODULE, REASON] the module has skipped itself

A test is named as unittest does, without the package: test_json.test_dump.TestCDump.test_dump.
"""

import posix
import sys

LIBRARY = "/opt/sallyport"  # the library's source with the tests
sys.path.insert(0, LIBRARY)
sys.argv = ["test"]
sys.executable = ""  # there is no such file, and tests that look into it would not load

import fnmatch
import importlib.machinery
import json
import os
import random
import re
import site
import sysconfig
import traceback
import types
import unittest
import warnings
from asyncio.selector_events import BaseSelectorEventLoop

# As where a module's name was on the command line.
sys.modules["__main__"].__spec__ = importlib.machinery.ModuleSpec("__main__", None)

# The library does not say it, and tests of docstrings would skip themselves.
sysconfig.get_config_vars()["WITH_DOC_STRINGS"] = 1

from test import support
from test.support import socket_helper

site  # it has added exit, quit and help to the built-in names


# Modules of tests that do not load because of modules that few of their tests use. A
# stand-in lets the others run.
STAND_INS = {
    "test_bytes": ["_testlimitedcapi"],
    "test_class": ["_testinternalcapi"],
    "test_compile": ["_testinternalcapi"],
    "test_monitoring": ["_testcapi"],
    "test_opcache": ["_testinternalcapi"],
    "test_traceback": ["_testcapi"],
    "test_type_cache": ["_testcapi", "_testinternalcapi"],
}

# Modules that use what the tests of importlib share, which loads a module that is absent.
IMPORTS = {"test_compileall", "test_import", "test_importlib", "test_pkgutil", "test_pyclbr", "test_types"}

# Modules that use what the tests of CPython's tools share, which skips itself.
TOOLS = {"test_argparse", "test_getopt", "test_optparse"}

# Modules that call functions of the interpreter through ctypes, and do not where it is
# absent.
FUNCTIONS = {"test_capi", "test_code", "test_frame"}

# Modules that skip themselves where there are no sockets, and have tests without any.
SOCKETS = {"test_asyncgen", "test_contextlib_async", "test_sys_settrace", "test_urllib2", "test_xml_dom_xmlbuilder"}
SOCKETS.update(
    "test_asyncio.test_" + name
    for name in (
        "context eager_task_factory futures futures2 locks pep492 protocols queues runners staggered streams taskgroups tasks timeouts"
        " transports waitfor"
    ).split()
)


class StandIn(types.ModuleType):
    """A module of which every function skips the test that calls it."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def skip(*args, **kwargs):
            raise unittest.SkipTest("there is no module " + self.__name__)

        return skip


def stand_in(name):
    sys.modules[name] = StandIn(name)
    sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)


def prepare(module):
    """Let a module of tests load."""
    for name in STAND_INS.get(module, ()):
        stand_in(name)
    if module in IMPORTS:
        stand_in("_testsinglephase")
        importlib.import_module("test.test_importlib.util")
        del sys.modules["_testsinglephase"]
    if module in TOOLS:
        support.has_subprocess_support = True
        importlib.import_module("test.test_tools")
        support.has_subprocess_support = False
    if module in FUNCTIONS:
        sys.modules["ctypes"] = None
    if module in SOCKETS:
        decorator = support.requires_working_socket
        support.requires_working_socket = lambda *, module=False: None if module else decorator()
        # asyncio wakes its loop through a pair of sockets, which only other threads need.
        BaseSelectorEventLoop._make_self_pipe = lambda self: None
        BaseSelectorEventLoop._close_self_pipe = lambda self: None
    # Its answers are right, and the module that it asks is absent.
    support.has_no_debug_ranges = lambda: False
    support.skip_if_suppress_immortalization = lambda: unittest.skip("needs _testinternalcapi")
    # Tests of urllib ask for it, and few need it.
    socket_helper.has_gethostname = True


def emit(*event):
    line = json.dumps(event).encode() + b"\n"
    while line:
        line = line[posix.write(1, line):]


def name_of(module, test):
    """Return a test's name, which begins with the module's."""
    name = test.id()
    # setUpClass (test.test_json.TestCDump)
    fixture = re.fullmatch(r"(\w+) \((.*)\)", name)
    if fixture is not None:
        name = "%s.%s" % (fixture[2], fixture[1])
    name = name.removeprefix("test.")
    return name if name == module or name.startswith(module + ".") else "%s.%s" % (module, name)


def reason_of(error):
    """Return the first line of an exception and where it was raised."""
    kind, value, trace = error
    text = "".join(traceback.format_exception_only(kind, value)).strip().partition("\n")[0]
    frames = [f for f in traceback.extract_tb(trace) if "/unittest/" not in f.filename]
    if frames:
        text += " [%s:%d]" % (frames[-1].filename.removeprefix(LIBRARY + "/"), frames[-1].lineno)
    return text


class Result(unittest.TestResult):
    """Reports what unittest finds out."""

    def __init__(self, module):
        super().__init__()
        self.module, self.said = module, set()

    def say(self, what, test, *reason):
        name = name_of(self.module, test)
        if name not in self.said:
            self.said.add(name)
            emit(what, name, *reason)

    def startTest(self, test):
        super().startTest(test)
        emit("begin", name_of(self.module, test))

    def addSuccess(self, test):
        super().addSuccess(test)
        self.say("pass", test)

    def addError(self, test, error):
        self.say("fail", test, reason_of(error))

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.say("fail", test, reason_of(error))

    def addSkip(self, test, reason):
        # A test of which a part has failed, or a part has skipped itself, is said already
        # or is said at its end.
        if not isinstance(test, unittest.case._SubTest):
            self.say("skip", test, reason)

    def addExpectedFailure(self, test, error):
        self.say("pass", test)

    def addUnexpectedSuccess(self, test):
        self.say("fail", test, "it passes, and its author does not expect it")


def cases(suite):
    """Yield the tests of a suite."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases(test)
        elif test is not None:
            yield test


def remove(suite, module, skip):
    """Remove the tests that a pattern excludes."""
    kept = []
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            remove(test, module, skip)
            kept.append(test)
        elif any(fnmatch.fnmatchcase(name_of(module, test), pattern) for pattern in skip):
            emit("leave", name_of(module, test))
        else:
            kept.append(test)
    suite._tests[:] = kept


def execute(module, skip):
    prepare(module)
    try:
        loaded = importlib.import_module("test." + module)
        loader = unittest.TestLoader()
        suite = loader.loadTestsFromModule(loaded)
    except unittest.SkipTest as e:
        emit("none", module, str(e))
        return
    except BaseException:
        emit("fail", module, reason_of(sys.exc_info()))
        return
    remove(suite, module, skip)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        suite.run(Result(module))


def run():
    line = b""
    while not line.endswith(b"\n"):
        line += posix.read(0, 65536)
    order = json.loads(line)
    # The host does not listen to this one.
    sys.stdout = sys.__stdout__ = sys.stderr
    support.use_resources = ["cpu", "decimal"]
    random.seed(1)
    os.mkdir("/tmp/test")
    os.chdir("/tmp/test")
    support.SAVEDCWD = os.getcwd()
    execute(order["module"], order["skip"])
    posix._exit(0)
