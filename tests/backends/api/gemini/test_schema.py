"""JSON schemas cut down to what Gemini understands."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.api.gemini_request import gemini_schema
from shepherd.messages import JsonObject

KNOWN = {
    "type",
    "format",
    "title",
    "description",
    "enum",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "anyOf",
    "properties",
    "additionalProperties",
    "required",
    "propertyOrdering",
}


def nested(node: Any) -> list[JsonObject]:
    """All schemas in a schema, itself first."""
    if not isinstance(node, dict):
        return []
    schema = cast(JsonObject, node)
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]
    inner += [schema.get("items"), schema.get("additionalProperties")]
    inner += schema.get("prefixItems", [])
    return [schema, *(found for part in inner for found in nested(part))]


plain: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", ["string", "null"]]),
        "pattern": st.just("x"),
        "default": st.just(1),
        "nullable": st.booleans(),
        "enum": st.lists(st.none() | st.booleans() | st.text(max_size=1), max_size=3),
        "const": st.none() | st.integers(),
        "exclusiveMinimum": st.just(0),
        "$ref": st.sampled_from(["#", "#/$defs/a", "#/$defs/b~1c", "#/nowhere", "elsewhere"]),
    },
)


def holding(inner: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[JsonObject]:
    some = st.lists(inner, max_size=2)
    fields: dict[str, st.SearchStrategy[Any]] = {
        "properties": st.dictionaries(st.sampled_from(["enum", "a"]), inner | st.booleans()),
        "items": inner | st.booleans(),
        "prefixItems": some,
        "additionalProperties": inner | st.booleans(),
        "anyOf": some,
        "oneOf": some,
        "allOf": some,
        "not": inner,
        "required": st.just(["a"]),
        "$defs": st.fixed_dictionaries({"a": inner, "b/c": inner}),
    }
    return st.fixed_dictionaries({}, optional=fields)


schemas = st.recursive(plain, holding, max_leaves=6)


@given(schemas)
def test_only_known_keywords_are_left(schema: JsonObject) -> None:
    cut, _ = gemini_schema(schema)
    for node in nested(cut):
        assert set(node) <= KNOWN
        values = node.get("enum", ["a"])
        assert values
        assert all(isinstance(v, str | int | float) and v is not True for v in values)


@given(schemas)
def test_what_is_cut_already_stays(schema: JsonObject) -> None:
    cut, _ = gemini_schema(schema)
    assert gemini_schema(cut) == (cut, frozenset())


CUTS: list[tuple[JsonObject, JsonObject, set[str]]] = [
    ({"type": "string", "pattern": "x"}, {"type": "string"}, {"pattern"}),
    ({"$schema": "…", "default": 1, "title": "T"}, {"title": "T"}, set()),
    ({"type": "string", "nullable": True}, {"type": ["string", "null"]}, set()),
    ({"const": "a"}, {"enum": ["a"]}, set()),
    ({"enum": ["a", None]}, {"enum": ["a"]}, set()),
    ({"enum": [True]}, {}, {"enum"}),
    ({"oneOf": [{"type": "null"}]}, {"anyOf": [{"type": "null"}]}, set()),
    ({"items": False}, {"items": {}}, {"false"}),
    (
        {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"required": ["b"]}]},
        {"properties": {"a": {}}, "required": ["a", "b"]},
        set(),
    ),
    ({"type": "string", "allOf": [{"type": "null"}]}, {"type": "string"}, {"allOf"}),
    (
        {
            "properties": {"a": {"$ref": "#/$defs/x", "description": "mine"}},
            "$defs": {"x": {"type": "string"}},
        },
        {"properties": {"a": {"type": "string", "description": "mine"}}},
        set(),
    ),
]


@pytest.mark.parametrize(("given", "cut", "lost"), CUTS)
def test_cuts(given: JsonObject, cut: JsonObject, lost: set[str]) -> None:
    assert gemini_schema(given) == (cut, frozenset(lost))


def test_a_schema_that_contains_itself_ends() -> None:
    tree: JsonObject = {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "value": {"type": "string"}},
    }
    once = {
        "type": "object",
        "properties": {"left": {"type": "object"}, "value": {"type": "string"}},
    }
    outer = {"type": "object", "properties": {"left": once, "value": {"type": "string"}}}
    assert gemini_schema(tree)[0] == outer
