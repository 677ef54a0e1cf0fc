"""An answer read without a network: the bytes in any pieces, through all of the backend's layers
but its client's."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

import httpx

from shepherd.backends.api.answer import Answer, Reading
from shepherd.backends.base import Generation
from shepherd.events import Stats
from shepherd.session import Session
from tests.backends.api.support import Events
from tests.backends.conformance.talk import check_order
from tests.backends.conformance.wired import AdapterSubject


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was told, and what came of it; `broken` says why the answer ended too early."""

    events: Events
    generation: Generation
    broken: str


async def read(subject: AdapterSubject, session: Session, pieces: Iterable[bytes]) -> Outcome:
    """The answer in these pieces."""
    adapter, events = subject.adapter("http://127.0.0.1:1"), Events()
    answer = Answer(adapter, session, events)
    reading = Reading(adapter.decoder(), answer, lambda: 0.0)

    async def stream() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    headers = {"content-type": subject.content_type}
    response = httpx.Response(200, headers=headers, content=stream())
    async with asyncio.timeout(None) as limit:
        await reading.run(response, adapter.framing, limit)
    generation = answer.complete(Stats(), reading.broken)
    check_order(events)
    return Outcome(events, generation, reading.broken)
