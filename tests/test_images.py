"""Images are known by their bytes, and never break what they go through."""

import base64
import contextlib
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.conversation.export import as_json, as_markdown
from shepherd.errors import ImageError
from shepherd.images import (
    MAX_IMAGE_BYTES,
    MAX_IMAGES,
    MEDIA_TYPES,
    Image,
    check_count,
    decode_image,
    load_image,
    read_image,
)
from shepherd.memory.store import archived_text
from shepherd.messages import Message, ToolCall, message_from_json
from shepherd.session import Session
from shepherd.tools.files.read import ReadImage
from shepherd.tools.registry import ToolRegistry
from shepherd.transcript import SessionStore
from tests.pictures import gif, jpeg, picture, png, webp
from tests.tools.workshop import open_workshop

MAKERS: dict[Callable[[int, int], bytes], str] = {
    png: "image/png",
    gif: "image/gif",
    jpeg: "image/jpeg",
    webp: "image/webp",
    partial(webp, kind=b"VP8L"): "image/webp",
    partial(webp, kind=b"VP8X"): "image/webp",
}
PNG_SIDE = 200  # they are made whole, so large ones would take long

anything = st.sampled_from(list(MAKERS)).map(lambda make: make(7, 9)) | st.binary(max_size=40)


@given(st.sampled_from(list(MAKERS)), st.data())
def test_type_and_size_are_read_from_the_bytes(
    make: Callable[[int, int], bytes], data: st.DataObject
) -> None:
    sides = st.integers(1, PNG_SIDE if make is png else 16_383)
    width, height = data.draw(sides), data.draw(sides)
    image = read_image(make(width, height), "a.bin")
    assert (image.media_type, image.size) == (MAKERS[make], (width, height))
    assert image.label == f"[image a.bin, {width}×{height}]"


@given(anything, st.integers(0, 60))
def test_damaged_images_are_told_and_never_break(data: bytes, end: int) -> None:
    cut = data[:end]
    images = [Image(kind, cut) for kind in MEDIA_TYPES]
    assert all(image.label.startswith("[image") for image in images)
    if not any(all(image.size) for image in images):
        with pytest.raises(ImageError, match=r"convert it|save it again"):
            read_image(cut)


def test_what_models_can_not_take_is_refused_with_a_way_out() -> None:
    with pytest.raises(ImageError, match=r"a\.bmp is not a PNG, JPEG, GIF or WebP; convert"):
        read_image(b"BM" + bytes(60), "a.bmp")
    with pytest.raises(ImageError, match="larger than 20 MiB; make it smaller"):
        read_image(png() + bytes(MAX_IMAGE_BYTES), "a.png")
    with pytest.raises(ImageError, match="damaged"):
        read_image(png(0, 5))
    check_count([0] * MAX_IMAGES)
    with pytest.raises(ImageError, match="21 images are too many"):
        check_count([0] * (MAX_IMAGES + 1))


def test_long_padding_ends() -> None:
    assert Image("image/jpeg", b"\xff\xd8" + b"\xff" * 1_000_000).size == (0, 0)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"media_type": "image/bmp", "data": ""},
        {"media_type": "image/png", "data": "%%%"},
        {"media_type": "image/png", "data": 7},
    ],
)
def test_damaged_json_is_refused(data: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        message_from_json({"role": "user", "content": "", "images": [data]})


def test_text_shows_a_label_and_never_the_bytes() -> None:
    image = picture("a\nb.png", 640, 480)
    message = Message.user("What is this?", (image,))
    label = "[image a b.png, 640×480]"
    assert message.plain_text == f"{label}\nWhat is this?"
    assert Message.user("", (image,)).plain_text == label
    assert message.without_images() == Message.user(f"{label}\nWhat is this?")
    texts = [
        as_markdown(Session(messages=[message])),
        as_json(Session(messages=[message])),
        archived_text(message),
        repr(message),
    ]
    for text in texts:
        assert image.base64[:40] not in text
    assert all("640×480" in text for text in texts[:3])


def test_a_session_file_keeps_images_a_line_each(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    transcript = store.create(tmp_path, "m", "", pytest.fail)
    call = ToolCall("1", "look", {})
    messages = [
        Message.user("", (picture(), picture("b.png", 640, 480))),
        Message.assistant("", tool_calls=(call,)),
        Message.user("gone", (picture(),)),
    ]
    for message in messages:
        transcript.message_added(message)
    transcript.messages_evicted([range(2, 3)])
    transcript.close()
    path = tmp_path / f"{transcript.header.id}.jsonl"
    lines = path.read_text().splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["session", *["message"] * 3, "evicted"]
    saved = store.read(transcript.header.id)
    assert list(saved.messages[:2]) == messages[:2]
    assert saved.messages[2].tool_call_id == "1"
    assert store.summary(saved.id).title.startswith("[image photo.png")
    damaged = path.read_text().replace("image/png", "image/bmp")
    path.write_text(damaged)
    assert "damaged line skipped" in store.read(saved.id).warnings[0]


@pytest.mark.parametrize(("over", "refused"), [(0, False), (1, True), (4096, True)])
async def test_a_file_over_the_limit_is_refused_and_never_cut(
    tmp_path: Path, over: int, *, refused: bool
) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png())
    os.truncate(path, MAX_IMAGE_BYTES + over)
    registry = ToolRegistry([ReadImage()])
    result = await open_workshop(tmp_path, registry=registry).result("read_file", path=str(path))
    assert result.ok is not refused
    assert ("larger than 20 MiB" in result.content) is refused
    assert len(result.images) == (not refused)
    with pytest.raises(ImageError, match="larger") if refused else contextlib.nullcontext():
        load_image(path, "a.png")


@given(st.sampled_from(list(MAKERS)), st.integers(1, 2), st.integers(-9, 9), st.data())
def test_base64_is_decoded_in_slices_as_in_one_go(
    make: Callable[[int, int], bytes], slices: int, more: int, data: st.DataObject
) -> None:
    """Slices have 64 KiB of text; the text ends near the end of one, and so does what is put in."""
    end = slices * 64 * 1024
    image = make(7, 9).ljust(end * 3 // 4 + more, b"\1")
    text = base64.b64encode(image).decode()
    near = st.integers(end - 16, end + 16).map(lambda place: min(place, len(text)))
    place = data.draw(near | st.integers(0, len(text)))
    put = data.draw(st.sampled_from(["", " ", "\n\t", "=", "A", "*", "é", "=QQ="]))
    changed = text[:place] + put + text[place:]
    if not put.strip():
        assert decode_image(changed).data == image
    else:
        with pytest.raises(ImageError):
            decode_image(changed)


def test_text_in_the_slice_after_the_padding_is_refused() -> None:
    text = base64.b64encode(png().ljust(64 * 1024 * 3 // 4 - 1, b"\1")).decode()
    assert text.endswith("=")
    assert len(text) == 64 * 1024
    with pytest.raises(ImageError, match="text after its end"):
        decode_image(text + "AAAA")


def test_what_is_no_image_is_not_decoded_to_its_end() -> None:
    with pytest.raises(ImageError, match="convert it"):
        decode_image(base64.b64encode(bytes(200_000)).decode() + "*")
