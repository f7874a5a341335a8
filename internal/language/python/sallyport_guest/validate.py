"""Values against JSON schemas: drafts 4 to 2020-12, and what real servers send.

What this does not understand passes, and so does what would take too long: the
server has the last word. What it refuses is wrong according to the schema itself.
"""

from . import BUILTINS as __builtins__

from . import values
from .errors import similar
from .interrupt import call

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
# Together with one of these, additionalProperties alone does not say which
# names are allowed.
COMBINED = ("allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "if", "dependentSchemas", "dependencies")

MAX_STEPS = 500_000  # of which a schema takes ten, and a member of a value one
MAX_DEPTH = 64
LONG = 64 << 10  # no pattern is matched against longer strings


class Enough(Exception):
    """Checking takes too long."""


class Problem:
    """What is wrong, and where: a path within the value."""

    __slots__ = ("path", "text", "form")

    def __init__(self, text, form=None):
        self.path = []  # from the inside out
        self.text = text
        self.form = form  # "type" or "value" if another form may be meant

    def elsewhere(self):
        """Whether the value was probably meant to have another form."""
        return self.form == "type" and not self.path or self.form == "value" and len(self.path) <= 1

    def under(self, step):
        self.path.append(step)
        return self

    def place(self):
        text = ""
        for step in reversed(self.path):
            if isinstance(step, int):
                text += "[%d]" % step
            elif not text:
                text = str(step)
            else:
                text += "." + str(step) if str(step).isidentifier() else "[%r]" % (step,)
        return text


class References:
    """The targets of a document's references."""

    def __init__(self, root):
        self.root = root
        declared = root.get("$schema") if isinstance(root, dict) else None
        # Up to draft 7, nothing next to a reference counts.
        self.alone = isinstance(declared, str) and any(d in declared for d in ("draft-03", "draft-04", "draft-06", "draft-07"))
        self.found = {}

    def resolve(self, reference):
        """Return the schema, or None."""
        if not isinstance(reference, str):
            return None
        if reference not in self.found:
            self.found[reference] = self.find(reference)
        return self.found[reference]

    def find(self, reference):
        document, _, fragment = reference.partition("#")
        base = self.root
        if document and document != self.identity(self.root):
            base = self.search(lambda s: self.identity(s) in (document, reference))
        if base is None or not fragment:
            return base
        if not fragment.startswith("/"):
            return self.search(lambda s: fragment in (s.get("$anchor"), s.get("$dynamicAnchor")) or self.identity(s) == "#" + fragment)
        if "%" in fragment:
            from urllib.parse import unquote

            fragment = unquote(fragment)
        for part in fragment[1:].split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            try:
                base = base[int(part)] if isinstance(base, list) else base[part]
            except (KeyError, IndexError, ValueError, TypeError):
                return None
        return base if isinstance(base, (dict, bool)) else None

    @staticmethod
    def identity(schema):
        found = schema.get("$id", schema.get("id")) if isinstance(schema, dict) else None
        return found if isinstance(found, str) else None

    def search(self, wanted):
        """Return the first schema in the document for which wanted is true."""
        pending, left = [self.root], 20_000
        while pending and left:
            left -= 1
            item = pending.pop()
            if isinstance(item, dict):
                if wanted(item):
                    return item
                pending += reversed(list(item.values()))
            elif isinstance(item, list):
                pending += reversed(item)
        return None


# A schema with only these members specifies just a type.
HARMLESS = frozenset(
    ("type", "description", "title", "default", "examples", "format", "$comment", "deprecated", "readOnly", "writeOnly", "x-order")
)
EXACT = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),)}


def exact_types(schema):
    """Return the types that a value may have, if nothing else is to be checked."""
    if isinstance(schema, dict) and isinstance(schema.get("type"), str) and HARMLESS.issuperset(schema):
        return EXACT.get(schema["type"], ())
    return ()


class Members:
    """What a schema says about an object's members, parsed once."""

    __slots__ = ("properties", "consts", "required", "patterns", "more", "names", "plain")

    def __init__(self, schema):
        properties = schema.get("properties")
        self.properties = properties if isinstance(properties, dict) else {}
        # Those that tell which of several forms is meant.
        self.consts = [name for name, of in self.properties.items() if isinstance(of, dict) and "const" in of]
        required = schema.get("required")
        self.required = [name for name in required if isinstance(name, str)] if isinstance(required, list) else ()
        patterns = schema.get("patternProperties")
        self.patterns = list(patterns.items()) if isinstance(patterns, dict) else ()
        self.more = schema.get("additionalProperties", True)
        if self.more is False and any(key in schema for key in COMBINED):
            self.more = True
        self.names = schema.get("propertyNames")
        others = ("minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies")
        self.plain = not any(key in schema for key in others)


class Checker:
    """Checks values against a document and the schemas in it."""

    def __init__(self, root):
        self.references = References(root)
        self.steps = 0
        # By the identity of schemas, which the document keeps alive.
        self.exact = {}
        self.taken_apart = {}

    def problem(self, value, schema):
        """Return the Problem of a value, or None."""
        self.steps = 0
        try:
            return self.check(value, schema, 0)
        except (Enough, RecursionError):
            return None

    def spend(self, steps):
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise Enough

    def check(self, value, schema, depth):
        exact = self.exact.get(id(schema))
        if exact is None:
            self.exact[id(schema)] = exact = exact_types(schema)
        if type(value) in exact:
            return None
        if schema is False:
            return Problem("is not allowed here")
        if not isinstance(schema, dict) or not schema:
            return None
        self.spend(10)
        if depth > MAX_DEPTH:
            return None
        if not isinstance(value, PLAIN):
            # It is converted when it is sent.
            try:
                value = values.sendable(value)
            except Exception:
                return None
            if not isinstance(value, PLAIN):
                return None
        if "$ref" in schema or "$dynamicRef" in schema:
            for key in ("$ref", "$dynamicRef"):
                if key in schema:
                    found = self.check(value, self.references.resolve(schema[key]), depth + 1)
                    if found or self.references.alone:
                        return found
        if value is None and (schema.get("nullable") is True or schema.get("default", ...) is None):
            return None
        found = simple(value, schema)
        if found is not None:
            return found
        if isinstance(value, str):
            found = text(value, schema)
        elif isinstance(value, dict):
            found = self.members(value, schema, depth)
        elif isinstance(value, (list, tuple)):
            found = self.items(value, schema, depth)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found = number(value, schema)
        if found is None and not HARMLESS.issuperset(schema):
            found = self.combined(value, schema, depth)
        return found

    def combined(self, value, schema, depth):
        options = schema.get("allOf")
        if isinstance(options, list):
            for option in options:
                found = self.check(value, option, depth + 1)
                if found:
                    return found
        for key in ("anyOf", "oneOf"):
            options = schema.get(key)
            if isinstance(options, list) and options:
                found = self.some(value, options, depth)
                if found:
                    return found
        if "not" in schema and self.understood(schema["not"]) and self.check(value, schema["not"], depth + 1) is None:
            return Problem("must not be %s" % short(value))
        if "if" in schema and self.understood(schema["if"]):
            branch = "else" if self.check(value, schema["if"], depth + 1) else "then"
            return self.check(value, schema.get(branch), depth + 1)
        return None

    def understood(self, schema):
        """Whether this checks everything that a schema says: only then does passing
        mean that the value is one of those intended."""
        if isinstance(schema, bool):
            return True
        return isinstance(schema, dict) and all(
            key in ("type", "enum", "const", "required", "title", "description", "minimum", "maximum", "minLength", "maxLength")
            or key == "properties"
            and isinstance(part, dict)
            and all(self.understood(s) for s in part.values())
            for key, part in schema.items()
        )

    def some(self, value, options, depth):
        """anyOf, and oneOf, which servers write when they mean anyOf: they have to cope
        with a value that fits two forms."""
        problems = []
        for option in options:
            found = self.check(value, option, depth + 1)
            if found is None:
                return None
            problems.append(found)
        meant = [p for p in problems if not p.elsewhere()]
        if len(problems) == 1 or len(meant) == 1:
            return (meant or problems)[0]
        sentences = ["%r %s" % (p.place(), p.text) if p.path else p.text for p in meant or problems]
        sentences = list(dict.fromkeys(sentences))
        more = ", or …" if len(sentences) > 4 else ""
        return Problem(
            "fits none of the %d permitted forms: it %s%s" % (len(problems), ", or ".join(sentences[:4]), more),
            form="type" if not meant else None,
        )

    def members(self, value, schema, depth):
        says = self.taken_apart.get(id(schema))
        if says is None:
            self.taken_apart[id(schema)] = says = Members(schema)
        properties = says.properties
        for name in says.consts:
            if name in value:
                found = self.check(value[name], properties[name], depth + 1)
                if found:
                    return found.under(name)
        missing = [name for name in says.required if name not in value]
        if missing:
            return Problem("lacks %s" % ", ".join(map(repr, missing)))
        patterns, more, names = says.patterns, says.more, says.names
        self.spend(len(value))
        for name, member in value.items():
            found = None
            known = name in properties
            if known:
                found = self.check(member, properties[name], depth + 1)
            for pattern, option in patterns:
                matches = matched(pattern, str(name))
                known = known or matches is not False
                if matches:
                    found = found or self.check(member, option, depth + 1)
            if not known and more is not True:
                if more is False:
                    return Problem("has no member %r%s" % (name, similar(str(name), properties)))
                found = self.check(member, more, depth + 1)
            if found:
                return found.under(name)
            if names is not None:
                found = self.check(name, names, depth + 1)
                if found:
                    return Problem("has the name %r, which %s" % (name, found.text))
        if says.plain:
            return None
        found = count(len(value), schema, "minProperties", "maxProperties", "members")
        return found or self.dependent(value, schema, depth)

    def dependent(self, value, schema, depth):
        for key in ("dependentRequired", "dependentSchemas", "dependencies"):
            rules = schema.get(key)
            if not isinstance(rules, dict):
                continue
            for name, rule in rules.items():
                if name not in value:
                    continue
                if isinstance(rule, list):
                    missing = [n for n in rule if isinstance(n, str) and n not in value]
                    if missing:
                        return Problem("has %r and lacks %s" % (name, ", ".join(map(repr, missing))))
                else:
                    found = self.check(value, rule, depth + 1)
                    if found:
                        return found
        return None

    def items(self, value, schema, depth):
        found = count(len(value), schema, "minItems", "maxItems", "items")
        if found:
            return found
        self.spend(len(value))
        first, rest = schema.get("prefixItems"), schema.get("items")
        if isinstance(rest, list):
            first, rest = rest, schema.get("additionalItems")
        first = first if isinstance(first, list) else []
        if first or rest is not None:
            for i, item in enumerate(value):
                found = self.check(item, first[i] if i < len(first) else rest, depth + 1)
                if found:
                    return found.under(i)
        if schema.get("uniqueItems") is True and len(value) <= 1000 and repeated(value):
            return Problem("must not have an item twice")
        wanted = schema.get("contains")
        if wanted is not None and self.understood(wanted):
            n = sum(self.check(item, wanted, depth + 1) is None for item in value)
            return count(n, {"minContains": 1, **schema}, "minContains", "maxContains", "items of a certain form")
        return None


def simple(value, schema):
    """type, enum and const."""
    options = schema.get("enum")
    if isinstance(options, list) and options and not any(same(value, option) for option in options):
        shown = ", ".join(map(short, options[:20])) + (" …" if len(options) > 20 else "")
        return Problem("must be one of %s, not %s" % (shown, short(value)), form="value")
    if "const" in schema and not same(value, schema["const"]):
        return Problem("must be %s, not %s" % (short(schema["const"]), short(value)), form="value")
    kind = schema.get("type")
    if kind is None or isinstance(kind, str) and fits(value, kind):
        return None
    kinds = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else ()
    kinds = [k for k in kinds if isinstance(k, str)]
    if kinds and not any(fits(value, k) for k in kinds):
        wanted = " or ".join(NAMES.get(k, k) for k in kinds)
        return Problem("must be %s, not %s %s" % (wanted, type(value).__name__, short(value)), form="type")
    return None


def fits(value, kind):
    if kind not in TYPES:
        return True
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[kind])


def same(a, b):
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


def repeated(items):
    seen = []
    for item in items:
        if any(same(item, other) for other in seen):
            return True
        seen.append(item)
    return False


def bound(schema, key):
    """Return a number in a schema, or None."""
    n = schema.get(key)
    return n if isinstance(n, (int, float)) and not isinstance(n, bool) else None


def count(n, schema, least, most, of):
    if least not in schema and most not in schema:
        return None
    low, high = bound(schema, least), bound(schema, most)
    if low is not None and n < low:
        return Problem("must have at least %s %s, not %d" % (low, of, n))
    if high is not None and n > high:
        return Problem("must have at most %s %s, not %d" % (high, of, n))
    return None


def text(value, schema):
    found = count(len(value), schema, "minLength", "maxLength", "characters")
    if found is None and "pattern" in schema and matched(schema["pattern"], value) is False:
        found = Problem("must match %s, which %s does not" % (schema["pattern"], short(value)))
    return found


def matched(pattern, value):
    """Whether a string matches, or None: patterns are JavaScript's, and may mean
    something else to Python, or nothing."""
    if not isinstance(pattern, str) or len(value) > LONG:
        return None
    if any(odd in pattern for odd in ("[[", "--", "&&", "~~", "||", "(?<", "\\u", "\\p", "\\P", "\\c")):
        return None
    if "\\" in pattern and not value.isascii():
        return None
    import re

    try:
        return re.search(pattern, value, re.ASCII) is not None
    except (re.error, RecursionError, OverflowError):
        return None


def number(value, schema):
    for key, wrong, words in (
        ("minimum", lambda n: value < n, "at least"),
        ("maximum", lambda n: value > n, "at most"),
        ("exclusiveMinimum", lambda n: value <= n, "more than"),
        ("exclusiveMaximum", lambda n: value >= n, "less than"),
    ):
        n = bound(schema, key)
        if n is None:
            continue
        if wrong(n) or value == n and schema.get("exclusive" + key.capitalize()) is True:  # as in draft 4
            return Problem("must be %s %s, not %s" % (words, n, short(value)))
    step = bound(schema, "multipleOf")
    if step and step > 0 and not multiple(value, step):
        return Problem("must be a multiple of %s, not %s" % (step, short(value)))
    return None


def multiple(value, step):
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    try:
        times = value / step
        return abs(times - round(times)) <= 1e-9 * max(1, abs(times))
    except (OverflowError, ValueError):
        return True


def short(value):
    if isinstance(value, (list, tuple, dict)) and len(value) > 20:
        return "of %d items" % len(value)
    shown = call(repr, value[:200] if isinstance(value, str) else value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
