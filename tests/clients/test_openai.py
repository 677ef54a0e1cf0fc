"""OpenAI's client."""

import json
from typing import Any

import pytest

from tests.clients.assistant import HELLO
from tests.clients.page import example
from tests.clients.serving import Server

pytest.importorskip("openai", reason="openai is not installed")

TOOL: dict[str, Any] = {
    "name": "weather",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def client(server: Server) -> Any:
    return example("openai", server.url)["client"]


@pytest.mark.client("openai", "Chat")
def test_chat(client: Any) -> None:
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    chat = client.chat.completions
    answer = chat.create(model="default", messages=messages)
    assert (answer.choices[0].message.content, answer.model) == (HELLO, "default")
    chunks = list(chat.create(model="default", messages=messages, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == HELLO
    tools = [{"type": "function", "function": TOOL}]
    answer = chat.create(model="default", messages=messages, tools=tools)
    [call] = answer.choices[0].message.tool_calls
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"place": "Bern"}


@pytest.mark.client("openai", "Responses")
def test_responses(client: Any) -> None:
    answer = client.responses.create(model="default", input="Hi")
    assert (answer.output_text, answer.status) == (HELLO, "completed")
    with client.responses.stream(model="default", input="Hi") as stream:
        assert stream.get_final_response().output_text == HELLO
    tools = [{"type": "function", **TOOL}]
    [call] = client.responses.create(model="default", input="Hi", tools=tools).output
    assert (call.name, json.loads(call.arguments)) == ("weather", {"place": "Bern"})


@pytest.mark.client("openai", "Completions")
def test_completions(client: Any) -> None:
    answer = client.completions.create(model="default", prompt="Once")
    assert answer.choices[0].text == HELLO


@pytest.mark.client("openai", "Embeddings")
def test_embeddings(client: Any) -> None:
    first, same, other = client.embeddings.create(model="default", input=["a", "a", "b"]).data
    assert first.embedding == same.embedding != other.embedding
