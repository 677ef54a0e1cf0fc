"""What the suite needs to know of a backend: how to make its upstream say a thing."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import ClassVar

from shepherd.backends.base import Backend
from tests.backends.conformance.said import Said
from tests.backends.conformance.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Room:
    """A backend whose upstream will say what was asked of it.

    `released` waits until the upstream has noticed that nobody waits for the last answer, and
    fails if it does not.
    """

    backend: Backend
    released: Callable[[], Awaitable[None]]


class Subject(ABC):
    """One backend; `lacks` says why a scenario can't happen to it."""

    name: ClassVar[str]
    lacks: ClassVar[Mapping[Scenario, str]] = {}

    def __repr__(self) -> str:
        return self.name

    @abstractmethod
    def opened(self, *answers: Said, limit: int = 0) -> AbstractAsyncContextManager[Room]:
        """The backend, whose upstream gives these answers, one a request, and then no more.

        With a `limit` it refuses conversations of more tokens, by its own count.
        """
