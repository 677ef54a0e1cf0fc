"""Google's client."""

from typing import Any

import pytest

from tests.clients.assistant import HELLO, SUNNY, WEATHER
from tests.clients.page import example
from tests.clients.serving import Server

pytest.importorskip("google.genai", reason="google-genai is not installed")


def weather(place: str) -> str:
    """The weather of a place."""
    return SUNNY if place == "Bern" else "unknown"


@pytest.mark.client("google-genai", "Gemini")
def test_gemini(server: Server) -> None:
    client: Any = example("google-genai", server.url)["client"]
    models = client.models
    assert models.generate_content(model="default", contents="Hi").text == HELLO
    chunks = models.generate_content_stream(model="default", contents="Hi")
    assert "".join(chunk.text or "" for chunk in chunks) == HELLO
    answer = models.generate_content(model="default", contents="?", config={"tools": [weather]})
    assert answer.text == WEATHER
    assert models.count_tokens(model="default", contents="Hi").total_tokens > 0
