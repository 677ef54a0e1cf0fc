"""Anthropic's client."""

from typing import Any

import pytest

from tests.clients.assistant import HELLO
from tests.clients.page import example
from tests.clients.serving import Server

pytest.importorskip("anthropic", reason="anthropic is not installed")


@pytest.mark.client("anthropic", "Messages")
def test_messages(server: Server) -> None:
    messages = example("anthropic", server.url)["client"].messages
    request: dict[str, Any] = {
        "model": "default",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Hi"}],
    }
    answer = messages.create(**request)
    assert (answer.content[0].text, answer.stop_reason) == (HELLO, "end_turn")
    with messages.stream(**request) as stream:
        assert "".join(stream.text_stream) == HELLO
    schema = {"type": "object", "properties": {"place": {"type": "string"}}}
    tools = [{"name": "weather", "input_schema": schema}]
    answer = messages.create(**request, tools=tools)
    assert (answer.content[0].input, answer.stop_reason) == ({"place": "Bern"}, "tool_use")
    del request["max_tokens"]
    assert messages.count_tokens(**request).input_tokens > 0
