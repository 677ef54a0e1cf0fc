"""Streams of updates: of the whole session, and of one request; and the answer to a question."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Literal

from pydantic import Field

from shepherd.conversation.shared.requests import PromptRequest, State
from shepherd.conversation.shared.session import SharedSession
from shepherd.conversation.shared.updates import Update, UpdateKind, UpdateLog
from shepherd.json_text import frame
from shepherd.messages import JsonObject
from shepherd.server.body import RequestModel
from shepherd.server.responses import Frames
from shepherd.version import __version__

BATCH = 64
"""The number of updates that are sent at once to a slow watcher."""

MISSED = "Some updates are not kept any more; fetch the state again."


async def watch(conversation: SharedSession, client: str, after: str) -> Frames:
    """All updates after the one with the id `after`, or from now on if it is "".

    Begins with `connected`. If the stream can't resume from an id, it sends a `snapshot`.
    """
    hello = {
        "session": conversation.session.id,
        "model": conversation.backend.info.id,
        "version": __version__,
        "client": client.rpartition("\n")[2],
    }
    async with aclosing(watch_log(conversation.log, hello, after, client)) as frames:
        async for text in frames:
            yield text


async def watch_log(
    log: UpdateLog, hello: JsonObject, after: str, client: str = ""
) -> AsyncGenerator[str]:
    """The updates of a log as in `watch`; `hello` is the data of `connected`."""
    start = log.number_of(after) if after else log.last
    if start is not None and log.since(start) is None:
        start = None
    resumed = log.last if start is None else start
    hello = {**hello, "update_id": log.id_of(resumed)}
    yield frame(hello, UpdateKind.CONNECTED, log.id_of(resumed) if start is not None else "")
    if start is None:
        yield _missed(log)
    async for updates, missed in _batches(log, resumed):
        text = missed + "".join(u.frame for u in updates if u.concerns(client))
        if text:
            yield text


async def watch_request(log: UpdateLog, request: PromptRequest, start: int) -> Frames:
    """The updates of one request after `start`, up to its `response_complete`."""
    async for updates, missed in _batches(log, start):
        own = [u for u in updates if u.request == request.id and u.concerns(request.client)]
        text = missed + "".join(u.frame for u in own)
        if text:
            yield text
        ended = any(u.kind is UpdateKind.RESPONSE_COMPLETE for u in own)
        if ended or (missed and request.state is State.DONE):
            return


async def _batches(log: UpdateLog, at: int) -> AsyncIterator[tuple[list[Update], str]]:
    """Yield the updates after `at` in batches, with a frame if some are lost."""
    while await log.beyond(at):
        updates = log.since(at, BATCH)
        at = log.last if updates is None else updates[-1].number
        yield (updates, "") if updates is not None else ([], _missed(log))


def _missed(log: UpdateLog) -> str:
    last = log.id_of(log.last)
    return frame({"update_id": last, "message": MISSED}, UpdateKind.SNAPSHOT, last)


MAX_REASON = 10_000
_Reason = Annotated[str, Field(max_length=MAX_REASON)]


class DecisionBody(RequestModel):
    """The body of `POST /approvals/{id}`."""

    decision: Literal["once", "session", "always", "deny"]
    """`session` and `always` add the rules that the question names."""
    reason: _Reason = ""
    """A word to the model."""
    values: Annotated[tuple[_Reason, ...], Field(max_length=20)] = ()
    """The texts for the `fields` of the question."""
