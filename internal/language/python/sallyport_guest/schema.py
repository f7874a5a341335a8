"""The arguments of a tool according to its input schema: their order, and how a
call passes them."""

from . import BUILTINS as __builtins__

from .errors import ArgumentError, similar
from .validate import COMBINED, NAMES, Checker, exact_types, short

FLAT = frozenset(("$schema", "$id", "title", "description", "type", "properties", "required", "additionalProperties", "$defs", "definitions"))
LEARNED = "  # learned"  # behind a signature whose result was learned from calls
MAX_SHOWN = 60  # characters of a default, and of the values of an enum
MAX_MERGED = 20  # schemas merged into the root
MAX_FIELDS = 200  # lines about arguments


class Omitted:
    """The default of an argument that may be left out, if the schema does not say what
    that means."""

    def __repr__(self):
        return "..."


OMITTED = Omitted()


class Annotation(str):
    """A type that inspect shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


class Parameters:
    """What a tool takes. The host sends the signature, and how a call writes the
    arguments whose names are not identifiers."""

    def __init__(self, schema, signature=None, renamed=None):
        if not isinstance(schema, dict):
            schema = {}
        self.schema = schema
        self.text = signature
        self.written = renamed or {}
        self.checker = Checker(schema)
        self.properties = {}
        required = []
        self.gather(schema, required, True, [])
        self.required = [name for name in self.properties if name in required]
        self.required += [name for name in required if name not in self.properties]
        self.order = self.required + [name for name in self.properties if name not in self.required]
        self.known = frozenset(self.order)
        self.closed = (
            schema.get("additionalProperties") is False
            and not schema.get("patternProperties")
            and not any(key in schema for key in COMBINED)
        )
        # The names of all arguments, where the schema neither allows nor forbids
        # others.
        stated = ("additionalProperties", "patternProperties", *COMBINED)
        self.listed = self.known if self.known and not any(key in schema for key in stated) else None
        # Types by name, if the root says nothing else about its properties.
        self.flat = None
        if FLAT.issuperset(schema) and schema.get("type") == "object" and isinstance(schema.get("additionalProperties", True), bool):
            self.flat = {name: exact_types(of) for name, of in self.properties.items()}
        self.meant = {written: name for name, written in self.written.items()}

    def gather(self, schema, required, always, seen):
        """Collect the properties that a schema names, and those of the schemas that it
        is composed of. always says whether it applies to every call."""
        if not isinstance(schema, dict) or any(schema is s for s in seen) or len(seen) > MAX_MERGED:
            return
        seen.append(schema)
        properties = schema.get("properties")
        if isinstance(properties, dict):
            for name, of in properties.items():
                self.properties.setdefault(name, of)
        names = schema.get("required")
        if always and isinstance(names, list):
            for name in names:
                if isinstance(name, str) and name not in required:
                    required.append(name)
        if "$ref" in schema:
            self.gather(self.checker.references.resolve(schema["$ref"]), required, always, seen)
        for key in ("allOf", "anyOf", "oneOf"):
            parts = schema.get(key)
            for part in parts if isinstance(parts, list) else ():
                self.gather(part, required, always and key == "allOf", seen)

    def bind(self, label, args, kwargs):
        """Return the arguments object of a call. label is the tool's name for
        people."""
        if len(args) > len(self.order):
            most = "at most %d can be" % len(self.order) if self.order else "none can be"
            raise self.error(label, "%d positional arguments, where %s" % (len(args), most))
        arguments = dict(zip(self.order, args)) if args else {}
        for name, value in kwargs.items():
            if name not in self.properties:
                name = self.meant.get(name, name)
            if name in arguments:
                raise self.error(label, "argument %r is given twice" % name)
            arguments[name] = value
        missing = [name for name in self.required if name not in arguments]
        unknown = [name for name in arguments if name not in self.known] if self.closed or missing else ()
        if missing or unknown:
            problems = ["there is no argument %r%s" % (name, similar(name, self.order)) for name in unknown]
            if missing:
                problems.append("missing %s" % ", ".join(map(repr, missing)))
            raise self.error(label, "; ".join(problems))
        flat = self.flat
        if flat is not None:
            for name, value in arguments.items():
                if name in flat and type(value) not in flat[name]:
                    break
            else:
                return arguments
        problem = self.checker.problem(arguments, self.schema)
        if problem is not None:
            raise self.error(label, self.told(problem, arguments))
        return arguments

    def told(self, problem, arguments):
        if not problem.path:
            return "the arguments object %s" % problem.text
        text = "argument %r %s" % (problem.place(), problem.text)
        name = problem.path[-1]
        if len(problem.path) == 1 and arguments.get(name, ...) is None and name not in self.required:
            text += "; leave it out instead"
        return text

    def error(self, label, problem):
        return ArgumentError("%s: %s. Signature: %s" % (label, problem, self.signature(label)), kind="invalid")

    # For people.

    def signature(self, label):
        """Return the call's signature."""
        return label + (self.text or self.names())

    def brief(self, label):
        """The call with its required arguments only."""
        names = [self.written.get(name, name) for name in self.required]
        return "%s(%s)" % (label, ", ".join(names + ["..."] * (len(self.order) > len(names))))

    def names(self):
        """Return the names of the arguments, if the host sent no signature."""
        names = ("%s%s" % (self.written.get(name, name), "" if name in self.required else "=...") for name in self.order)
        return "(%s)" % ", ".join(names)

    def default(self, name):
        """Return the schema's default for an argument, or OMITTED."""
        schema = self.properties.get(name)
        return schema.get("default", OMITTED) if isinstance(schema, dict) else OMITTED

    def annotations(self):
        """Return the types in the signature, by the names that it shows. None if it
        leaves arguments out."""
        from ast import parse, unparse

        try:
            text = (self.text or "()")
            text = text[: -len(LEARNED)] if text.endswith(LEARNED) else text
            arguments = parse("def f%s: pass" % text).body[0].args.args
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return {}
        return {a.arg: unparse(a.annotation) for a in arguments if a.annotation}

    def inspected(self):
        """Return the same as inspect.signature."""
        from inspect import Parameter, Signature

        parameters = []
        skipped = False
        annotations = self.annotations()
        for name in self.order:
            written = self.written.get(name, name)
            if not is_name(written):
                skipped = True  # only by **{"name": value}
                continue
            kind = annotations.get(written)
            parameters.append(
                Parameter(
                    written,
                    Parameter.POSITIONAL_OR_KEYWORD,
                    default=Parameter.empty if name in self.required else self.default(name),
                    annotation=PLAIN.get(kind, Annotation(kind)) if kind else Parameter.empty,
                )
            )
        if skipped or not self.closed:
            taken = {p.name for p in parameters}
            more = "more"
            while more in taken:
                more = "_" + more
            parameters.append(Parameter(more, Parameter.VAR_KEYWORD))
        return Signature(parameters)

    def described(self):
        """Return lines about the arguments and what they contain. The types and
        defaults of the arguments are in the signature."""
        lines = []
        for name in self.order:
            self.describe(name, self.properties.get(name), "  ", name in self.required, lines, ())
        if len(lines) > MAX_FIELDS:
            lines[MAX_FIELDS:] = ["  ..."]
        return lines

    def describe(self, name, schema, indent, required, lines, within):
        if len(lines) > MAX_FIELDS:
            return
        target = self.target(schema)
        text = indent + name
        if within:
            kind = self.type_name(schema)
            text += ": " + kind if kind else ""
            default = target.get("default", OMITTED) if isinstance(target, dict) else OMITTED
            if not required:
                text += " = " + shown_default(default)
        for said in (schema, target):
            if isinstance(said, dict) and isinstance(said.get("description"), str):
                text += " -- " + " ".join(said["description"].split())
                break
        lines.append(text)
        inner = self.target(target.get("items")) if isinstance(target, dict) and isinstance(target.get("items"), dict) else target
        if not isinstance(inner, dict) or len(within) >= 3 or any(inner is s for s in within):
            return
        properties, names = inner.get("properties"), inner.get("required")
        names = names if isinstance(names, list) else ()
        if isinstance(properties, dict):
            for member, of in properties.items():
                self.describe(member, of, indent + "    ", member in names, lines, (*within, inner))

    def target(self, schema):
        """Return the schema that a reference leads to; any other as it is."""
        for _ in range(10):
            if not isinstance(schema, dict) or "$ref" not in schema:
                break
            schema = self.checker.references.resolve(schema["$ref"])
        return schema

    def type_name(self, schema, depth=0):
        """Return a schema's type as Python would write it, or nothing."""
        schema = self.target(schema)
        if not isinstance(schema, dict) or depth > 4:
            return ""
        options = schema.get("enum") if "enum" in schema else [schema["const"]] if "const" in schema else None
        if isinstance(options, list) and options:
            shown = ", ".join(map(repr, options)) if len(options) <= 20 else ""
            if shown and len(shown) <= MAX_SHOWN:
                return "Literal[%s]" % shown
            return " | ".join(dict.fromkeys("None" if o is None else type(o).__name__ for o in options))
        kind = schema.get("type")
        kinds = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else []
        names = [self.named(k, schema, depth) for k in kinds if isinstance(k, str)]
        if not names:
            for key in ("anyOf", "oneOf", "allOf"):
                options = schema.get(key)
                if isinstance(options, list) and options:
                    names = [self.type_name(option, depth + 1) for option in options]
                    if key == "allOf":
                        names = [n for n in names if n][:1]
                    elif not all(names):
                        return ""
                    break
            else:
                if isinstance(schema.get("properties"), dict):
                    names = ["dict"]
                elif "items" in schema:
                    names = [self.named("array", schema, depth)]
        if schema.get("nullable") is True and names:
            names.append("None")
        parts = [part for name in names for part in split(name)]
        return " | ".join(dict.fromkeys(parts))

    def named(self, kind, schema, depth):
        if kind == "array":
            inner = self.type_name(schema.get("items"), depth + 1)
            return "list[%s]" % inner if inner and len(inner) <= MAX_SHOWN else "list"
        if kind == "object" and not schema.get("properties"):
            inner = self.type_name(schema.get("additionalProperties"), depth + 1)
            return "dict[str, %s]" % inner if inner and len(inner) <= MAX_SHOWN else "dict"
        return NAMES.get(kind, kind)


PLAIN = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}


def split(name):
    """Return the parts of a union, but not those within brackets."""
    return name.split(" | ") if "[" not in name else [name]


def shown_default(default):
    return short(default) if default is not OMITTED else "..."


def is_name(name):
    from keyword import iskeyword

    return name.isidentifier() and not iskeyword(name)
