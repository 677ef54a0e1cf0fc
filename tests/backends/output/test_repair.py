"""JSON as models write it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.backends.output.repair import loads, repair_json
from tests.examples import examples

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab_"), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(json_values) | st.dictionaries(st.text("ab_"), json_values))
def test_valid_json_is_read_as_it_is(value: Any) -> None:
    text = json.dumps(value)
    assert loads(text) == value
    assert loads(json.dumps(value, ensure_ascii=False)) == value


@settings(max_examples=examples(150), deadline=None)
@given(st.text())
def test_anything_else_is_refused_with_a_value_error(text: str) -> None:
    for parse in (loads, repair_json):
        try:
            value = parse(text)
        except ValueError:
            continue
        json.dumps(value, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1,}', {"a": 1}),
        ("[1, 2,]", [1, 2]),
        ('{"a": 1 "b": 2}', {"a": 1, "b": 2}),
        ("{'a': 'x'}", {"a": "x"}),
        ("{'a': 'it\\'s', 'b': \"it's\"}", {"a": "it's", "b": "it's"}),
        ("{a: True, b: False, c: None}", {"a": True, "b": False, "c": None}),
        ('{"a": {"b": [1, 2', {"a": {"b": [1, 2]}}),
        ('{"a": [1, 2}', {"a": [1, 2]}),
        ('{"a": 1}}}', {"a": 1}),
        ('{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        ('{"a": "say "hi" now"}', {"a": 'say "hi" now'}),
        ('{"a": "print("x")", "b": 2}', {"a": 'print("x")', "b": 2}),
        (r'{"a": "C:\dir\new", b: 1}', {"a": "C:\\dir\new", "b": 1}),
        (r'{"a": "\u00e9\/", }', {"a": "é/"}),
        ('{"a": -1.5e3, }', {"a": -1500.0}),
    ],
)
def test_usual_mistakes_are_repaired(text: str, value: Any) -> None:
    assert repair_json(text) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "never ends}',
        '{"a"}',
        '{"a": word}',
        "",
        '{"a": 1} and more',
        "[" * 5000,
        "NaN",
        "{'a': 1e999}",
        "{'a': -1e400,}",
        "{'a': Infinity}",
    ],
)
def test_text_that_can_not_be_repaired_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        repair_json(text)


DEEP = '{"a": "\\u00e9", "b": ' + "[" * 600 + "]" * 600 + "}"


@settings(max_examples=examples(150), deadline=None)
@given(st.dictionaries(st.text("ab_", min_size=1), json_values, min_size=1), st.data())
def test_json_that_was_cut_off_keeps_all_complete_values(
    value: dict[str, Any], data: st.DataObject
) -> None:
    """Only the last key can lose something, and only its own end."""
    last = data.draw(st.text(st.characters(exclude_categories=("Cs",))))
    text = json.dumps({**value, "last": last}, ensure_ascii=data.draw(st.booleans()))
    start = text.rindex('"last": "') + len('"last": "')
    cut = data.draw(st.integers(start, len(text) - 1))
    repaired = repair_json(text[:cut], close_string=True)
    assert last.startswith(repaired.pop("last").rstrip("\ufffd"))
    assert repaired == {key: value[key] for key in value}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"path": "a.t', {"path": "a.t"}),
        ('{"a": ["x", 12', {"a": ["x", 12]}),
        ('{"a": "é\\u00', {"a": "é"}),
        ('{"a": "back\\', {"a": "back"}),
        ("{'a': 'x", {"a": "x"}),
        ('{"a": "', {"a": ""}),
    ],
)
def test_a_string_that_was_cut_off_ends_with_the_text(text: str, value: Any) -> None:
    assert repair_json(text, close_string=True) == value


@pytest.mark.parametrize(
    "text", ['{"a": NaN}', "[Infinity]", "1e999", '{"a": [-1e400]}', "[" * 100_000, DEEP]
)
def test_text_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        loads(text)
