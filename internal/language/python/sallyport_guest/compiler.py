"""Compiling code: its statements, and a last expression whose value is shown."""

from . import BUILTINS as __builtins__

ONLY_AST, ALLOW_TOP_LEVEL_AWAIT = 0x400, 0x2000  # of module ast, which is slow to import
# The names of print_last and print_perhaps, which no code can say.
PRINT, PERHAPS = "<print>", "<print?>"


def compile_source(source, filename, echo):
    """Compile the statements and, if echo is set, a last expression whose value is
    shown."""
    flags = ALLOW_TOP_LEVEL_AWAIT
    if not echo:
        return compile(source, filename, "exec", flags, True), None
    start = last_line(source)
    if start >= 0:
        # Perhaps an expression begins here: this takes a third of the time that a tree does.
        try:
            expression = source[start:]
            last = compile("\n" * source.count("\n", 0, start) + expression, filename, "eval", flags, True)
            # What precedes it is complete, or it cannot be compiled.
            code = compile(source[:start], filename, "exec", flags, True) if start else None
            return code, prints_last(expression.rstrip(), last)
        except Exception:
            pass
    tree = compile(source, filename, "exec", flags | ONLY_AST, True)
    from _ast import Expr, Expression

    body = tree.body
    last = None
    if body and isinstance(body[-1], Expr) and not ends_in_semicolon(source, body[-1]):
        last = body.pop().value
        function = getattr(last, "func", None)
        if getattr(function, "id", None) == "print":
            function.id = PRINT
        last = compile(Expression(last), filename, "eval", flags, True)
    code = compile(tree, filename, "exec", flags, True) if body else None
    return code, last


# What a line begins with that does not begin an expression, or may continue one.
CONTINUED = frozenset(" \t\f\n#)]}\"'")
STATEMENTS = (
    "@", "assert ", "async ", "class ", "def ", "del ", "elif ", "else:", "except", "finally:", "for ", "from ", "global ", "if ", "import ",
    "pass", "raise ", "return ", "try:", "while ", "with ",
)  # fmt: skip


def last_line(source):
    """Return where the last line begins that may be the first one of an expression, or -1.
    This only finds what is worth trying."""
    end = len(source)
    while True:
        start = source.rfind("\n", 0, end) + 1
        first = source[start : start + 1]
        if first and first not in CONTINUED:
            break
        if start == 0:
            return -1
        end = start - 1
    # A warning about a backslash would appear twice, and a carriage return may end a line.
    if source.find("\\", max(start - 2, 0)) >= 0 or "\r" in source or source.startswith(STATEMENTS, start):
        return -1
    target, equals, value = source[start:end].partition("=")
    if equals and value[:1] != "=" and target[-1:] not in "!<>" and target.count("(") == target.count(")"):
        return -1  # an assignment
    return start


def prints_last(source, last):
    """Let an expression that calls print first call print_last instead."""
    if source.startswith("print(") and last.co_names[:1] == ("print",) and source.count("print") == 1:
        # Where all parentheses close at the end, the last one is that of the call.
        whole = source.endswith(")") and "(" not in source[source.find(")") :] and "#" not in source
        return last.replace(co_names=(PRINT if whole else PERHAPS, *last.co_names[1:]))
    return last


def ends_in_semicolon(source, node):
    """Whether a semicolon after the last statement asks for silence."""
    if ";" not in source:
        return False
    lines = source.encode("utf-8", "replace").splitlines()[node.end_lineno - 1 :]
    lines[0] = lines[0][node.end_col_offset :]
    return any(b";" in line.partition(b"#")[0] for line in lines)
