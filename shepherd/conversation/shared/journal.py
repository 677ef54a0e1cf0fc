"""Tells changes of a session's history to its transcript, and then to everybody."""

from collections.abc import Sequence
from typing import Protocol

from shepherd.conversation.shared.protocol import UpdateKind
from shepherd.messages import JsonObject, Message, message_to_json
from shepherd.session import Session, SessionJournal


class HistoryListener(Protocol):
    """Is told of a change as an update; `message` is the one that was added."""

    def __call__(
        self, kind: UpdateKind, data: JsonObject, message: Message | None = None
    ) -> None: ...


class SharedJournal:
    """The journal of a session that is watched; `inner` writes it down, if anything does."""

    def __init__(
        self, session: Session, inner: SessionJournal | None, tell: HistoryListener
    ) -> None:
        self._session = session
        self._inner = inner
        self._tell = tell

    def message_added(self, message: Message) -> None:
        if self._inner is not None:
            self._inner.message_added(message)
        shown = message_to_json(message.without_images())
        data = {"index": len(self._session.messages) - 1, "message": shown}
        self._tell(UpdateKind.MESSAGE_ADDED, data, message)

    def messages_evicted(self, ranges: Sequence[range]) -> None:
        if self._inner is not None:
            self._inner.messages_evicted(ranges)
        self._tell(UpdateKind.EVICTION, {"removed": [[r.start, r.stop] for r in ranges]})

    def cleared(self) -> None:
        if self._inner is not None:
            self._inner.cleared()
        self._tell(UpdateKind.CLEARED, {})
