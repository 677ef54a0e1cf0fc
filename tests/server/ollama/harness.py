"""Ollama's client, and the shapes of its answers."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import ollama

from shepherd.backends.base import Prefilled
from shepherd.backends.scripted import ScriptedBackend, parse_script
from shepherd.events import EventCallback
from shepherd.session import Session
from tests.server.harness import RunningServer

CHAT, GENERATE = "/api/chat", "/api/generate"
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


class Recording(ScriptedBackend):
    """Keeps the sessions of its requests."""

    def __init__(self, script: str) -> None:
        super().__init__(parse_script(script))
        self.sessions: list[Session] = []

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        self.sessions.append(session)
        return await super().prefill_session(session, callback)


def recording(script: str = "text: hello") -> RunningServer[Recording]:
    """A server whose backend keeps the sessions."""
    return RunningServer(Recording(script))


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
