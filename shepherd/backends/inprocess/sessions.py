"""Checks and memory of sessions, beside their tokens."""

from collections import OrderedDict
from dataclasses import replace
from datetime import datetime

from shepherd.backends.inprocess.prompt.conversation import Conversation
from shepherd.errors import ContextFullError, InvalidRequestError
from shepherd.session import Session

_MOST = 1024

RESERVE_SHARE = 8
RESERVE_MOST = 512
"""Of a context that overflows, an eighth is to be freed for the answer, at most this much."""


def thinking_as(session: Session, *, thinking: bool | None) -> Session:
    """The session with or without reasoning; as it is for None."""
    return session if thinking is None else replace(session, thinking=thinking)


class SessionMemory:
    """When a session began, and what it was warned of. Forgets the oldest of many."""

    def __init__(self) -> None:
        self._began: OrderedDict[str, datetime] = OrderedDict()
        self._warned: OrderedDict[str, None] = OrderedDict()

    def conversation(self, session: Session) -> Conversation:
        """The session now. Its date stays that of its first request: a new one costs the cache.

        A session without an id gets the day alone, for nothing else is the same next time.
        """
        now = datetime.now().astimezone()
        if not session.id:
            midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
            return Conversation.of(session, midnight)
        if session.began is not None:
            return Conversation.of(session, session.began.astimezone())
        began = self._began.setdefault(session.id, now)
        if len(self._began) > _MOST:
            self._began.popitem(last=False)
        return Conversation.of(session, began)

    def is_first_warning(self, session: Session) -> bool:
        """Whether the session was not warned before; from now on it was."""
        key = session.id or f"object {id(session)}"
        known = key in self._warned
        self._warned[key] = None
        if len(self._warned) > _MOST:
            self._warned.popitem(last=False)
        return not known


def check_room(prompt: int, size: int) -> None:
    """Raise ContextFullError unless a prompt of so many tokens leaves room for one more.

    Raises InvalidRequestError when there is no prompt.
    """
    if prompt == 0:
        raise InvalidRequestError("The conversation is empty; there is nothing to answer.")
    if prompt + 1 > size:
        reserve = max(1, min(size // RESERVE_SHARE, RESERVE_MOST))
        raise ContextFullError(
            f"request ({prompt} tokens) exceeds the available context size ({size} tokens)",
            prompt - (size - reserve),
            prompt,
        )
