"""Content of messages as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.server.openai.content import text_of


@given(st.text())
def test_a_string_is_itself_in_every_form(text: str) -> None:
    assert text_of(text) == text
    assert text_of([{"type": "text", "text": text}]) == text
    assert text_of([{"type": "input_text", "text": text}]) == text
    assert text_of([text]) == text


def test_parts_are_joined_by_newlines() -> None:
    parts = [{"type": "text", "text": "a"}, "b", {"type": "refusal", "refusal": "c"}]
    assert text_of(parts) == "a\nb\nc"
    assert text_of([]) == text_of(None) == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"type": "image_url", "image_url": {"url": "x"}}], "'image_url' is not supported"),
        ([{"type": "input_audio"}], "text only"),
        ([{"type": ["text"]}], "not supported"),
        ([{"text": "typeless"}], "not supported"),
        ([{"type": "text"}], "needs a string in 'text'"),
        ([{"type": "text", "text": None}], "needs a string"),
        ([1], "must be an object"),
        ({"type": "text", "text": "x"}, "a string or a list"),
        (7, "a string or a list"),
    ],
)
def test_other_content_is_refused_by_name(content: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        text_of(content)
