"""Values against schemas of all drafts."""

import datetime
import pathlib
from random import Random

import pytest

from sallyport_guest.errors import ArgumentError
from sallyport_guest.schema import Parameters
from sallyport_guest.validate import Checker

DRAFT7 = "http://json-schema.org/draft-07/schema#"
NODE = {"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "v": {"type": "integer"}}, "required": ["v"]}}}
BLOCK = {
    "anyOf": [
        {"type": "object", "properties": {"type": {"const": "text"}, "text": {"type": "string"}}, "required": ["type", "text"]},
        {"type": "object", "properties": {"type": {"const": "link"}, "url": {"type": "string"}}, "required": ["type", "url"]},
        {"type": "null"},
    ]
}


def problem(schema, value):
    found = Checker(schema).problem(value, schema)
    return None if found is None else ("%s: %s" % (found.place(), found.text) if found.path else found.text)


@pytest.mark.parametrize(
    "schema, value",
    [
        (True, 1), ({}, object()), ({"type": "no such type"}, 1), ({"type": 3}, 1), ({"type": "integer"}, 2.0),
        ({"type": "integer"}, 2**70), ({"type": "number"}, 1), ({"type": ["string", "null"]}, None),
        ({"type": "string", "nullable": True}, None), ({"type": "string", "default": None}, None),
        ({"enum": [1, {"a": [1]}]}, {"a": (1.0,)}), ({"const": None}, None), ({"enum": []}, 1),
        ({"type": "string"}, pathlib.PurePosixPath("/a")), ({"type": "string"}, datetime.date(2020, 1, 2)),
        ({"type": "array"}, {1}), ({"type": "array", "items": {"type": "integer"}}, (1, 2)), ({"items": [{"type": "string"}]}, ["a", 1]),
        ({"minLength": 2}, "ab"), ({"minLength": 2}, "ä\U0001f600"), ({"minLength": 2}, 1), ({"pattern": "^a+$"}, "aaa"), ({"pattern": "("}, "x"),
        ({"pattern": r"^\p{L}$"}, "1"), ({"pattern": r"^\w+$"}, "é"), ({"pattern": 3}, "x"), ({"pattern": "^(a+)+$"}, "a" * 70_000 + "b"),
        ({"minimum": 1, "maximum": 3}, 1), ({"exclusiveMinimum": True, "minimum": 1}, 2), ({"multipleOf": 0.01}, 0.07), ({"multipleOf": 3}, 9),
        ({"multipleOf": 0}, 9), ({"minimum": "a"}, 1), ({"minItems": None}, []), ({"uniqueItems": True}, [1, True, "1"]),
        ({"properties": {"a": {"type": "string"}}}, {"b": 1}), ({"properties": [1], "required": "a"}, {}), ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}, {"x1": 1}),
        ({"additionalProperties": {"type": "integer"}}, {"a": 1}), ({"additionalProperties": False, "allOf": [{"properties": {"b": {}}}]}, {"b": 1}),
        ({"propertyNames": {"pattern": "^a"}}, {"ab": 1}), ({"dependentRequired": {"a": ["b"]}}, {"b": 1}), ({"dependencies": {"a": ["b"]}}, {"a": 1, "b": 1}),
        ({"contains": {"type": "integer"}}, ["a", 1]), ({"contains": {"type": "integer"}, "minContains": 0}, []), ({"contains": {"format": "x"}}, []),
        ({"not": {"type": "string"}}, 1), ({"not": {"format": "x"}}, "a"), ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 1),
        ({"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}}, {"a": 2}), ({"if": {"format": "x"}, "then": False}, 1),
        ({"$ref": "#/nowhere"}, 1), ({"$ref": "https://example.com/x"}, 1), ({"$ref": 3}, 1), ({"$ref": "#"}, 1), ({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, 1),
        ({"$schema": DRAFT7, "properties": {"a": {"$ref": "#/definitions/x", "type": "string"}}, "definitions": {"x": {"type": "integer"}}}, {"a": 1}),
        ({**NODE, "$ref": "#/$defs/node"}, {"v": 1, "next": {"v": 2, "next": {"v": 3}}}),
        ({"$dynamicRef": "#n", "$defs": {"x": {"$dynamicAnchor": "n", "type": "integer"}}}, 1),
        (BLOCK, {"type": "text", "text": ""}), (BLOCK, None), ({"prefixItems": [{"type": "string"}], "items": False}, ["a"]),
    ],
)  # fmt: skip
def test_fits(schema, value):
    assert problem(schema, value) is None


@pytest.mark.parametrize(
    "schema, value, want",
    [
        (False, 1, "is not allowed here"),
        ({"type": "integer"}, "1", "must be int, not str '1'"),
        ({"type": "integer"}, True, "must be int, not bool True"),
        ({"type": ["string", "null"]}, 1, "must be str or None, not int 1"),
        ({"type": "string"}, None, "must be str, not NoneType None"),
        ({"type": "integer"}, pathlib.PurePosixPath("/a"), "must be int, not str '/a'"),
        ({"enum": ["a", 1]}, True, "must be one of 'a', 1, not True"),
        ({"const": [1]}, [2], "must be [1], not [2]"),
        ({"type": "string"}, list(range(30)), "must be str, not list of 30 items"),
        ({"minLength": 2}, "a", "must have at least 2 characters, not 1"),
        ({"maxLength": 2}, "abc", "must have at most 2 characters, not 3"),
        ({"pattern": "^a+$"}, "b", "must match ^a+$, which 'b' does not"),
        ({"minimum": 1}, 0.5, "must be at least 1, not 0.5"),
        ({"maximum": 2**60}, 2**60 + 1, "must be at most %d, not %d" % (2**60, 2**60 + 1)),
        ({"exclusiveMinimum": 1}, 1, "must be more than 1, not 1"),
        ({"exclusiveMaximum": 1}, 1, "must be less than 1, not 1"),
        ({"minimum": 1, "exclusiveMinimum": True}, 1, "must be at least 1, not 1"),
        ({"multipleOf": 0.01}, 0.075, "must be a multiple of 0.01, not 0.075"),
        ({"items": {"type": "integer"}}, [1, "x"], "[1]: must be int, not str 'x'"),
        ({"items": [{"type": "string"}], "additionalItems": False}, ["a", 1], "[1]: is not allowed here"),
        ({"prefixItems": [{}, {"type": "string"}]}, [1, 2], "[1]: must be str, not int 2"),
        ({"minItems": 1}, [], "must have at least 1 items, not 0"),
        ({"uniqueItems": True}, [{"a": 1}, {"a": 1.0}], "must not have an item twice"),
        ({"contains": {"const": 1}}, [2], "must have at least 1 items of a certain form, not 0"),
        ({"properties": {"a": {"items": {"properties": {"b-c": {"type": "string"}}}}}}, {"a": [{"b-c": 1}]}, "a[0]['b-c']: must be str, not int 1"),
        ({"required": ["a", "b"]}, {"a": 1}, "lacks 'b'"),
        ({"properties": {"text": {}}, "additionalProperties": False}, {"txt": 1}, "has no member 'txt'; did you mean 'text'?"),
        ({"additionalProperties": {"type": "integer"}}, {"a": "x"}, "a: must be int, not str 'x'"),
        ({"patternProperties": {"^x": {"type": "integer"}}}, {"xy": "a"}, "xy: must be int, not str 'a'"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "has the name 'ab', which must have at most 1 characters, not 2"),
        ({"minProperties": 1}, {}, "must have at least 1 members, not 0"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "has 'a' and lacks 'b'"),
        ({"dependencies": {"a": {"required": ["c"]}}}, {"a": 1}, "lacks 'c'"),
        ({"allOf": [{"type": "object"}, {"required": ["a"]}]}, {}, "lacks 'a'"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, None, "fits none of the 2 permitted forms: it must be str, not NoneType None, or must be int, not NoneType None"),
        ({"anyOf": [{"type": "string", "minLength": 3}, {"type": "null"}]}, "ab", "must have at least 3 characters, not 2"),
        (BLOCK, {"type": "link", "text": "x"}, "lacks 'url'"),
        (BLOCK, {"type": "text", "text": 3}, "text: must be str, not int 3"),
        ({"not": {"type": "string"}}, "a", "must not be 'a'"),
        ({"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}, "else": False}, {"a": 1}, "lacks 'b'"),
        ({"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}, "else": False}, {"a": 2}, "is not allowed here"),
        ({**NODE, "$ref": "#/$defs/node"}, {"v": 1, "next": {"v": 2, "next": {}}}, "next.next: lacks 'v'"),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "string"}}}, 1, "must be str, not int 1"),
        ({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "string"}}}, 1, "must be str, not int 1"),
        ({"$ref": "#x", "$defs": {"a": {"$anchor": "x", "type": "string"}}}, 1, "must be str, not int 1"),
        ({"$id": "urn:me", "$ref": "urn:me#/$defs/a", "$defs": {"a": {"type": "string"}}}, 1, "must be str, not int 1"),
        ({"$ref": "other", "$defs": {"a": {"$id": "other", "type": "string"}}}, 1, "must be str, not int 1"),
        ({"$ref": "#/$defs/a", "type": "integer", "$defs": {"a": {}}}, "x", "must be int, not str 'x'"),
        ({"$schema": DRAFT7, "definitions": {"x": {"type": "integer"}}, "$ref": "#/definitions/x"}, "a", "must be int, not str 'a'"),
    ],
)
def test_does_not_fit(schema, value, want):
    assert problem(schema, value) == want


def test_bounded():
    """Neither a schema nor a value can make checking endless."""
    wide = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "type": "string"}
    assert problem({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, 1) is None
    assert problem(wide, 1) is not None
    deep = value = []
    for _ in range(5000):
        value.append([])
        value = value[0]
    assert problem({"items": {"$ref": "#"}}, deep) is None
    assert problem({"items": {"type": "integer", "minimum": 0}}, [1] * 300_000 + ["x"]) is None
    assert problem({"items": {"type": "integer"}}, [1] * 300_000 + ["x"]) == "[300000]: must be int, not str 'x'"


KEYWORDS = (
    "$ref $dynamicRef $anchor $id $schema type enum const properties required additionalProperties patternProperties propertyNames "
    "items prefixItems additionalItems contains minContains maxContains uniqueItems minItems maxItems minLength maxLength pattern "
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minProperties maxProperties dependentRequired dependentSchemas "
    "dependencies allOf anyOf oneOf not if then else nullable default description"
).split()
SCALARS = (None, True, False, 0, 1, -1, 2.5, 1e308, 2**70, "", "a", "string", "object", "array", "#", "#/$defs/a", "#a", "(", "^a", [], {}, "\ud800")


def anything(random, depth):
    """A schema, or something where one should be."""
    kind = random.random()
    if depth == 0 or kind < 0.25:
        return random.choice(SCALARS)
    if kind < 0.4:
        return [anything(random, depth - 1) for _ in range(random.randrange(4))]
    if kind < 0.5:
        return {random.choice(("a", "b", "class", "a-b", "", "ä")): anything(random, depth - 1) for _ in range(random.randrange(4))}
    return {random.choice(KEYWORDS): anything(random, depth - 1) for _ in range(random.randrange(6))}


@pytest.mark.parametrize("seed", range(20))
def test_no_schema_breaks_it(seed):
    random = Random(seed)
    for _ in range(100):
        schema = anything(random, 5)
        root = {**schema, "$defs": {"a": anything(random, 3)}} if isinstance(schema, dict) else schema
        found = Checker(root).problem(anything(random, 3), root)
        assert found is None or isinstance(found.text, str) and isinstance(found.place(), str)
        parameters = Parameters(root)
        try:
            parameters.bind("f", (), {"a": anything(random, 3), "class": 1})
        except ArgumentError as e:
            assert str(e).startswith("f: ")
        assert parameters.signature("f").startswith("f(")
        parameters.inspected()
        assert all(isinstance(line, str) for line in parameters.described())
