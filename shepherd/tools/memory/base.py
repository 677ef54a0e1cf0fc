"""What the memory's tools have in common."""

from collections.abc import Awaitable
from typing import TypeVar

from shepherd.errors import MemoryStoreError, ToolError
from shepherd.memory import Memory, Place
from shepherd.tools.base import Access, Arguments, Tool, ToolContext

A = TypeVar("A", bound=Arguments)
T = TypeVar("T")


class MemoryTool(Tool[A]):
    """A tool over the user's own memory: nothing else is touched, so nothing is asked."""

    def __init__(self, memory: Memory, place: Place) -> None:
        self.memory = memory
        self.place = place

    def accesses(self, arguments: A, context: ToolContext) -> list[Access]:
        return []


async def remembered(work: Awaitable[T]) -> T:
    """What the memory gives; raises ToolError when its file can't be used."""
    try:
        return await work
    except MemoryStoreError as error:
        raise ToolError(str(error)) from error
