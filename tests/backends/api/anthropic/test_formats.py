"""A schema is enforced where the model can be held to it, and asked for in words elsewhere."""

import json

import pytest
from anthropic import transform_schema
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.anthropic.adapter import AnthropicAdapter
from shepherd.backends.api.anthropic.request import enforced
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject, Message
from shepherd.session import OutputFormat, Session
from tests.backends.api.anthropic.schema import check_request

NAME: JsonObject = {"type": "object", "properties": {"name": {"type": "string"}}}
CLOSED = NAME | {"additionalProperties": False}
ANY: JsonObject = {"type": "object"}


def body(schema: JsonObject, model: str) -> JsonObject:
    asked = Session(messages=[Message.user("Who?")], output_format=OutputFormat(schema))
    return check_request(AnthropicAdapter().chat(asked, ModelTraits(model), 100))


def test_a_schema_is_enforced() -> None:
    sent = body(NAME | {"required": ["name"]}, "claude-sonnet-4-5")
    schema = CLOSED | {"required": ["name"]}
    assert sent["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
    assert len(sent["messages"][-1]["content"]) == 1


@pytest.mark.parametrize(
    ("schema", "model"), [(NAME, "claude-opus-4-1"), (NAME, "local.gguf"), (ANY, "claude-opus-5")]
)
def test_words_follow_the_mark_for_the_cache(schema: JsonObject, model: str) -> None:
    sent = body(schema, model)
    assert "output_config" not in sent
    question, words = sent["messages"][-1]["content"]
    assert "cache_control" in question
    assert "cache_control" not in words
    assert words["text"].endswith(json.dumps(schema))


SHAPES: list[tuple[JsonObject, JsonObject | None]] = [
    ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ({"oneOf": [{"const": 1}, NAME]}, {"anyOf": [{"const": 1}, CLOSED]}),
    ({"enum": ["a", "b"], "default": "a"}, {"enum": ["a", "b"]}),
    (
        {"type": "integer", "minimum": 1, "description": "How many"},
        {"type": "integer", "description": 'How many {"minimum": 1}'},
    ),
    (
        {"type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": 1, "$defs": {"n": NAME}},
        {"type": "array", "items": CLOSED, "minItems": 1},
    ),
    ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
    (ANY | {"properties": {"x": {}}}, None),
    (NAME | {"additionalProperties": {"type": "string"}}, None),
    ({"type": "array"}, None),
    ({"type": "object", "properties": {"me": {"$ref": "#"}}}, None),
]


@pytest.mark.parametrize(("given_schema", "sent"), SHAPES)
def test_schemas_are_put_in_the_words_that_the_api_has(
    given_schema: JsonObject, sent: JsonObject | None
) -> None:
    expected = None if sent is None else {"type": "json_schema", "schema": sent}
    assert enforced(OutputFormat(given_schema), formats=True) == expected


@pytest.mark.parametrize("schema", [ANY, NAME | {"minProperties": 1}])
def test_what_must_hold_and_cannot_is_refused(schema: JsonObject) -> None:
    with pytest.raises(InvalidRequestError, match="can't be"):
        enforced(OutputFormat(schema, strict=True), formats=True)
    with pytest.raises(InvalidRequestError, match="can't be"):
        enforced(OutputFormat(NAME, strict=True), formats=False)
    assert enforced(OutputFormat(NAME, strict=True), formats=True) is not None


def test_there_are_no_grammars() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        enforced(OutputFormat(grammar='root ::= "a"'), formats=True)
    assert caught.value.param == "grammar"


def objects_of(parts: dict[str, JsonObject]) -> JsonObject:
    return {"type": "object", "properties": parts, "required": list(parts)}


def lists_of(items: JsonObject) -> JsonObject:
    return {"type": "array", "items": items}


def one_of(parts: list[JsonObject]) -> JsonObject:
    return {"anyOf": parts}


def larger(inner: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[JsonObject]:
    parts = st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3)
    options = st.lists(inner, min_size=1, max_size=2)
    return parts.map(objects_of) | inner.map(lists_of) | options.map(one_of)


plain: list[JsonObject] = [{"type": kind} for kind in ("string", "integer", "boolean", "null")]
plain += [{"enum": ["a", 1]}, {"type": "number", "maximum": 3}]
schemas = st.recursive(st.sampled_from(plain), larger, max_leaves=6)


@given(schemas)
def test_the_official_sdk_finds_nothing_left_to_change(schema: JsonObject) -> None:
    found = enforced(OutputFormat(schema), formats=True)
    assert found is not None
    assert transform_schema(found["schema"]) == found["schema"]
