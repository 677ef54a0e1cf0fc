"""The memory's tools: searching messages and facts, and setting, reading and clearing facts."""

from collections.abc import Awaitable
from typing import Annotated, TypeVar

from pydantic import Field, StringConstraints

from shepherd.errors import MemoryStoreError, ToolError
from shepherd.memory import store
from shepherd.memory.memory import Memory, search_facts
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.tool import AnyTool, Arguments, Tool, ToolContext, ToolResult, Traits

NO_MATCHES = "(no matches)"
NO_FACTS = "(no facts)"
LISTED_CHARACTERS = 100

A = TypeVar("A", bound=Arguments)
T = TypeVar("T")
Key = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=store.MAX_KEY)
]


class MemoryTool(Tool[A]):
    """A tool over the user's own memory; it touches nothing else, so it needs no approval.

    Changes are accesses of their own, because plan mode refuses them.
    """

    def __init__(self, memory: Memory, place: store.Place) -> None:
        self.memory = memory
        self.place = place

    def accesses(self, arguments: A, context: ToolContext) -> list[Access]:
        return []


async def read_memory(work: Awaitable[T]) -> T:
    """The result of a memory operation; raises ToolError when the file can't be used."""
    try:
        return await work
    except MemoryStoreError as error:
        raise ToolError(str(error)) from error


class SearchArguments(Arguments):
    """The query and the maximum number of results."""

    query: Annotated[str, Field(min_length=1)]
    limit: Annotated[int, Field(ge=1, le=20)] = 5


class SearchMemory(MemoryTool[SearchArguments]):
    """Returns facts first, then messages of this project, then of others, with time and role."""

    name = "search_memory"
    traits = Traits("search")
    description = "Find facts and messages that left the context, by words."
    arguments = SearchArguments

    async def run(self, arguments: SearchArguments, context: ToolContext) -> ToolResult:
        """A line for each fact that matches, then for each message."""
        project = self.place.project
        query, limit = arguments.query, arguments.limit
        messages = await read_memory(self.memory.search(query, project, limit))
        facts = search_facts(await read_memory(self.memory.facts(project)), query, limit)
        lines = [*map(fact_line, facts), *map(message_line, messages)]
        return ToolResult("\n".join(lines) or NO_MATCHES)


def fact_line(fact: store.Fact) -> str:
    """`[fact] key: value`; a long value is cut, and `get_fact` returns all of it."""
    mark = "…" if len(fact.value) > store.WHOLE_CHARACTERS else ""
    return f"[fact] {fact.key}: {fact.value[: store.WHOLE_CHARACTERS]}{mark}"


def message_line(match: store.MemoryMatch) -> str:
    """`[2026-11-21 08:03 user] text`, in local time; names the directory of another project."""
    origin = match.tool or match.role.value
    where = f" in {match.directory}" if match.directory else ""
    return f"[{match.said.astimezone():%Y-%m-%d %H:%M} {origin}{where}] {match.text}"


class SetArguments(Arguments):
    """The fact; `everywhere` sets it for all projects."""

    key: Key
    value: Annotated[str, Field(min_length=1, max_length=store.MAX_VALUE)]
    everywhere: Annotated[bool, Field(description="in all projects")] = False


class KeyArguments(Arguments):
    """The key of a fact."""

    key: Key


class OptionalKeyArguments(Arguments):
    """The key of a fact; "" means all facts."""

    key: Annotated[str, Field(max_length=store.MAX_KEY)] = ""


class SetFact(MemoryTool[SetArguments]):
    """Stores a fact for this project or for all projects."""

    name = "set_fact"
    description = "Remember a fact for later conversations."
    arguments = SetArguments

    def accesses(self, arguments: SetArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.MEMORY, arguments.key)]

    async def run(self, arguments: SetArguments, context: ToolContext) -> ToolResult:
        """Store the fact; an older value of its key is replaced."""
        project = store.EVERYWHERE if arguments.everywhere else self.place.project
        key = _key(arguments.key)
        await read_memory(self.memory.set_fact(project, key, store.storable(arguments.value)))
        return ToolResult(f"Remembered {key}")


class GetFact(MemoryTool[OptionalKeyArguments]):
    """Returns one value, or a line per fact."""

    name = "get_fact"
    description = "A fact; without key: all."
    arguments = OptionalKeyArguments

    async def run(self, arguments: OptionalKeyArguments, context: ToolContext) -> ToolResult:
        """The value of the key; without a key, a line for each fact."""
        facts = await read_memory(self.memory.facts(self.place.project))
        key = _key(arguments.key)
        if not key:
            lines = (f"{fact.key}: {_first_characters(fact.value)}" for fact in facts)
            return ToolResult("\n".join(lines) or NO_FACTS)
        value = next((fact.value for fact in facts if fact.key == key), None)
        if value is None:
            raise ToolError(f"no fact {key}; get_fact without key lists all")
        return ToolResult(value)


class ClearFact(MemoryTool[KeyArguments]):
    """Removes a fact of this project or, if it has none, of all projects."""

    name = "clear_fact"
    description = "Forget a fact."
    arguments = KeyArguments

    def accesses(self, arguments: KeyArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.MEMORY, arguments.key)]

    async def run(self, arguments: KeyArguments, context: ToolContext) -> ToolResult:
        """Remove the fact; raises ToolError if there is none of that key."""
        key = _key(arguments.key)
        if not await read_memory(self.memory.clear_fact(self.place.project, key)):
            raise ToolError(f"no fact {key}; get_fact without key lists all")
        return ToolResult(f"Forgot {key}")


def memory_tools(memory: Memory, place: store.Place) -> list[AnyTool]:
    """All memory tools for a conversation at `place`."""
    tools = (SearchMemory, SetFact, GetFact, ClearFact)
    return [tool(memory, place) for tool in tools]


def _key(key: str) -> str:
    """The key as it is stored: on one line, with single spaces."""
    return " ".join(store.storable(key).split())


def _first_characters(value: str) -> str:
    line = " ".join(value.split())
    return line if len(line) <= LISTED_CHARACTERS else f"{line[:LISTED_CHARACTERS]}…"
