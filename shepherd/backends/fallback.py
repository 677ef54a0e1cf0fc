"""Falls back to the next backend if one can't be reached."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from shepherd.backends.base import Backend, BackendStatus, Generation, ModelInfo
from shepherd.backends.failover import FailoverBackend, Route
from shepherd.errors import ShepherdError, UnreachableError
from shepherd.events import EventCallback, Notice, Topic
from shepherd.session import Session

MovesOn: TypeAlias = Callable[[ShepherdError], bool]
"""Whether the next backend is tried after an error."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A backend that may be opened; `label` is its name for the user."""

    label: str
    open: Callable[[], Awaitable[Backend]]


class FallbackBackend(FailoverBackend):
    """Answers with the first of several backends that can be reached, and stays with it.

    If it can't be reached before its answer begins, the next backend takes this request and all
    later ones. A SYSTEM warning reports the change. Other errors are raised unchanged.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        backend: Backend,
        warning: str,
        moves_on: MovesOn | None = None,
    ) -> None:
        """`backend` is the opened first candidate; `warning` is sent for the next request.

        `moves_on` tells the errors for which the next backend is tried, by default
        UnreachableError.
        """
        self._moves_on = moves_on or _is_unreachable
        self._waiting = list(candidates[1:])
        self._current = backend
        self._label = candidates[0].label
        self._left: list[Backend] = []
        self._listeners: list[Callable[[], None]] = []
        self._pending_warning = warning
        self._moving = asyncio.Lock()

    @classmethod
    async def open(
        cls, candidates: Sequence[Candidate], moves_on: MovesOn | None = None
    ) -> "FallbackBackend":
        """Open the first candidate that can be reached.

        Raises the first one's error if none can be reached, and errors that are not for
        `moves_on`.
        """
        moves_on = moves_on or _is_unreachable
        if not candidates:
            raise UnreachableError("There is no provider to ask.")
        waiting = list(candidates)
        chosen = waiting.pop(0)
        try:
            return cls([chosen, *waiting], await chosen.open(), "", moves_on)
        except ShepherdError as error:
            if not moves_on(error):
                raise
            opened, skipped = await _open_next(waiting)
            if opened is None:
                raise
            candidate, backend = opened
            warning = _warning(error, skipped, candidate)
            return cls([candidate, *waiting], backend, warning, moves_on)

    @property
    def info(self) -> ModelInfo:
        return replace(self._current.info, selector=self._label)

    @property
    def alive(self) -> bool:
        return self._current.alive

    async def reachable(self) -> bool:
        """As the current one; while other candidates remain, True."""
        return self.alive and (bool(self._waiting) or await self._current.reachable())

    def when_moved(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return partial(self._listeners.remove, listener)

    @property
    def status(self) -> BackendStatus:
        return self._current.status

    def route(self, session: Session) -> Route:
        del session  # all requests go to the current one
        return _Current(self)

    async def aclose(self) -> None:
        for backend in [*self._left, self._current]:
            await backend.aclose()

    @property
    def current(self) -> Backend:
        return self._current

    async def move_on(
        self, failed: Backend | None, error: ShepherdError, callback: EventCallback
    ) -> None:
        """Replace the current backend if it is still `failed`; raises `error` if none is left."""
        if failed is None or not self._moves_on(error):
            raise error
        async with self._moving:
            if self._current is not failed:  # another request was faster
                return
            opened, skipped = await _open_next(self._waiting)
            if opened is None:
                if skipped:
                    callback(Notice(" ".join(skipped), Topic.WARNING))
                raise error
            self._left.append(failed)
            candidate, self._current = opened
            self._label = candidate.label
            for listener in [*self._listeners]:
                listener()
            warning = _warning(error, skipped, candidate)
            callback(Notice(warning, Topic.WARNING))


class _Current(Route):
    """Takes a request to the current backend, whichever that is."""

    def __init__(self, owner: FallbackBackend) -> None:
        self._owner = owner

    async def backend(self) -> Backend:
        return self._owner.current

    async def move_on(
        self, failed: Backend | None, error: ShepherdError, callback: EventCallback
    ) -> None:
        await self._owner.move_on(failed, error, callback)

    def finish(self, generation: Generation) -> None:
        """Nothing: no counts are kept."""

    def close(self) -> None:
        """Nothing: the backend stays."""


def _is_unreachable(error: ShepherdError) -> bool:
    return isinstance(error, UnreachableError)


async def _open_next(
    waiting: list[Candidate],
) -> tuple[tuple[Candidate, Backend] | None, list[str]]:
    """The first of `waiting` that opens, and sentences why the ones before it did not.

    All of them are removed from `waiting`.
    """
    skipped: list[str] = []
    while waiting:
        candidate = waiting.pop(0)
        try:
            return (candidate, await candidate.open()), skipped
        except UnreachableError:
            skipped.append(f"{candidate.label} can't be reached either.")
        except ShepherdError as error:  # its settings are wrong
            skipped.append(f"{candidate.label} was skipped: {_sentence(error)}")
    return None, skipped


def _warning(first: ShepherdError, skipped: Sequence[str], candidate: Candidate) -> str:
    return " ".join([_sentence(first), *skipped, f"Going on with {candidate.label}."])


def _sentence(error: ShepherdError) -> str:
    text = str(error)
    return text if text.endswith((".", "?", "!")) else f"{text}."
