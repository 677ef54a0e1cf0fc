"""Ollama's client, and the shapes of its answers."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import ollama

from tests.server.harness import RunningServer
from tests.server.held import RecordingBackend

CHAT, GENERATE = "/api/chat", "/api/generate"
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


def recording(script: str = "text: hello") -> RunningServer[RecordingBackend]:
    """A server whose backend keeps the sessions."""
    return RunningServer(RecordingBackend(script))


@contextmanager
def client_of(server: RunningServer[Any], key: str = "") -> Generator[Any]:
    """Ollama's client of a server; its overloads ask for more types than a test has."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    client = ollama.Client(host=server.url, headers=headers)
    try:
        yield client
    finally:
        client.close()


def joined(chunks: list[ollama.ChatResponse]) -> str:
    """The content of a stream."""
    return "".join(chunk.message.content or "" for chunk in chunks)
