"""Code as models send it: within Markdown fences, indented as a whole, or a question as in
a notebook."""

from . import BUILTINS as __builtins__


def bare(source):
    """Return the source without its fences or indentation, with the same line
    numbers, or help(NAME) for NAME?; None for other code."""
    asked = source.strip().strip("?").strip()
    if "?" in source and all(part.isidentifier() for part in asked.split(".")):
        return "help(%s)" % asked
    lines = source.replace("\r\n", "\n").split("\n")
    before = list(lines)
    shown = [i for i, line in enumerate(lines) if line.strip()]
    if not shown:
        return None
    fence = opening(lines[shown[0]])
    if fence:
        lines[shown[0]] = ""
        if len(shown) > 1 and lines[shown[-1]].strip() == fence:
            lines[shown[-1]] = ""
            shown.pop()
        shown.pop(0)
    if shown:
        first = lines[shown[0]]
        indent = first[: len(first) - len(first.lstrip())]
        # A line that has less is in a string, or an error.
        lines = [line[len(indent) :] if line.startswith(indent) else line for line in lines]
    return "\n".join(lines) if lines != before else None


def opening(line):
    """Return the fence that a line opens, or an empty string."""
    line = line.strip()
    for mark in "`~":
        fence = line[: len(line) - len(line.lstrip(mark))]
        language = line[len(fence) :].strip()
        if len(fence) >= 3 and (not language or language.replace("-", "").replace("+", "").isalnum()):
            return fence
    return ""
