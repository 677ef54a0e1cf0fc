"""When sessions ask again: memory loses first what returns last.

The best order of leaving needs the future. What is known of it: a session with an open request asks
now, one whose answer ended with calls waits for tools, whose times are learned, one whose answer
ended with text waits for a person, and a sub-agent that has reported never asks again.
"""

from array import array
from collections.abc import Callable, Iterable
from math import inf
from time import time
from typing import Protocol, TypeVar

from msgspec import Struct

from shepherd.backends.llamacpp.cache.prefixes import NOBODY, Owner, Query, common_prefix, packed

PERSON_SECONDS = 600.0
"""A person is expected behind nearly all tools: half of the persons in public traces of an agent
wait longer than 440 s, and one in a hundred tools longer than 610 s."""

MAX_SESSIONS = 1024
"""Sessions that are known by name."""


class Return(Struct, eq=False):
    """What is known of a session's next request; all that it holds shares one.

    Since its last answer ended (`since`, in seconds since the epoch) it waits for a tool that takes
    about `seconds`, for a person if that is None, or for nothing any more if it is infinite.
    `asking` requests are queued or run. `tokens` are those that it held when its tool began, and
    `owner` is theirs.
    """

    since: float = 0.0
    seconds: float | None = None
    asking: int = 0
    tokens: "array[int]" = packed(())
    owner: Owner = NOBODY

    def note_end(self) -> None:
        """Note the end of a request; before anything else is known, a person reads its answer."""
        self.asking -= 1
        self.since, self.seconds = time(), None

    def remaining(self, now: float) -> float:
        """The expected seconds until the session asks again."""
        if self.asking:
            return 0.0
        waited = now - self.since
        if self.seconds is None:  # among persons, the one who was here last is expected first
            return PERSON_SECONDS + waited
        return abs(self.seconds - waited)  # a late tool is expected to be late as long again


class Held(Protocol):
    """Tokens of a session in some tier; `used` is the time of their last use."""

    returns: Return
    used: float

    @property
    def packed(self) -> "array[int]":
        """The tokens as an array."""
        ...


HeldT = TypeVar("HeldT", bound=Held)


def last_to_return(held: Iterable[HeldT]) -> HeldT:
    """The one whose session is expected last; of equals, the one that was used longest ago."""
    now = time()
    return max(held, key=lambda one: (one.returns.remaining(now), -one.used))


class Sessions:
    """The sessions that have tokens in memory or host memory, and what they wait for."""

    def __init__(self, held: Callable[[], Iterable[Held]]) -> None:
        """`held` returns what they have there and do not work on."""
        self._held = held
        self._named: dict[str, Return] = {}
        self._tools: list[Return] = []

    def ask(self, query: Query, name: str) -> Return:
        """Note a request of the session of this name, or of the one that has most of its tokens.

        Who shares only the beginning of a prompt, as a system message, is another session.
        """
        prompt = query.tokens
        returns = self._named.get(name) if name else self._continued(query)
        returns = returns or Return(owner=query.owner)
        if name:
            self._named[name] = returns
            if len(self._named) > MAX_SESSIONS:
                del self._named[next(iter(self._named))]
        returns.asking += 1
        for other in self._held():  # what it does not continue, as after a compaction
            if other.returns is returns and not _is_continued(other, prompt):
                other.returns = Return(other.used, inf)
        return returns

    def take(self, one: Held, returns: Return) -> None:
        """Let tokens belong to a session; what it has beside them is outdated."""
        for other in self._held():
            if other.returns is returns and other is not one:
                other.returns = Return(other.used, inf)
        one.returns = returns

    def expect(self, session: Return | str, seconds: float | None) -> None:
        """Note when a session, or one of this name, asks again; see `Return`."""
        returns = self._named.get(session) if isinstance(session, str) else session
        if returns is None or returns.asking:  # it was quicker
            return
        returns.seconds = seconds
        if seconds is not None and seconds < inf:
            own = (one.packed for one in self._held() if one.returns is returns)
            returns.tokens = max(own, key=len, default=packed(()))[:]
            self._tools.append(returns)

    def awaited(self) -> list[Return]:
        """Those that wait for a tool which is not very late, the first one to return first."""
        now = time()
        self._tools = [
            r for r in self._tools if not r.asking and r.remaining(now) <= (r.seconds or 0.0)
        ]
        return sorted(self._tools, key=lambda returns: returns.remaining(now))

    def _continued(self, query: Query) -> Return | None:
        prompt = query.tokens
        own = (one for one in self._held() if one.returns.owner.name == query.owner.name)
        held = max(own, key=lambda one: common_prefix(one.packed, prompt), default=None)
        return held.returns if held is not None and _is_continued(held, prompt) else None


def _is_continued(held: Held, prompt: "array[int]") -> bool:
    """Whether a prompt begins with most of the tokens."""
    return 2 * common_prefix(held.packed, prompt) > len(held.packed)
