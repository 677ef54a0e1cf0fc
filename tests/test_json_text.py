"""JSON by pydantic against Python's own."""

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.json_text import (
    as_object,
    json_bytes,
    object_in,
    read_json,
    referenced,
    strict_json,
)

LETTERS = st.characters(codec=None, exclude_categories=())  # half letters too
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(LETTERS),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(LETTERS), inner),
)
ODD = ["", " ", "{", '{"a":1,}', "1 2", "01", "1e400", "-1E-400", "1" * 400, '"\\ud83d"', '"\\u00"',
       '"\\ud83d\\ude00"', '"\ud83d"', "nan", "NaN", "-Infinity", '{"a":1,"a":2}', '"\t"', "'a'",
       "\ufeff1", '"\\x"', "[" * 150 + "]" * 150, "[" * 90 + "1", "truefalse", "nul"]  # fmt: skip


def quickly(text: str) -> str:
    return _told(text, lambda text: read_json(text.encode("utf-8", "replace")))


def by_python(text: str) -> str:
    return _told(text.encode("utf-8", "replace").decode(), json.loads)


def _told(text: str, reader: Callable[[str], object]) -> str:
    try:
        return repr(reader(text))
    except ValueError:
        return "no JSON"


@given(VALUES)
def test_reading_is_what_python_reads(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert quickly(text) == by_python(text)


@given(VALUES, st.data())
def test_damaged_json_is_read_or_refused_as_python_does(value: object, data: st.DataObject) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text)))
    damaged = text[:at] + data.draw(st.text(max_size=2)) + text[at + data.draw(st.integers(0, 2)) :]
    assert quickly(damaged) == by_python(damaged)


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_are_read_or_refused_as_python_does(text: str) -> None:
    assert quickly(text) == by_python(text)


@given(VALUES)
def test_what_is_written_reads_the_same(value: object) -> None:
    expected = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    assert repr(json.loads(json_bytes(value))) == repr(json.loads(expected))


@given(st.binary(max_size=8))
def test_what_is_no_utf_8_is_read_as_such(junk: bytes) -> None:
    data = b'{"a":"' + junk + b'"}'
    assert _told("", lambda _: read_json(data)) == _told(
        data.decode("utf-8", "replace"), json.loads
    )


@given(VALUES)
def test_what_is_written_for_a_reader_is_json(value: object) -> None:
    try:
        expected = json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            strict_json(value)
    else:
        assert repr(json.loads(strict_json(value))) == repr(expected)


def test_what_is_nested_without_end_is_refused() -> None:
    inner: list[object] = []
    inner.append(inner)
    with pytest.raises(ValueError, match="Circular"):
        json_bytes(inner)
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RecursionError):
        json_bytes(deep)
    with pytest.raises(RecursionError):
        read_json(b"[" * 100_000)


def test_blanks_are_not_written() -> None:
    written = json_bytes({"a": [1, math.pi], "\ud83d": "é"})
    assert written == b'{"a":[1,3.141592653589793],"?":"\xc3\xa9"}'


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("#", "the root"),
        ("#/$defs/Point", "a point"),
        ("#/$defs/a~1b", "a slash"),
        ("#/$defs/Missing", None),
        ("#node", None),  # an anchor: the root instead would make a schema without end
        ("https://example.com/schema#/$defs/Point", None),
    ],
)
def test_a_reference_names_a_part_of_its_own_schema(reference: str, expected: str | None) -> None:
    parts = {"Point": {"title": "a point"}, "a/b": {"title": "a slash"}, "N": {"$anchor": "node"}}
    schema = {"title": "the root", "$defs": parts}
    assert as_object(referenced(schema, reference)).get("title") == expected


@given(st.one_of(VALUES.map(json.dumps), st.text(LETTERS)))
def test_a_text_is_an_object_or_gives_an_empty_one(text: str) -> None:
    try:
        value: object = json.loads(text.encode("utf-8", "replace").decode())
    except ValueError:
        value = None
    assert repr(object_in(text)) == repr(as_object(value))
    assert object_in(text.encode("utf-8", "replace")).keys() == as_object(value).keys()


def test_an_object_that_is_nested_too_deep_counts_as_none() -> None:
    for depth in (200, 100_000):
        assert object_in('{"a":' * depth + "1" + "}" * depth) == {}
