"""Writes the standard library as one zip file of compiled modules.

Usage: library.py SOURCE SYSCONFIG TZDATA OUTPUT

SOURCE is the Lib directory of the interpreter's source, SYSCONFIG the module
with the build's variables, TZDATA the wheel with the time zones. The Python
that runs the script must be of the interpreter's version. The same input gives
the same bytes.
"""

import importlib.util
import marshal
import os
import sys
import zipfile
from importlib._bootstrap_external import _code_to_hash_pyc

# Packages and modules that cannot work without a terminal, a window, a
# compiler or a process, and Python twins of modules that are built in.
ABSENT = {
    "__phello__",
    "_android_support",
    "_apple_support",
    "_ios_support",
    "_pydatetime",
    "_pydecimal",
    "curses",
    "distutils",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tkinter",
    "turtle",
    "turtledemo",
    "venv",
}

# Variables of the build that say something about the interpreter and nothing
# about the machine that built it.
VARIABLES = {
    "ABIFLAGS", "ALIGNOF_SIZE_T", "EXE", "EXT_SUFFIX", "HOST_GNU_TYPE",
    "MACHDEP", "MULTIARCH", "Py_DEBUG", "Py_ENABLE_SHARED",
    "Py_GIL_DISABLED", "SIZEOF_LONG", "SIZEOF_SIZE_T", "SIZEOF_TIME_T",
    "SIZEOF_VOID_P", "SOABI", "TZPATH", "VERSION", "WITH_PYMALLOC",
}


# What pydoc needs of the package with the terminal's prompt.
PROMPT = {"_pyrepl/__init__.py", "_pyrepl/pager.py"}


def compiled(source, name):
    """Returns the bytes of an unchecked hash-based .pyc file."""
    code = compile(source, "/usr/lib/python3.13/" + name, "exec",
                   dont_inherit=True, optimize=0)
    digest = importlib.util.source_hash(source)
    return bytes(_code_to_hash_pyc(code, digest, False))


def modules(root):
    """Yields the name and the content of each module below root."""
    for folder, folders, files in os.walk(root):
        base = os.path.relpath(folder, root)
        base = "" if base == "." else base.replace(os.sep, "/") + "/"
        folders[:] = sorted(
            f for f in folders
            if f not in ("__pycache__", "tests", "idle_test")
            and (base or f not in ABSENT))
        for file in sorted(files):
            stem, extension = os.path.splitext(file)
            if extension != ".py" or not base and stem in ABSENT:
                continue
            if base == "_pyrepl/" and base + file not in PROMPT:
                continue
            with open(os.path.join(folder, file), "rb") as f:
                yield base + file, f.read()


def sysconfig(path):
    """Returns the build's variables without those of the machine."""
    variables = {}
    with open(path, encoding="utf-8") as f:
        exec(f.read(), variables)
    kept = {k: v for k, v in variables["build_time_vars"].items()
            if k in VARIABLES or k.startswith("HAVE_")}
    kept["prefix"] = kept["exec_prefix"] = "/usr"
    lines = [f"    {k!r}: {kept[k]!r},\n" for k in sorted(kept)]
    return ("build_time_vars = {\n" + "".join(lines) + "}\n").encode()


def zones(path):
    """Yields the files of the package with the time zones."""
    with zipfile.ZipFile(path) as wheel:
        for name in sorted(wheel.namelist()):
            if name.startswith("tzdata/") and not name.endswith("/"):
                yield name, wheel.read(name)


def main():
    source, variables, tzdata, output = sys.argv[1:]
    entries = dict(modules(source))
    entries[os.path.basename(variables)] = sysconfig(variables)
    entries.update(zones(tzdata))
    written = {}
    for name, content in entries.items():
        if name.endswith(".py"):
            written[name + "c"] = compiled(content, name)
        else:
            written[name] = content
    with zipfile.ZipFile(output, "w") as archive:
        for name in sorted(written):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            info.external_attr = 0o100644 << 16
            archive.writestr(info, written[name], compresslevel=9)


main()
