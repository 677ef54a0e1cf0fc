"""LiteLLM, with each provider whose API is served."""

import json
from typing import Any

import pytest

from tests.clients.assistant import HELLO
from tests.clients.page import example
from tests.clients.serving import Server

litellm: Any = pytest.importorskip("litellm", reason="litellm is not installed")

MODELS = [
    pytest.param("openai/default", marks=pytest.mark.client("litellm", "Chat")),
    pytest.param("anthropic/default", marks=pytest.mark.client("litellm", "Messages")),
    pytest.param("gemini/default", marks=pytest.mark.client("litellm", "Gemini")),
    pytest.param("ollama_chat/default", marks=pytest.mark.client("litellm", "Ollama")),
]
FUNCTION = {
    "name": "weather",
    "description": "The weather of a place.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
}
TOOLS = [{"type": "function", "function": FUNCTION}]


@pytest.fixture(scope="module")
def settings(server: Server) -> Any:
    return example("litellm", server.url)["settings"]


@pytest.mark.parametrize("model", MODELS)
def test_completion(settings: Any, model: str) -> None:
    request = {"model": model, "messages": [{"role": "user", "content": "Hi"}], **settings[model]}
    answer = litellm.completion(**request)
    assert answer.choices[0].message.content == HELLO
    assert answer.usage.prompt_tokens > 0
    chunks = list(litellm.completion(**request, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == HELLO
    for chosen in ({}, {"stream": True}):
        answer = litellm.completion(**request, tools=TOOLS, **chosen)
        answer = litellm.stream_chunk_builder(list(answer)) if chosen else answer
        [call] = answer.choices[0].message.tool_calls
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments) == {"place": "Bern"}
        if not (chosen and model.startswith("ollama")):  # Ollama's streams end with `stop`
            assert answer.choices[0].finish_reason == "tool_calls"


@pytest.mark.client("litellm", "Embeddings")
@pytest.mark.parametrize("model", ["openai/default", "ollama/default"])
def test_embedding(settings: Any, model: str) -> None:
    address = settings[model.replace("ollama/", "ollama_chat/")]
    first, same, other = litellm.embedding(model=model, input=["a", "a", "b"], **address).data
    assert first["embedding"] == same["embedding"] != other["embedding"]


@pytest.mark.client("litellm", "Responses")
def test_responses(settings: Any) -> None:
    answer = litellm.responses(model="openai/default", input="Hi", **settings["openai/default"])
    assert answer.output_text == HELLO
