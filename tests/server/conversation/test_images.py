"""Images in a shared session: they go with a prompt, and are lines of text for who watches."""

from pathlib import Path

import pytest

from shepherd.cli.connect.client import SharedSessionClient
from shepherd.errors import InvalidRequestError
from shepherd.images import MAX_IMAGE_BYTES, Image
from tests.pictures import picture, png
from tests.server.conversation.harness import serving, until

PHOTO = picture("photo.png", 64, 48)
LABEL = "[image photo.png, 64×48]\nWhat is this?"


async def test_a_prompt_brings_an_image(work: Path) -> None:
    async with serving("text: A cat.\n", work) as served:
        async with SharedSessionClient(served.url) as client:
            await client.send("What is this?", [PHOTO])
        conversation = served.conversation
        await until(lambda: len(conversation.session.messages) == 2)
        assert conversation.session.messages[0].images == (PHOTO,)
        shown = (await served.session("me"))["messages"][0]
    assert shown == {"role": "user", "content": LABEL}


async def test_what_is_no_image_and_who_can_not_see_are_400s(work: Path) -> None:
    async with serving("vision: no\ntext: Never.\n", work) as served:
        for data, told in (("%", "base64"), ("AAAA", "convert it"), (PHOTO.base64, "can't see")):
            body = {"prompt": "?", "images": [{"data": data, "name": "a.png"}]}
            answer = await served.http.post("/request", json=body)
            assert answer.status_code == 400
            assert told in answer.json()["error"]["message"]
        assert served.conversation.session.messages == []


async def test_an_image_larger_than_a_request_is_told_with_the_setting(work: Path) -> None:
    """The largest image that is one, to a server of default settings."""
    data = png()
    largest = Image("image/png", data + bytes(MAX_IMAGE_BYTES - len(data)), "photo.png")
    async with serving("text: Never.\n", work) as served:
        async with SharedSessionClient(served.url) as client:
            with pytest.raises(InvalidRequestError, match=r"16,777,216 bytes.*max_body_bytes"):
                await client.send("What is this?", [largest])
        assert served.conversation.session.messages == []
