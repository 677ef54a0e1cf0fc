"""Content of messages as text and images."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.images import MAX_IMAGES
from shepherd.server.wire.content import Content, content_of
from tests.pictures import picture

URL = picture("").data_url


@given(st.text())
def test_a_string_is_itself_in_every_form(text: str) -> None:
    for content in (text, [{"type": "text", "text": text}], [text]):
        assert content_of(content) == Content(text)
    assert content_of([{"type": "input_text", "text": text}]) == Content(text)


def test_parts_are_joined_by_newlines() -> None:
    parts = [{"type": "text", "text": "a"}, "b", {"type": "refusal", "refusal": "c"}]
    assert content_of(parts) == Content("a\nb\nc")
    assert content_of([]) == content_of(None) == Content()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        {"type": "image_url", "image_url": URL},
        {"type": "input_image", "image_url": URL.replace("image/png", "image/jpeg")},
    ],
)
def test_images_come_as_data_urls(part: object) -> None:
    """What the bytes are counts, not what the URL says of them."""
    parts = [{"type": "text", "text": "a"}, part, "b"]
    assert content_of(parts) == Content("a\nb", (picture(""),))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"type": "image_url", "image_url": {"url": "https://a.org/b.png"}}], "fetches nothing"),
        ([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}], "data URL"),
        ([{"type": "image_url", "image_url": {"detail": "low"}}], "needs its URL"),
        ([{"type": "image_url", "image_url": "data:image/png,abc"}], "must be in base64"),
        ([{"type": "image_url", "image_url": "data:image/png;base64,%"}], "not valid base64"),
        ([{"type": "image_url", "image_url": "data:image/png;base64,AAAA"}], "convert it"),
        ([{"type": "image_url", "image_url": URL}] * (MAX_IMAGES + 1), "too many"),
        ([{"type": "input_audio"}], "text and images only"),
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
        content_of(content)
