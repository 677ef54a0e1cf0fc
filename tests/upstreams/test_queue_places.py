"""A client behind several Shepherds sees the place at which the last one lets its prompt wait."""

import asyncio
from itertools import islice

import httpx
import pytest

from shepherd.backends.base import Prefilled
from shepherd.events import EventCallback, PrefillProgress
from shepherd.server import responses
from shepherd.server.settings import ServerSettings
from shepherd.session import Session
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer
from tests.server.held import HeldBackend
from tests.upstreams.asking import provider

MANY = 200
"""Lines, more than come in silence before what is looked for."""
SECOND = PrefillProgress(0, 9, place=2, seconds=30.0)


class Crowded(HeldBackend):
    """Lets a prompt wait at the second place, and then reads it until it is let go."""

    def __init__(self) -> None:
        super().__init__(hold_prefill=True)
        self.reads = asyncio.Event()

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        callback(SECOND)
        await self.reads.wait()
        callback(PrefillProgress(0, 9))
        return await super().prefill_session(session, callback)


async def _set(event: asyncio.Event) -> None:
    event.set()


@pytest.mark.parametrize(
    ("kind", "path", "end"),
    [
        ("shepherd", CHAT, "data: [DONE]"),
        ("anthropic", "/v1/messages", 'data: {"type":"message_stop"}'),
    ],
)
def test_the_place_and_the_end_of_the_wait_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, kind: str, path: str, end: str
) -> None:
    monkeypatch.setattr(responses, "PLACE_SECONDS", 0.02)
    settings = ServerSettings.model_construct(port=0, keepalive=0.05)
    crowded, loop = Crowded(), asyncio.new_event_loop()
    with RunningServer(crowded, settings) as last:
        near = loop.run_until_complete(provider(kind, last.url))
        body = {"model": "default", "messages": HI, "max_tokens": 9, "stream": True}
        with (
            RunningServer(near, settings, loop=loop) as first,
            httpx.stream("POST", first.url + path, json=body, timeout=PATIENCE) as response,
        ):
            lines = response.iter_lines()
            assert f": {SECOND.waits}" in islice(lines, MANY)
            last.do(_set(crowded.reads))
            assert ": keep-alive" in islice(lines, MANY)
            last.do(_set(crowded.go))
            rest = list(lines)
    assert not any("waiting" in line for line in rest)
    assert rest[-2:] == [end, ""]
