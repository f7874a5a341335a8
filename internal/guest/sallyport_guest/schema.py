"""The arguments of a tool, by its input schema: order, checks, signature.

The checks are those that catch a mistake before a round trip. What they do not
understand they let pass: the server has the last word.
"""

from . import BUILTINS as __builtins__

from .errors import ArgumentError

TYPES = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}
NAMES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict", "null": "None"}
PLAIN = (str, int, float, bool, list, tuple, dict, type(None))


class Parameters:
    """What a tool takes."""

    def __init__(self, schema):
        if not isinstance(schema, dict):
            schema = {}
        properties = schema.get("properties")
        self.properties = properties if isinstance(properties, dict) else {}
        required = schema.get("required")
        required = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        self.required = [name for name in self.properties if name in required]
        self.required += [name for name in required if name not in self.properties]
        self.order = self.required + [name for name in self.properties if name not in self.required]
        self.closed = (
            schema.get("additionalProperties") is False
            and not schema.get("patternProperties")
            and not any(key in schema for key in ("allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas"))
        )

    def bind(self, label, args, kwargs):
        """The arguments object of a call. label is the tool's name for people."""
        if len(args) > len(self.order):
            raise self.error(
                label,
                "%d positional arguments, where %s" % (len(args), "at most %d can be" % len(self.order) if self.order else "none can be"),
            )
        arguments = {}
        for name, value in zip(self.order, args):
            if name in kwargs:
                raise self.error(label, "argument %r is given twice" % name)
            arguments[name] = value
        arguments.update(kwargs)
        unknown = [name for name in kwargs if name not in self.order]
        missing = [name for name in self.required if name not in arguments]
        if missing or unknown and self.closed:
            problems = ["there is no argument %r%s" % (name, similar(name, self.order)) for name in unknown]
            if missing:
                problems.append("missing %s" % ", ".join(map(repr, missing)))
            raise self.error(label, "; ".join(problems))
        for name, value in arguments.items():
            problem = check(value, self.properties.get(name))
            if problem:
                if value is None and name not in self.required:
                    problem += "; leave it out instead"
                raise self.error(label, "argument %r %s" % (name, problem))
        return arguments

    def error(self, label, problem):
        return ArgumentError("%s: %s. Signature: %s" % (label, problem, self.signature(label)), kind="invalid")

    def signature(self, label):
        parts = []
        for name in self.order:
            kind = type_name(self.properties.get(name))
            text = "%s: %s" % (name, kind) if kind else name
            if name not in self.required:
                default = self.default(name)
                text += " = " + ("..." if default is ... else repr(default))
            parts.append(text)
        return "%s(%s)" % (label, ", ".join(parts))

    def default(self, name):
        """What the schema says that leaving the argument out means, or ..."""
        schema = self.properties.get(name)
        return schema.get("default", ...) if isinstance(schema, dict) else ...

    def inspected(self):
        """The same as inspect.signature gives it."""
        from inspect import Parameter, Signature
        from keyword import iskeyword

        parameters = []
        for name in self.order:
            if not name.isidentifier() or iskeyword(name):
                continue  # only by **{"name": value}
            default = Parameter.empty if name in self.required else self.default(name)
            annotation = annotation_of(self.properties.get(name))
            parameters.append(
                Parameter(
                    name,
                    Parameter.POSITIONAL_OR_KEYWORD,
                    default=default,
                    annotation=Parameter.empty if annotation is None else annotation,
                )
            )
        if not self.closed:
            parameters.append(Parameter("more" if "more" not in self.order else "_more", Parameter.VAR_KEYWORD))
        return Signature(parameters)


def kinds(schema):
    """The types that a schema names, or None."""
    if not isinstance(schema, dict):
        return None
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    if isinstance(kind, list):
        return [k for k in kind if isinstance(k, str)]
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list):
            found = []
            for option in options:
                more = kinds(option)
                if more is None:
                    return None
                found += [k for k in more if k not in found]
            return found
    return None


def type_name(schema):
    found = kinds(schema)
    if not found:
        return ""
    return " | ".join(NAMES.get(kind, kind) for kind in found)


def annotation_of(schema):
    found = kinds(schema)
    if not found or len(found) != 1 or found[0] not in NAMES:
        return None
    return {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}.get(found[0])


def check(value, schema):
    """What is wrong with a value, or ""."""
    if not isinstance(schema, dict) or not isinstance(value, PLAIN):
        return ""  # of a type that is converted on its way
    options = schema.get("enum")
    if isinstance(options, list) and options:
        if not any(same(value, option) for option in options):
            return "must be one of %s, not %s" % (", ".join(map(short, options)), short(value))
        return ""
    if "const" in schema and not same(value, schema["const"]):
        return "must be %s, not %s" % (short(schema["const"]), short(value))
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            problems = [check(value, option) for option in schema[key]]
            if all(problems):
                return problems[0] if len(problems) == 1 else "fits none of the %d forms that it may have: it %s" % (
                    len(problems),
                    ", or ".join(dict.fromkeys(problems)),
                )
    found = kinds(schema) if "type" in schema else None
    if found and not any(fits(value, kind) for kind in found):
        return "must be %s, not %s %s" % (" or ".join(NAMES.get(k, k) for k in found), type(value).__name__, short(value))
    return ""


def fits(value, kind):
    if kind not in TYPES:
        return True
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[kind])


def same(a, b):
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def short(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def similar(name, names):
    from difflib import get_close_matches

    found = get_close_matches(name, names, 1)
    return "; did you mean %r?" % found[0] if found else ""
