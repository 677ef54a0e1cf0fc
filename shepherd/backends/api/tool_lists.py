"""What is made of a list of tools, made once for as long as the same ones are on offer."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from shepherd.messages import ToolSpec

T = TypeVar("T")

MOST = 16
"""Lists that are remembered."""


class PerToolList(Generic[T]):
    """Remembers what `make` gave for the last lists; a list is known by the objects in it."""

    def __init__(self, make: Callable[[Sequence[ToolSpec]], T]) -> None:
        self._make = make
        self._held: OrderedDict[tuple[int, ...], tuple[Sequence[ToolSpec], T]] = OrderedDict()

    def of(self, tools: Sequence[ToolSpec]) -> T:
        """What was made of these tools; not to be changed."""
        ids = tuple(map(id, tools))
        held = self._held.get(ids)
        if held is None:
            held = self._held[ids] = (tuple(tools), self._make(tools))
        self._held.move_to_end(ids)
        if len(self._held) > MOST:
            self._held.popitem(last=False)
        return held[1]
