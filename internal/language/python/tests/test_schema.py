"""Arguments against schemas."""

import pytest

from sallyport_guest.errors import ArgumentError, MCPError
from sallyport_guest.schema import Parameters

SCHEMA = {
    "type": "object",
    "properties": {
        "opt": {"type": "integer", "default": 5},
        "path": {"type": "string"},
        "mode": {"enum": ["a", "b", 1, None]},
        "list": {"type": "array"},
        "any": {},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "both": {"type": ["number", "boolean"]},
        "ref": {"$ref": "#/$defs/x"},
        "fixed": {"const": 3},
    },
    "required": ["path"],
    "additionalProperties": False,
}


SIGNATURE = (
    "(path: str, opt: int = 5, mode: Literal['a', 'b', 1] | None = ..., list: list = ..., any=..., "
    "either: str | None = ..., both: float | bool = ..., ref=..., fixed: Literal[3] = ...) -> str"
)


@pytest.fixture
def parameters():
    return Parameters(SCHEMA, SIGNATURE)


def bound(p, *args, **kwargs):
    return p.bind("t", args, kwargs)


def test_order(parameters):
    assert parameters.order[:3] == ["path", "opt", "mode"]
    assert bound(parameters, "p", 1) == {"path": "p", "opt": 1}


def test_signature(parameters):
    assert parameters.signature("f") == "f" + SIGNATURE
    assert Parameters(SCHEMA).signature("f").startswith("f(path, opt=..., mode=...")


@pytest.mark.parametrize(
    "kwargs",
    [
        {"opt": 1}, {"opt": 2.0}, {"mode": "a"}, {"mode": None}, {"mode": 1}, {"list": [1]}, {"list": ()}, {"any": object()},
        {"either": None}, {"either": "x"}, {"both": 1.5}, {"both": True}, {"ref": [1]}, {"fixed": 3},
    ],
    ids=repr,
)  # fmt: skip
def test_fits(parameters, kwargs):
    assert bound(parameters, path="p", **kwargs) == {"path": "p", **kwargs}


@pytest.mark.parametrize(
    "kwargs, problem",
    [
        ({"opt": "1"}, "argument 'opt' must be int, not str '1'; "),
        ({"opt": 1.5}, "must be int"),
        ({"opt": True}, "must be int, not bool"),
        ({"opt": None}, "leave it out instead"),
        ({"mode": True}, "must be one of 'a', 'b', 1, None, not True"),
        ({"list": {}}, "must be list"),
        ({"either": 1}, "fits none of the 2 permitted forms"),
        ({"both": "x"}, "must be float or bool"),
        ({"fixed": 4}, "must be 3, not 4"),
        ({"paht": "x"}, "there is no argument 'paht'; did you mean 'path'?"),
    ],
    ids=repr,
)
def test_does_not_fit(parameters, kwargs, problem):
    with pytest.raises(ArgumentError) as e:
        bound(parameters, path="p", **kwargs)
    assert problem.rstrip("; ") in str(e.value) and "Signature: t(path: str" in str(e.value)
    assert isinstance(e.value, TypeError) and isinstance(e.value, MCPError)


def test_missing(parameters):
    with pytest.raises(ArgumentError, match="missing 'path'"):
        bound(parameters)


def test_open_schema_takes_more():
    p = Parameters({"properties": {"a": {"type": "string"}}})
    assert bound(p, a="x", other=1) == {"a": "x", "other": 1}


def test_closed_by_name_only_where_nothing_else_adds_properties():
    p = Parameters({"properties": {"a": {}}, "additionalProperties": False, "allOf": [{"properties": {"b": {}}}]})
    assert bound(p, b=1) == {"b": 1}


@pytest.mark.parametrize("schema", [None, True, [], "x", {}, {"properties": []}, {"required": "a"}, {"properties": {"a": 1}}], ids=repr)
def test_hostile_schemas(schema):
    assert bound(Parameters(schema), **{"class": 1}) == {"class": 1}
    Parameters(schema).inspected()


def test_inspected(parameters):
    assert str(parameters.inspected()) == (
        "(path: str, opt: int = 5, mode: Literal['a', 'b', 1] | None = ..., list: list = ..., any=..., "
        "either: str | None = ..., both: float | bool = ..., ref=..., fixed: Literal[3] = ...)"
    )
    assert str(Parameters(SCHEMA, "(path: str, ...)").inspected()).startswith("(path, opt=5, mode=..., ")


def test_renamed_arguments():
    schema = {"properties": {"class": {"type": "string"}, "a-b": {}, "$x": {}, "c": {}}, "additionalProperties": False}
    odd = Parameters(schema, "(class_: str = ..., a_b=..., c=..., **{'$x': Any})", {"class": "class_", "a-b": "a_b"})
    assert list(odd.inspected().parameters) == ["class_", "a_b", "c", "more"]
    assert bound(odd, class_="x", **{"a-b": 1}) == {"class": "x", "a-b": 1}
    assert bound(odd, a_b=1, **{"$x": 2}) == {"a-b": 1, "$x": 2}
    with pytest.raises(ArgumentError, match="'class' is given twice"):
        bound(odd, class_="x", **{"class": "y"})
    with pytest.raises(ArgumentError, match="there is no argument '_x'"):
        bound(odd, _x=1)


def test_arguments_of_all_names_keep_the_order_of_the_call():
    p = Parameters({"properties": {"self": {}, "args": {}, "kwargs": {}, "label": {}, "class": {}, "timeout": {}}})
    given = {"timeout": 1, "kwargs": 2, "self": 3, "from": 4, "_target": 5, "args": 6, "label": 7, "class": 8, "name": 9}
    assert list(bound(p, **given).items()) == list(given.items())


@pytest.mark.parametrize(
    "schema, shown",
    [
        ({"type": "array", "items": {"type": "string"}}, "list[str]"),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}, "list[str | int]"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "dict[str, float]"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"type": "string", "nullable": True}, "str | None"),
        ({"allOf": [{"description": "x"}, {"type": "integer"}]}, "int"),
        ({"$ref": "#/$defs/a"}, "list[str]"),
        ({"$ref": "#/$defs/loop"}, ""),
        ({"properties": {"a": {}}}, "dict"),
        ({"enum": ["x" * 100, 1]}, "str | int"),
        ({"anyOf": [{"type": "string"}, {}]}, ""),
    ],
    ids=repr,
)
def test_types(schema, shown):
    root = {"properties": {"x": schema}, "$defs": {"a": {"type": "array", "items": {"type": "string"}}, "loop": {"$ref": "#/$defs/loop"}}}
    assert Parameters(root).type_name(schema) == shown


def test_properties_of_a_schema_made_of_others():
    p = Parameters(
        {
            "$ref": "#/$defs/base",
            "allOf": [{"properties": {"b": {"type": "integer"}}, "required": ["b"]}, {"$ref": "#"}],
            "anyOf": [{"properties": {"c": {}}, "required": ["c"]}, {"properties": {"d": {}}, "required": ["d"]}],
            "$defs": {"base": {"properties": {"a": {"type": "string"}}, "required": ["a"]}},
        }
    )
    assert p.signature("f") == "f(a, b, c=..., d=...)"
    assert bound(p, "x", 1, c=1) == {"a": "x", "b": 1, "c": 1}
    with pytest.raises(ArgumentError, match="the arguments object fits none of the 2 permitted forms: it lacks 'c', or lacks 'd'"):
        bound(p, "x", 1)


def test_described():
    edit = {"type": "object", "properties": {"old": {"type": "string", "description": "what\n was"}, "again": {"$ref": "#/$defs/edit"}}, "required": ["old"]}
    p = Parameters({"properties": {"edits": {"type": "array", "items": {"$ref": "#/$defs/edit"}}, "dry": {"default": False}}, "$defs": {"edit": edit}})
    assert p.described() == ["  edits", "      old: str -- what was", "      again: dict = ...", "  dry"]


def test_required_without_a_property():
    p = Parameters({"properties": {"b": {}}, "required": ["x", "b"]})
    assert p.order == ["b", "x"]
    with pytest.raises(ArgumentError, match="missing 'x'"):
        bound(p, 1)
