"""The program's own process: it becomes the user's code and nothing else."""

import ast
import builtins
import json
import linecache
import os
import sys
import types

ASYNC = 0x80  # inspect.CO_COROUTINE


def parts(source, filename, script):
    """Code for the statements, and for a last expression to show, if any."""
    flags = 0 if script else ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    if script:
        return compile(source, filename, "exec", flags, True), None
    tree = compile(source, filename, "exec", flags | ast.PyCF_ONLY_AST, True)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not silenced(source, tree.body[-1]):
        last = compile(ast.Expression(tree.body.pop().value), filename, "eval", flags, True)
    return compile(tree, filename, "exec", flags, True), last


def silenced(source, node):
    """Whether a semicolon follows the last statement."""
    lines = source.encode("utf-8", "replace").splitlines()[node.end_lineno - 1:]
    lines[0] = lines[0][node.end_col_offset:]
    return any(b";" in line.partition(b"#")[0] for line in lines)


def hook(ours):
    """A sys.excepthook that leaves out this file's frames."""

    def show(kind, error, trace):
        import traceback

        while trace is not None and trace.tb_frame.f_code.co_filename == ours:
            trace = trace.tb_next
        traceback.print_exception(kind, error, trace)

    return show


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        config = json.load(f)
    path, filename = config["path"], config["filename"]
    with open(path, encoding="utf-8-sig", newline="") as f:  # a mark of the encoding is no code
        source = f.read()
    # The code's lines, under the name that the user knows it by.
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    sys.argv = [filename] + config["args"]
    sys.path[0] = config["workspace"]
    module = types.ModuleType("__main__")
    # The real path: a process that is spawned reads it again.
    module.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = module
    sys.excepthook = hook(__file__)
    namespace = module.__dict__
    code, last = parts(source, filename, config["script"])
    if (code.co_flags | (last.co_flags if last else 0)) & ASYNC:
        import asyncio

        asyncio.run(awaiting(code, last, namespace))
        return
    exec(code, namespace)
    if last is not None:
        sys.displayhook(eval(last, namespace))


async def awaiting(code, last, namespace):
    running = eval(code, namespace)
    if code.co_flags & ASYNC:
        await running
    if last is not None:
        value = eval(last, namespace)
        if last.co_flags & ASYNC:
            value = await value
        sys.displayhook(value)


if __name__ == "__main__":
    main()
