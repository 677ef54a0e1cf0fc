"""The updates of a shared session: their form, and the numbered log of the newest."""

import asyncio
import secrets
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from itertools import islice
from typing import Protocol

from msgspec import Struct

from shepherd import errors, events
from shepherd.json_text import frame
from shepherd.messages import JsonObject, Message, message_to_json
from shepherd.session import Session, SessionJournal

CLIENT_HEADER = "X-Client-ID"
REQUEST_HEADER = "X-Shepherd-Request"
RESUME_HEADER = "Last-Event-ID"


class UpdateKind(StrEnum):
    """The name of an update in the protocol.

    The first two belong to a connection. The others belong to the session and have increasing ids.
    """

    CONNECTED = "connected"
    SNAPSHOT = "snapshot"

    QUEUED = "queued"
    STARTED = "started"
    RESPONSE_COMPLETE = "response_complete"

    MESSAGE_ADDED = "message_added"
    EVICTION = "eviction"
    CLEARED = "cleared"

    DELTA = "delta"
    THINKING = "thinking"
    CODEBLOCK = "codeblock"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    NOTICE = "notice"
    STATS = "stats"
    STOP = "stop"
    ERROR = "error"

    APPROVAL_NEEDED = "approval_needed"
    APPROVAL_OPEN = "approval_open"
    APPROVAL_DECIDED = "approval_decided"


_RENAMED = {"content": UpdateKind.DELTA, "system": UpdateKind.NOTICE}
_UPDATES = {
    kind: _RENAMED.get(kind) or UpdateKind(kind)
    for kind in events.CallbackEvent
    if kind is not events.CallbackEvent.USER_PROMPT
}
"""The update that an event becomes; their data is the same."""
_KINDS = {update: kind for kind, update in _UPDATES.items()}


def from_event(event: events.Event) -> tuple[UpdateKind, JsonObject] | None:
    """An event as an update; None for the prompt, which is sent as a message."""
    if isinstance(event, events.UserPrompt):
        return None
    data = events.event_to_json(event)
    return _UPDATES[data.pop("kind")], data


def to_event(kind: UpdateKind, data: JsonObject) -> events.Event | None:
    """The original event of `from_event`; None for an update without an event.

    Raises KeyError for data of another kind.
    """
    return events.event_from_json({**data, "kind": _KINDS[kind]}) if kind in _KINDS else None


class RefusalCode(StrEnum):
    """The reason for a refusal; a part of the protocol."""

    REQUEST_ENDED = "request_ended"
    REQUEST_NOT_FOUND = "request_not_found"
    SESSION_NOT_FOUND = "session_not_found"
    CONVERSATION_BUSY = "conversation_busy"
    APPROVAL_NOT_FOUND = "approval_not_found"
    NOT_YOUR_REQUEST = "not_your_request"
    INVALID_DECISION = "invalid_value"


class SharedSessionError(errors.ShepherdError):
    """The session can't do this now, or not for this client."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.code = code


MAX_UPDATES = 20_000
MAX_BYTES = 16 * 1024 * 1024
"""The maximum memory of the kept updates."""

_OVERHEAD = 400
_MAX_DIGITS = 18


class Update(Struct, frozen=True):
    """One update, ready to be sent.

    `request` is the id of its request. The `author` already knows it and does not get it; an
    `addressee` is the only client that gets it.
    """

    number: int
    kind: UpdateKind
    frame: str
    request: str = ""
    author: str = ""
    addressee: str = ""

    def concerns(self, client: str) -> bool:
        """Whether this client gets the update."""
        return self.addressee in ("", client) and not (self.author and self.author == client)


class UpdateLog:
    """The updates since the server started; the last ones can be read again.

    An update's id is `epoch-number`. Each start has a new epoch, so that older ids are recognised.
    `closed` once no more updates can follow.
    """

    def __init__(self, max_updates: int = MAX_UPDATES, max_bytes: int = MAX_BYTES) -> None:
        self.epoch = secrets.token_hex(4)
        self.last = 0
        self.closed = False
        self._max_updates = max_updates
        self._max_bytes = max_bytes
        self._kept: deque[Update] = deque()  # the oldest first
        self._bytes = 0  # of what is kept, as `_size` estimates it
        self._changed = asyncio.Event()

    def publish(
        self,
        kind: UpdateKind,
        data: JsonObject,
        *,
        request: str = "",
        author: str = "",
        addressee: str = "",
    ) -> Update:
        """Add an update and wake the tasks that wait for it."""
        self.last += 1
        if request:
            data = {"request": request, **data}
        text = frame(data, kind, self.id_of(self.last))
        update = Update(self.last, kind, text, request, author, addressee)
        self._kept.append(update)
        self._bytes += _size(text)
        while len(self._kept) > 1 and (  # the newest stays, however large
            len(self._kept) > self._max_updates or self._bytes > self._max_bytes
        ):
            self._bytes -= _size(self._kept.popleft().frame)
        self._wake()
        return update

    def since(self, number: int, limit: int = MAX_UPDATES) -> list[Update] | None:
        """The first `limit` updates after `number`; None if some of them are no longer kept."""
        missed = self.last - number  # below 0 for a number that no update has yet
        if not 0 <= missed <= len(self._kept):
            return None
        newest_first = list(islice(reversed(self._kept), missed))  # the log can be long
        return newest_first[::-1][:limit]

    async def beyond(self, number: int) -> bool:
        """Wait for an update after `number`; False if none can follow."""
        while self.last <= number:
            if self.closed:
                return False
            await self._changed.wait()
        return True

    def close(self) -> None:
        """No more updates can follow."""
        self.closed = True
        self._wake()

    def id_of(self, number: int) -> str:
        """The id of an update."""
        return f"{self.epoch}-{number}"

    def number_of(self, id: str) -> int | None:
        """The number in an id; None if the id is not from this log."""
        epoch, _, digits = id.strip().partition("-")
        if epoch != self.epoch or not digits.isascii() or not digits.isdecimal():
            return None
        return int(digits) if len(digits) <= _MAX_DIGITS else None  # no log counts further

    def _wake(self) -> None:
        """Let those who wait now look at the log; who waits later waits for the next change."""
        self._changed.set()
        self._changed.clear()


def _size(text: str) -> int:
    """The maximum of bytes in an update with this text; a string's characters have one width."""
    return _OVERHEAD + len(text) * (1 if text.isascii() else 4)


class HistoryListener(Protocol):
    """Receives a change as an update; `message` is the added one."""

    def __call__(
        self, kind: UpdateKind, data: JsonObject, message: Message | None = None
    ) -> None: ...


class NotSaved(SessionJournal):
    """The journal of a session that is not saved: a protocol's methods do nothing."""


class SharedJournal(Struct, eq=False):
    """The journal of a shared session; `inner` saves it."""

    session: Session
    inner: SessionJournal
    tell: HistoryListener

    def message_added(self, message: Message) -> None:
        self.inner.message_added(message)
        as_json = message_to_json(message.without_images())
        data = {"index": len(self.session.messages) - 1, "message": as_json}
        self.tell(UpdateKind.MESSAGE_ADDED, data, message)

    def answer_grown(self, answer: Message) -> None:
        self.inner.answer_grown(answer)

    def messages_evicted(self, ranges: Sequence[range]) -> None:
        self.inner.messages_evicted(ranges)
        self.tell(UpdateKind.EVICTION, {"removed": [[r.start, r.stop] for r in ranges]})

    def cleared(self) -> None:
        self.inner.cleared()
        self.tell(UpdateKind.CLEARED, {})

    def branched(self, number: int, messages: Sequence[int | None], resumed: int | None) -> None:
        self.inner.branched(number, messages, resumed)
        self.tell(UpdateKind.SNAPSHOT, {})  # clients read the state again

    def compacted(self, ranges: Sequence[range], summary: Message) -> None:
        self.inner.compacted(ranges, summary)
        self.tell(UpdateKind.SNAPSHOT, {})
