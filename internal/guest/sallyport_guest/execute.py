"""One execution: compile, run, echo, and say how it ended."""

from . import BUILTINS as __builtins__

import sys
from types import CoroutineType, ModuleType

from _ast import Expr, Expression, PyCF_ALLOW_TOP_LEVEL_AWAIT, PyCF_ONLY_AST

NAME = "__sandbox__"


def namespace():
    """The namespace of user code: a module, so that what is defined in it can
    be found again by pickle, dataclasses and typing."""
    module = ModuleType(NAME)
    sys.modules[NAME] = module
    return vars(module)


def compile_source(source, filename):
    """Code for the statements, and for a last expression whose value is shown."""
    flags = PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(source, filename, "exec", flags | PyCF_ONLY_AST, True)
    body = tree.body
    last = None
    if body and isinstance(body[-1], Expr) and not ends_in_semicolon(source, body[-1]):
        last = compile(Expression(body.pop().value), filename, "eval", flags, True)
    code = compile(tree, filename, "exec", flags, True) if body else None
    return code, last


def ends_in_semicolon(source, node):
    """Whether a semicolon after the last statement asks for silence."""
    if ";" not in source:
        return False
    rest = source.split("\n")[node.end_lineno - 1 :]
    rest[0] = rest[0].encode()[node.end_col_offset :].decode()
    return any(";" in line.partition("#")[0] for line in rest)


def run(session, source, filename):
    """Run source. The status and the exit code of the execution."""
    try:
        code, last = compile_source(source, filename)
    except BaseException as e:
        return report(e)
    try:
        session.interruptible = True
        if code is not None:
            exec(code, session.namespace)
        if last is not None:
            value = eval(last, session.namespace)
            if value is not None:
                sys.displayhook(value)
        session.interruptible = False
    except BaseException as e:
        session.interruptible = False
        return report(e)
    return "ok", 0


def report(e):
    import traceback

    traceback.print_exception(type(e), e, e.__traceback__)
    return "error", 1
