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


@pytest.fixture
def parameters():
    return Parameters(SCHEMA)


def bound(p, *args, **kwargs):
    return p.bind("t", args, kwargs)


def test_order(parameters):
    assert parameters.order[:3] == ["path", "opt", "mode"]
    assert bound(parameters, "p", 1) == {"path": "p", "opt": 1}


def test_signature(parameters):
    assert parameters.signature("f").startswith("f(path: str, opt: int = 5, mode = ..., list: list = ..., any = ...")


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
        ({"either": 1}, "fits none of the 2 forms"),
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
    assert str(parameters.inspected()).startswith("(path: str, opt: int = 5, mode=Ellipsis")
    odd = Parameters({"properties": {"class": {}, "a-b": {}, "c": {}}, "additionalProperties": False})
    assert list(odd.inspected().parameters) == ["c"]


def test_required_without_a_property():
    p = Parameters({"properties": {"b": {}}, "required": ["x", "b"]})
    assert p.order == ["b", "x"]
    with pytest.raises(ArgumentError, match="missing 'x'"):
        bound(p, 1)
