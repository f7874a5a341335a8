"""The header of code that names the packages it needs (PEP 723). The host reads it."""

from . import BUILTINS as __builtins__

import operator
import re
import sys

from .errors import MCPError

START = re.compile(r"(?m)^# /// script[ \t]*\r?$")
AFTER = re.compile(r"^[A-Za-z0-9._-]*\s*(\[[^\]]*\])?")  # what a requirement begins with
PLATFORM = re.compile(r"\s*(sys_platform|os_name|platform_system)\s*([!=]=)\s*['\"](\w+)['\"]\s*$")
MARKER = re.compile(r"\s*python_version\s*([<>=!]=|[<>])\s*['\"]([\d.]+)['\"]\s*$")
RELEASE = re.compile(r"(\d+(?:\.\d+)*)(?:\+.*)?$")
COMPARE = {">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt}
CLAUSE = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*(\d+(?:\.\d+)*)(\.\*)?$")


def quoted(source, start):
    """Report whether that place is in a string, such as another script's text."""
    import ast

    line = source.count("\n", 0, start) + 1
    return any(isinstance(n, (ast.Constant, ast.JoinedStr)) and n.lineno < line <= n.end_lineno for n in ast.walk(ast.parse(source)))


def fits(required, have):
    """Report whether a version, as numbers, is one of those required. A clause that
    cannot be read is ignored."""
    for clause in required.split(","):
        found = CLAUSE.match(clause.strip())
        if found is None:
            continue
        sign, version, star = found.groups()
        wanted = tuple(map(int, version.split(".")))
        start = wanted if star else wanted[: max(1, len(wanted) - 1)]
        size = max(len(have), len(wanted))
        have_all, wanted_all = have + (0,) * (size - len(have)), wanted + (0,) * (size - len(wanted))
        if star or sign == "~=":
            same = have_all[: len(start)] == start
            ok = not same if sign == "!=" else same and (star or have_all >= wanted_all)
        else:
            ok = COMPARE[sign](have_all, wanted_all)
        if not ok:
            return False
    return True


def lacks(requirement, have):
    """Report whether a requirement is not there. It is where that is not certain."""
    from .install import name_of, normalised

    wanted, _, marker = requirement.partition(";")
    python, platform = MARKER.match(marker), PLATFORM.match(marker)
    if python and not fits(python.group(1) + python.group(2), tuple(sys.version_info[:2])):
        return False  # it is for another Python
    if platform and (platform.group(3) in ("linux", "posix", "Linux")) != (platform.group(2) == "=="):
        return False
    version = have.get(normalised(name_of(wanted)))
    if version is None:
        return True
    clauses = AFTER.sub("", wanted.strip()).strip().strip("()")
    release = RELEASE.match(version)
    if release and not fits(clauses, tuple(map(int, release.group(1).split(".")))):
        raise MCPError("the code did not run: its header asks for %s, and version %s is there, which is kept: ask for a version that fits it, or use an environment" % (requirement, version), kind="invalid")
    return False


def prepare(session, source):
    """Install what the header asks for and is missing, before the code runs."""
    from . import install

    if all(quoted(source, found.start()) for found in START.finditer(source)):
        return
    try:
        asked = session.channel.request_sync("script_header", '{"version":[%d,%d]}' % sys.version_info[:2])
    except MCPError as e:
        if e.kind == "unsupported":  # whoever runs the code provides its packages
            return
        e.args = ("the code did not run: %s" % e,)
        raise
    have = install.present(session) if asked else {}
    lacking = [requirement for requirement in asked if lacks(requirement, have)]
    if not lacking:
        return
    try:
        install.install_sync(session, lacking)
    except MCPError as e:
        e.args = ("the code did not run, because its header asks for packages that are not installed (%s): %s" % (", ".join(lacking), e),)
        raise
