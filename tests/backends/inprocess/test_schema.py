"""What a schema's grammar takes and forbids, byte by byte, and what is refused by name."""

import json
from typing import Any

import pytest
from llguidance import LLMatcher

from shepherd.backends.inprocess.lark import Rules, json_value
from shepherd.backends.inprocess.matcher import (
    BYTES,
    compile_grammar,
    ignored_keywords,
    tokenizer_for,
)
from shepherd.backends.inprocess.schema import prepare
from shepherd.errors import InvalidRequestError

TOKENIZER = tokenizer_for(BYTES)


def compiled(prepared: Any, *, strict: bool) -> LLMatcher:
    rules = Rules()
    answer = rules.add("answer", json_value(prepared, strict=strict))
    return compile_grammar(rules.text(answer), TOKENIZER)


def fits(schema: Any, text: str, *, strict: bool = True) -> bool:
    """Whether the grammar takes the text, whole."""
    matcher = compiled(prepare(schema, strict=strict).value, strict=strict)
    data = list(text.encode())
    return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()


SHORT = {"type": "string", "maxLength": 2}
MAP: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "integer"}}
OBJECT = {"type": "object", "additionalProperties": False}
CLOSED = OBJECT | {"properties": {"a": {"type": "integer"}}}
DOG = OBJECT | {"properties": {"kind": {"const": "dog"}}, "required": ["kind"]}
CAT = OBJECT | {"properties": {"kind": {"const": "cat"}}, "required": ["kind"]}

ENFORCED: list[tuple[Any, list[Any], list[Any]]] = [
    (
        {"$ref": "#/$defs/a", "maxLength": 2, "$defs": {"a": {"type": "string"}}},
        ["", "ab"],
        ["abc", 1],
    ),
    (
        {"properties": {"x": {"$ref": "#/$defs/n", "maximum": 5}}, "$defs": {"n": {"minimum": 2}}},
        [{"x": 2}, {"x": 5}, {}],
        [{"x": 1}, {"x": 6}, {"y": 1}, []],
    ),
    (
        {"type": "array", "prefixItems": [{"type": "integer"}], "minItems": 3, "items": SHORT},
        [[1, "a", "b"], [1, "a", "b", "c"]],
        [[], [1], [1, "a"], ["a", "a", "a"], [1, "abc", "a"]],
    ),
    ({"prefixItems": [SHORT, {"type": "null"}]}, [["a", None]], [[], ["a"], ["a", None, 1], "a"]),
    (
        {"items": [{"type": "integer"}, {"type": "boolean"}], "minItems": 1, "maxItems": 2},
        [[1], [1, True]],
        [[], ["a"], [1, 1], [1, True, 1]],
    ),
    (
        {"items": [{"type": "integer"}], "additionalItems": {"type": "null"}},
        [[], [1], [1, None, None]],
        [["a"], [1, 2]],
    ),
    ({"type": "object", "required": ["a", "b"]}, [{"a": 1, "b": None}], [{}, {"a": 1}, 3]),
    ({"required": ["a"], "properties": {"b": SHORT}}, [{"b": "x", "a": 1}], [{}, {"b": "x"}]),
    ({"oneOf": [DOG, CAT]}, [{"kind": "dog"}, {"kind": "cat"}], [{}, {"kind": "cow"}]),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], [None, 1.5]),
    ({"type": "string", "pattern": "^[a-c]{2}$"}, ["ab", "cc"], ["a", "abc", "dd"]),
    ({"type": "string", "pattern": "b"}, ["b", "abc"], ["", "ac"]),
    (
        {"type": "string", "format": "date"},
        ["2024-02-29", "2000-02-29", "2023-02-28", "2023-12-31"],
        ["2024-13-01", "today", "2023-02-29", "2100-02-29"],
    ),
    (
        {"type": "string", "format": "date-time"},
        ["2024-02-29T23:59:59Z", "2023-10-31T00:00:00.5+01:00"],
        ["2023-02-29T23:59:59Z", "2024-02-28T22:59:60Z", "1998-12-31T22:59:60Z"],
    ),
    ({"format": "time"}, ["23:59:59Z"], ["22:59:60Z"]),
    (
        {"type": "string", "format": "hostname", "pattern": "a$"},
        ["a-b.c-d--a", "a"],
        ["a-b.c", "xn--a", "a.ab--a", "a." * 126 + "aa"],
    ),
    ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["x"]),
    ({"type": "string", "format": "ipv4"}, ["10.0.0.1"], ["10.0.0.256", "a"]),
    ({"type": "integer", "minimum": -3, "exclusiveMaximum": 10}, [-3, 0, 9], [-4, 10, 1.5]),
    ({"type": "number", "minimum": 0.5, "maximum": 2}, [0.5, 1, 2], [0.4, 2.1, -1]),
    ({"type": "integer", "multipleOf": 7}, [0, 7, 49], [1, 48]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "éèà"], ["a", "abcd"]),
    ({"type": "array", "items": SHORT, "maxItems": 2.0}, [[], ["a", "b"]], [["a", "b", "c"]]),
    ({"type": "array", "items": {"enum": [1]}, "uniqueItems": False}, [[1, 1]], [[2]]),
    ({"const": "a\0b"}, ["a\0b"], ["ab"]),
    ({"const": {"b": [1, {"a": None}]}}, [{"b": [1, {"a": None}]}], [{"b": []}]),
    ({"type": ["integer", "null"]}, [1, None], ["a", True]),
    (
        {
            "allOf": [
                {"properties": {"a": SHORT}, "required": ["a"]},
                {"$ref": "#/$defs/b"},
            ],
            "$defs": {"b": {"properties": {"b": {"type": "null"}}, "required": ["b"]}},
        },
        [{"a": "x", "b": None}],
        [{"a": "x"}, {"b": None}, {"a": "x", "b": None, "c": 1}],
    ),
    (
        {
            "properties": {"kind": {"enum": ["a", "b"]}, "x": SHORT, "y": SHORT},
            "anyOf": [{"required": ["x"]}, {"required": ["y"]}],
        },
        [{"x": "1"}, {"kind": "a", "y": "1"}],
        [{}, {"kind": "a"}, {"z": 1}],
    ),
    (MAP, [{}, {"x": 1}, {"x": 1, "y": 2}], [{"x": "a"}, [], {"x": 1, "y": None}]),
    (MAP | {"minProperties": 1, "maxProperties": 2}, [{"x": 1}], [{}, {"x": 1, "y": 2, "z": 3}]),
    (MAP | {"minProperties": 2, "required": ["a"]}, [{"a": 1, "b": 2}], [{"a": 1}, {"b": 1}]),
    (
        {"properties": {"a": SHORT}, "additionalProperties": {"type": "integer"}},
        [{"a": "x", "b": 1}, {"b": 1}],
        [{"a": 1}, {"b": "x"}],
    ),
    (
        {"patternProperties": {"^a": SHORT}, "additionalProperties": False},
        [{}, {"ab": "x"}],
        [{"ab": 1}, {"b": "x"}],
    ),
    (
        MAP | {"propertyNames": {"$ref": "#/$defs/key"}, "$defs": {"key": {"enum": ["a", "b"]}}},
        [{}, {"a": 1, "b": 2}, {"b": 1}],
        [{"c": 1}, {"a": "x"}, {"ab": 1}],
    ),
    (
        {"type": "object", "propertyNames": {"type": "string", "pattern": "^a"}},
        [{}, {"ab": "x", "a": 1}],
        [{"b": 1}, {"ab": 1, "": 1}, []],
    ),
    (
        {
            "type": "object",
            "properties": {"card": SHORT, "address": SHORT, "name": SHORT},
            "required": ["name"],
            "dependentRequired": {"card": ["address"], "address": ["name"]},
        },
        [{"name": "a"}, {"card": "a", "address": "a", "name": "a"}, {"address": "a", "name": "a"}],
        [{}, {"card": "a", "name": "a"}, {"address": "a"}, {"name": "a", "other": 1}],
    ),
    (
        CLOSED | {"dependencies": {"a": {"properties": {"a": {"const": 3}}}}},
        [{}, {"a": 3}],
        [{"a": 4}],
    ),
    (CLOSED | {"dependentSchemas": {"a": False}}, [{}], [{"a": 3}]),
    (CLOSED | {"dependentSchemas": {"a": True}, "dependencies": {"a": []}}, [{}, {"a": 3}], [1]),
    ({"type": "object"}, [{}, {"a": {"b": [1]}}], [[], 1]),
    (
        {
            "$ref": "#/$defs/tree",
            "$defs": {"tree": {"properties": {"next": {"$ref": "#/$defs/tree"}}}},
        },
        [{}, {"next": {"next": {}}}],
        [{"next": 1}, {"other": {}}],
    ),
]


@pytest.mark.parametrize(("schema", "right", "wrong"), ENFORCED)
def test_strict_takes_what_fits_and_nothing_else(
    schema: Any, right: list[Any], wrong: list[Any]
) -> None:
    for strict in (True, False):
        for value in right:
            assert fits(schema, json.dumps(value, ensure_ascii=False), strict=strict), value
        for value in wrong:
            assert not fits(schema, json.dumps(value, ensure_ascii=False), strict=strict), value


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "array", "items": SHORT, "uniqueItems": True}, "uniqueItems"),
        ({"not": {"type": "string"}}, "not"),
        ({"if": {"const": 1}, "then": {"const": 1}}, "if"),
        ({"type": "array", "contains": SHORT}, "contains"),
        ({"type": "array", "items": {"properties": {"a": {"not": SHORT}}}}, "not"),
        (CLOSED | {"dependentRequired": {n: ["b"] for n in "acdef"}}, "dependentRequired"),
        (CLOSED | {"propertyNames": SHORT}, "propertyNames"),
        (MAP | {"propertyNames": {"enum": ["a"], "maxLength": 3}}, "propertyNames"),
        (MAP | {"propertyNames": {"type": "integer", "enum": ["1"]}}, "propertyNames"),
        (MAP | {"propertyNames": {"pattern": "(?=a)"}}, "propertyNames"),
        (MAP | {"propertyNames": {"$ref": "#/$defs/k", "maxLength": 1}}, "propertyNames"),
        ({"properties": {"a": SHORT}, "unevaluatedProperties": False}, "unevaluatedProperties"),
        ({"$dynamicRef": "#a"}, "dynamicRef"),
        (MAP | {"minProperties": 2}, "come twice"),
        (MAP | {"minProperties": 3, "required": ["a"]}, "come twice"),
        ({"allOf": [MAP, {"minProperties": 2}]}, "come twice"),
        (MAP | {"properties": {"a\0": SHORT}}, "come twice"),
        ({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 3}]}, "oneOf"),
        ({"oneOf": [CLOSED, OBJECT | {"properties": {"b": SHORT}}]}, "oneOf"),
        ({"oneOf": [{"properties": {"a": SHORT}}, {"properties": {"b": SHORT}}]}, "oneOf|twice"),
        ({"oneOf": [{"maxItems": 3}, {"type": "array", "minItems": 3}]}, "oneOf"),
        ({"type": "string", "format": "phone"}, "phone"),
        ({"type": "string", "pattern": "^(?=a)b"}, "look-around"),
        ({"type": "string", "pattern": "("}, "regex"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "nsatisfiable|range"),
        ({"type": "object", "properties": {"a": 3}}, "as a schema"),
        ({"$ref": "#/$defs/none"}, "does not exist"),
        ({"type": {"a": "string"}}, "unknown type"),
        ({"type": "object", "properties": {"a": {"type": [["string"]]}}}, "unknown type"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(schema: Any, word: str) -> None:
    with pytest.raises(InvalidRequestError, match=word):
        fits(schema, "")


@pytest.mark.parametrize(
    ("schema", "text", "unenforced"),
    [
        ({"type": "array", "items": SHORT, "uniqueItems": True}, '["a", "a"]', {"uniqueItems"}),
        ({"type": "integer", "not": {"const": 3}}, "3", {"not"}),
        ({"type": "string", "format": "phone"}, '"x"', {"format"}),
        ({"type": "string", "pattern": "^(?!a)b"}, '"x"', {"pattern"}),
        ({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 3}]}, "3", {"oneOf"}),
        ({"type": "object", "additionalProperties": {"type": "null"}}, '{"a": null}', set[str]()),
    ],
)
def test_without_strict_it_is_left_out_and_named(
    schema: Any, text: str, unenforced: set[str]
) -> None:
    prepared = prepare(schema)
    ignored = ignored_keywords(compiled(prepared.value, strict=False))
    assert prepared.unenforced.union(ignored) == unenforced
    assert fits(schema, text, strict=False)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("others", [True, {}, {"type": "string"}])
@pytest.mark.parametrize("named", ["properties", "required", "allOf"])
def test_no_name_comes_in_disguise(named: str, *, others: Any, strict: bool) -> None:
    number = {"properties": {"a": {"type": "integer"}}}
    schema: dict[str, Any] = {"type": "object", "additionalProperties": others}
    schema |= number | ({"required": ["a"]} if named == "required" else {})
    if named == "allOf":
        schema = {"allOf": [schema, {"required": ["a"]}]}
    assert fits(schema, '{"a": 1, "b": "x"}', strict=strict)
    for second in ("a", "\\u0061", "\\U0061", "\\x61"):
        assert not fits(schema, f'{{"a": 1, "{second}": "x"}}', strict=strict)
    assert not fits(schema, '{"\\u0061": "x"}', strict=strict)


def test_what_is_given_stays_as_it_is() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"items": [SHORT]}}, "allOf": [{"not": {}}]}
    before = json.dumps(schema)
    prepare(schema)
    assert json.dumps(schema) == before
