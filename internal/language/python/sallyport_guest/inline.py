"""The header of a script that names the packages it needs (PEP 723)."""

from . import BUILTINS as __builtins__

import re
import sys

from .errors import MCPError

START = "# /// script"
BLOCK = re.compile(r"(?m)^# /// script[ \t]*$\n((?:^#(?:| .*)$\n)+?)^# ///[ \t]*$")
TABLE = re.compile(r"(?m)^[ \t]*\[[^\]\n]*\]{1,2}[ \t]*(?:#.*)?$")
LIST = re.compile(r"(?m)^[ \t]*dependencies[ \t]*=[ \t]*(?=\[)")
PYTHON = re.compile(r"(?m)^[ \t]*requires-python[ \t]*=[ \t]*([\"'])(.*?)\1")
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
CLAUSE = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*(\d+(?:\.\d+)*)(\.\*)?$")


def header(source):
    """Return the dependencies of the header and the Python it requires, or None if
    there is no header."""
    if not source.endswith("\n"):
        source += "\n"
    found = BLOCK.search(source.replace("\r\n", "\n"))
    if found is None:
        return None
    text = "".join(line[2:] + "\n" for line in found.group(1).splitlines())
    listed = LIST.search(text)
    dependencies, rest = [], text
    if listed:
        dependencies, end = strings(text, listed.end())
        rest = text[: listed.start()] + text[end:]
    table = TABLE.search(rest)
    if table and listed and listed.start() > table.start():  # of another table
        dependencies = []
    python = PYTHON.search(rest[: table.start()] if table else rest)
    return dependencies, python.group(2) if python else ""


def strings(text, start):
    """Return the list of strings that begins there, and where it ends. TOML writes it
    like Python."""
    from ast import literal_eval

    end = start
    while True:
        end = text.find("]", end) + 1
        if not end:
            raise MCPError("the header of this script cannot be read: its dependencies must be a list of strings", kind="invalid")
        try:
            found = literal_eval(text[start:end])
        except (SyntaxError, ValueError):
            continue
        if not all(isinstance(item, str) for item in found):
            raise MCPError("the header of this script cannot be read: its dependencies must be strings", kind="invalid")
        return found, end


def fits(required):
    """Report whether this Python is one that the header requires. A clause that cannot
    be read is ignored."""
    for clause in required.split(","):
        found = CLAUSE.match(clause.strip())
        if found is None:
            continue
        operator, version, star = found.groups()
        wanted = tuple(map(int, version.split(".")))
        have = tuple(sys.version_info[:3])
        if star or operator == "~=":
            start = wanted[: len(wanted) if star else max(1, len(wanted) - 1)]
            same = have[: len(start)] == start
            ok = not same if operator == "!=" else same and (star or have >= wanted)
        else:
            wanted = (wanted + (0, 0, 0))[:3]
            ok = {
                ">=": have >= wanted, "<=": have <= wanted, "==": have == wanted, "!=": have != wanted, ">": have > wanted, "<": have < wanted,
            }[operator]  # fmt: skip
        if not ok:
            return False
    return True


def prepare(session, source):
    """Install what the header asks for and is missing, before the code runs."""
    from . import install

    found = header(source)
    if found is None:
        return
    dependencies, python = found
    if not fits(python):
        raise MCPError("the code did not run: its header requires Python %s, and this is %d.%d.%d" % (python, *sys.version_info[:3]), kind="invalid")
    have = install.present(session) if dependencies else {}
    lacking = []
    for requirement in dependencies:
        name = NAME.match(requirement.strip())
        if name is None or install.normalised(name.group()) not in have:
            lacking.append(requirement.strip())
    if not lacking:
        return
    try:
        install.run_sync(session, install.install(session, lacking))
    except MCPError as e:
        e.args = ("the code did not run, because its header asks for packages that are not installed (%s): %s" % (", ".join(lacking), e),)
        raise
