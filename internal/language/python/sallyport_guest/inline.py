"""The header of code that names the packages it needs (PEP 723). The host reads it."""

from . import BUILTINS as __builtins__

import operator
import re
import sys

from .errors import MCPError

START = re.compile(r"(?m)^# /// script[ \t]*\r?$")
AFTER = re.compile(r"^[A-Za-z0-9._-]*\s*(\[[^\]]*\])?")  # what a requirement begins with
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


def applies(marker):
    """Report whether a marker holds here, or cannot be read. It is written like Python."""
    import ast

    from .target import target

    def value(node):
        return node.value if isinstance(node, ast.Constant) else here[node.id]

    def holds(node):
        if isinstance(node, ast.BoolOp):
            return (all if isinstance(node.op, ast.And) else any)([holds(n) for n in node.values])
        (sign,), (right,) = node.ops, node.comparators
        left, right = value(node.left), value(right)
        if isinstance(sign, (ast.In, ast.NotIn)):
            return (left in right) == isinstance(sign, ast.In)
        if getattr(node.left, "id", "") in ("python_version", "python_full_version"):
            return fits(SIGNS[type(sign)] + right, numbers(left))
        return (left == right) == {ast.Eq: True, ast.NotEq: False}[type(sign)]

    if not marker.strip():
        return True
    SIGNS = {ast.GtE: ">=", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.Gt: ">", ast.Lt: "<"}
    here = {**target()["markers"], "extra": ""}
    try:
        return holds(ast.parse(marker.strip(), mode="eval").body)
    except (AttributeError, KeyError, SyntaxError, TypeError, ValueError, MemoryError, RecursionError):
        return True


def numbers(version):
    return tuple(map(int, RELEASE.match(version).group(1).split(".")))


def lacks(requirement, have):
    """Report whether a requirement is not there. It is where that is not certain."""
    from .install import name_of, normalised

    wanted, _, marker = requirement.partition(";")
    if not applies(marker):
        return False
    version = have.get(normalised(name_of(wanted)))
    if version is None:
        return True
    clauses = AFTER.sub("", wanted.strip()).strip().strip("()")
    if RELEASE.match(version) and not fits(clauses, numbers(version)):
        raise MCPError("the code did not run: its header asks for %s, and version %s is there, which is kept: ask for a version that fits it, or use an environment" % (requirement, version), kind="invalid")
    return False


def prepare(session, source):
    """Install what the header of an agent's code asks for and is missing, before it runs."""
    from . import install

    if session.scripted or sys.argv[:1] == ["-"]:  # a person's program, for which the host has read it
        return
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
