"""Images in a shared session: they go with a prompt, and are lines of text for who watches."""

from pathlib import Path

from shepherd.backends.cliclient.client import SharedSessionClient
from tests.pictures import picture
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
