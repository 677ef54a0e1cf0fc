"""Checks and memory of sessions, beside their tokens."""

from collections import OrderedDict
from datetime import datetime

from msgspec.structs import replace

from shepherd import errors, events, messages
from shepherd.backends.inprocess.conversation import Conversation
from shepherd.session import Session

_MAX_SESSIONS = 1024

RESERVE_DIVISOR = 8
MAX_RESERVE = 512
"""If a context overflows, an eighth of it is freed for the answer, up to this many tokens."""


def with_thinking(session: Session, *, thinking: bool | None) -> Session:
    """The session with or without reasoning; unchanged if `thinking` is None.

    A raw prompt says itself whether the model reasons. A budget of 0 means that it does not.
    """
    if session.raw_prompt is not None or session.thinking_budget == 0:
        thinking = False
    return session if thinking is None else replace(session, thinking=thinking)


def check_continuable(session: Session) -> None:
    """Raise InvalidRequestError if the answer continues a message that can't be continued."""
    if not session.continues:
        return
    last = session.messages[-1] if session.messages else None
    if last is None or last.role is not messages.Role.ASSISTANT or last.tool_calls:
        message = "Only a last message of the assistant without tool calls can be continued."
        raise errors.InvalidRequestError(message, "messages")


def continued_text(session: Session) -> events.CallbackEvent | None:
    """The kind of text that the answer continues; None for a new answer."""
    if not session.continues:
        return None
    last = session.messages[-1]
    reasoning = last.reasoning and not last.content
    return events.CallbackEvent.THINKING if reasoning else events.CallbackEvent.CONTENT


class SessionMemory:
    """The start times of sessions, and which were warned. Forgets the oldest sessions."""

    def __init__(self) -> None:
        self._began: OrderedDict[str, datetime] = OrderedDict()
        self._warned: OrderedDict[str, None] = OrderedDict()

    def conversation(self, session: Session, *, sees: bool = False) -> Conversation:
        """The session at this moment, dated at its first request: a new date would cost the cache.

        A session without an id is dated at midnight, so that its date is stable for a day. Images
        are text unless the model `sees`.
        """
        return Conversation.of(session, self._date(session), sees=sees)

    def _date(self, session: Session) -> datetime:
        """The date that templates show: the same in all requests of a session.

        Else each request would have another prompt, and none of it would be in the cache.
        """
        now = datetime.now().astimezone()
        if not session.id:  # nothing tells its requests apart, so those of a day share the date
            return now.replace(hour=0, minute=0, second=0, microsecond=0)
        if session.began is not None:
            return session.began.astimezone()
        began = self._began.setdefault(session.id, now)
        if len(self._began) > _MAX_SESSIONS:
            self._began.popitem(last=False)  # the oldest session
        return began

    def is_first_warning(self, session: Session) -> bool:
        """Whether this is the session's first warning; marks the session as warned."""
        key = session.id or f"object {id(session)}"  # a session that no client has named
        is_known = key in self._warned
        self._warned[key] = None
        if len(self._warned) > _MAX_SESSIONS:
            self._warned.popitem(last=False)  # the oldest session
        return not is_known


def check_prompt_size(prompt: int, size: int) -> None:
    """Raise ContextFullError unless a prompt of `prompt` tokens leaves room for one more.

    Raises InvalidRequestError if the prompt is empty.
    """
    if prompt == 0:
        raise errors.InvalidRequestError("The conversation is empty; there is nothing to answer.")
    if prompt + 1 > size:
        # Room for one token alone would be full at once, so the error asks for more to be freed.
        reserve = max(1, min(size // RESERVE_DIVISOR, MAX_RESERVE))
        raise errors.ContextFullError(
            f"request ({prompt} tokens) exceeds the available context size ({size} tokens)",
            prompt - (size - reserve),
            prompt,
        )
