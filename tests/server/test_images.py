"""Images in chat requests, sent with the official `openai` client."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.pictures import picture
from tests.server.harness import RunningServer, ask, scripted
from tests.server.held import RecordingBackend

PHOTO = picture("", 640, 480)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer[RecordingBackend]]:
    with RunningServer(RecordingBackend("vision: yes\ntext: A cat.\n")) as running:
        yield running


def showing(url: str, role: str = "user") -> list[Any]:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": url, "detail": "high"}},
    ]
    return [{"role": role, "content": parts}]


def test_an_image_reaches_a_model_that_sees(server: RunningServer[RecordingBackend]) -> None:
    with server.client() as client:
        answer = ask(client, messages=showing(PHOTO.data_url))
    assert answer.choices[0].message.content == "A cat."
    (message,) = server.backend.sessions[-1].messages
    assert (message.content, message.images) == ("What is this?", (PHOTO,))
    listed = httpx.get(f"{server.url}/v1/models").json()["data"][0]
    assert listed["architecture"]["input_modalities"] == ["text", "image"]


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        (showing("https://example.org/cat.png"), "data URL"),
        (showing("data:image/png;base64,AAAA"), "convert it"),
        (showing(PHOTO.data_url, "assistant"), "messages of the user"),
        (showing(PHOTO.data_url, "system"), "messages of the user"),
    ],
)
def test_what_can_not_be_an_image_is_a_400(
    server: RunningServer[RecordingBackend], messages: list[Any], told: str
) -> None:
    before = len(server.backend.sessions)
    with server.client() as client, pytest.raises(openai.BadRequestError, match=told) as caught:
        ask(client, messages=messages)
    assert (caught.value.param, caught.value.code) == ("messages.0.content", "invalid_value")
    assert len(server.backend.sessions) == before


def test_a_model_that_can_not_see_is_a_400() -> None:
    with scripted("vision: no\ntext: Never.\n") as server, server.client() as client:
        with pytest.raises(openai.BadRequestError, match="text only") as caught:
            ask(client, messages=[*showing(PHOTO.data_url), {"role": "user", "content": "so?"}])
        assert caught.value.param == "messages.0.content"
        listed = httpx.get(f"{server.url}/v1/models").json()["data"][0]
        assert listed["architecture"]["input_modalities"] == ["text"]
