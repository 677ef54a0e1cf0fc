"""Streams of updates: of the whole session, and of one request; and the answer to a question."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Literal

from pydantic import Field

from shepherd import json_text, messages
from shepherd.conversation.shared import requests, session
from shepherd.conversation.shared.updates import Update, UpdateKind, UpdateLog
from shepherd.server.body import RequestModel
from shepherd.tools.permissions.approval import Approval, Choice
from shepherd.version import __version__

BATCH = 64
"""The number of updates that are sent at once to a slow watcher."""

MISSED = "Some updates are not kept any more; fetch the state again."


def watch(conversation: session.SharedSession, client: str, after: str) -> AsyncGenerator[str]:
    """All updates after the one with the id `after`, or from now on if it is "".

    Begins with `connected`. If the stream can't resume from an id, it sends a `snapshot`.
    """
    hello = {
        "session": conversation.session.id,
        "model": conversation.backend.info.id,
        "version": __version__,
        "client": client.rpartition("\n")[2],  # without its key, as the client knows itself
    }
    return watch_log(conversation.log, hello, after, client)


async def watch_log(
    log: UpdateLog, hello: messages.JsonObject, after: str, client: str = ""
) -> AsyncGenerator[str]:
    """The updates of a log as in `watch`; `hello` is the data of `connected`."""
    start = log.number_of(after) if after else log.last  # None: not of this log
    can_resume = start is not None and log.since(start) is not None
    first = log.last if start is None or not can_resume else start
    hello = {**hello, "update_id": log.id_of(first)}
    # no id if updates are missing: a client that reconnects then names its old one again
    yield json_text.frame(hello, UpdateKind.CONNECTED, log.id_of(first) if can_resume else "")
    if not can_resume:
        yield _missed(log)
    async for updates, missed in _batches(log, first):
        text = missed + "".join(update.frame for update in updates if update.concerns(client))
        if text:
            yield text


async def watch_request(
    log: UpdateLog, request: requests.PromptRequest, start: int
) -> AsyncGenerator[str]:
    """The updates of one request after `start`, up to its `response_complete`."""
    async for updates, missed in _batches(log, start):
        of_request = [
            update
            for update in updates
            if update.request == request.id and update.concerns(request.client)
        ]
        text = missed + "".join(update.frame for update in of_request)
        if text:
            yield text
        is_complete = any(update.kind is UpdateKind.RESPONSE_COMPLETE for update in of_request)
        # the end of a request that is over may be among what was missed, and comes only once
        may_have_missed_end = bool(missed) and request.state is requests.State.DONE
        if is_complete or may_have_missed_end:
            return


async def _batches(log: UpdateLog, last: int) -> AsyncIterator[tuple[list[Update], str]]:
    """Yield the updates after the number `last` in batches, with a frame if some are lost."""
    while await log.beyond(last):
        updates = log.since(last, BATCH)
        if updates is None:  # the watcher is so slow that they are not kept any more
            last = log.last
            yield [], _missed(log)
        else:
            last = updates[-1].number
            yield updates, ""


def _missed(log: UpdateLog) -> str:
    """The frame that tells a client to fetch the state again."""
    last = log.id_of(log.last)
    return json_text.frame({"update_id": last, "message": MISSED}, UpdateKind.SNAPSHOT, last)


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
    parts: Annotated[tuple[int, ...], Field(max_length=1000)] | None = None
    """The numbers of its `parts` that are kept, from 1; only with `once`. null keeps all."""

    def approval(self, by: str) -> Approval:
        """The answer of a client."""
        choice = Choice(self.decision)
        return Approval(choice, self.reason, by=by, values=self.values, parts=self.parts)
