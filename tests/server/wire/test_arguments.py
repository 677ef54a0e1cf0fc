"""Tool-call arguments in history."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.server.wire.content import arguments_object

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
objects = st.dictionaries(st.text(), values, max_size=4)


@given(objects)
def test_an_object_survives_however_it_comes(given_object: dict[str, Any]) -> None:
    text = json.dumps(given_object, ensure_ascii=False)
    assert arguments_object(given_object) == given_object
    assert arguments_object(text) == given_object
    assert arguments_object(json.dumps(text)) == given_object
    assert list(arguments_object(text)) == list(given_object)


@given(objects, st.data())
def test_cut_off_json_is_some_object(given_object: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(given_object)
    cut = data.draw(st.integers(min_value=1, max_value=len(text)))
    assert isinstance(arguments_object(text[:cut]), dict)


@given(st.text() | values)
def test_anything_gives_an_object_that_is_json(value: Any) -> None:
    assert json.loads(json.dumps(arguments_object(value))) == arguments_object(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("  ", {}),
        ("{}", {}),
        ("null", {}),
        ('{"path": "a.t', {"path": "a.t"}),
        ('{"a": {"b": [1, 2', {"a": {"b": [1, 2]}}),
        ('{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        ("{'a': 1, b: True,}", {"a": 1, "b": True}),
        ('"{\\"a\\": \\"b', {"a": "b"}),
        ("not json", {"_raw": "not json"}),
        ("[1]", {"_raw": "[1]"}),
        ('{"a": NaN}', {"_raw": '{"a": NaN}'}),
        ("[" * 100_000, {"_raw": "[" * 100_000}),
    ],
)
def test_repairs(text: str, expected: dict[str, Any]) -> None:
    assert arguments_object(text) == expected


def test_missing_arguments_are_none() -> None:
    assert arguments_object(None) == {}
