"""Ollama's client."""

from typing import Any

import pytest

from tests.clients.assistant import HELLO
from tests.clients.page import example
from tests.clients.serving import Server

pytest.importorskip("ollama", reason="ollama is not installed")


def weather(place: str) -> str:
    """The weather of a place."""
    return place


@pytest.fixture(scope="module")
def client(server: Server) -> Any:
    return example("ollama", server.url)["client"]


@pytest.mark.client("ollama", "Ollama")
def test_chat_and_generate(client: Any) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    assert client.chat("default", messages).message.content == HELLO
    parts = client.chat("default", messages, stream=True)
    assert "".join(part.message.content or "" for part in parts) == HELLO
    [call] = client.chat("default", messages, tools=[weather]).message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", {"place": "Bern"})
    assert client.generate("default", "Hi").response == HELLO


@pytest.mark.client("ollama", "Embeddings")
def test_embed(client: Any) -> None:
    first, same, other = client.embed("default", ["a", "a", "b"]).embeddings
    assert first == same != other
