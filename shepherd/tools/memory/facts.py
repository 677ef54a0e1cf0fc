"""Facts under names, which later conversations know too."""

from typing import Annotated

from pydantic import Field, StringConstraints

from shepherd.errors import ToolError
from shepherd.memory.facts import EVERYWHERE, MAX_KEY, MAX_VALUE
from shepherd.memory.text import storable
from shepherd.tools.base import Arguments, ToolContext, ToolResult
from shepherd.tools.memory.base import MemoryTool, remembered

LISTED_CHARACTERS = 100
NO_FACTS = "(no facts)"

Key = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_KEY)]


class SetArguments(Arguments):
    """The fact; `everywhere` sets it for all projects."""

    key: Key
    value: Annotated[str, Field(min_length=1, max_length=MAX_VALUE)]
    everywhere: Annotated[bool, Field(description="in all projects")] = False


class KeyArguments(Arguments):
    """Which fact."""

    key: Key


class OptionalKeyArguments(Arguments):
    """Which fact; none is all of them."""

    key: Annotated[str, Field(max_length=MAX_KEY)] = ""


class SetFact(MemoryTool[SetArguments]):
    """A fact of this project, or of all."""

    name = "set_fact"
    description = "Remember a fact for later conversations."
    arguments = SetArguments

    async def run(self, arguments: SetArguments, context: ToolContext) -> ToolResult:
        project = EVERYWHERE if arguments.everywhere else self.place.project
        key = _key(arguments.key)
        await remembered(self.memory.set_fact(project, key, storable(arguments.value)))
        return ToolResult(f"Remembered {key}")


class GetFact(MemoryTool[OptionalKeyArguments]):
    """One value, or a line for each fact."""

    name = "get_fact"
    description = "A fact; without key: all."
    arguments = OptionalKeyArguments

    async def run(self, arguments: OptionalKeyArguments, context: ToolContext) -> ToolResult:
        facts = await remembered(self.memory.facts(self.place.project))
        key = _key(arguments.key)
        if not key:
            lines = (f"{fact.key}: {_short(fact.value)}" for fact in facts)
            return ToolResult("\n".join(lines) or NO_FACTS)
        value = next((fact.value for fact in facts if fact.key == key), None)
        if value is None:
            raise ToolError(f"no fact {key}; get_fact without key lists all")
        return ToolResult(value)


class ClearFact(MemoryTool[KeyArguments]):
    """The fact that get_fact tells."""

    name = "clear_fact"
    description = "Forget a fact."
    arguments = KeyArguments

    async def run(self, arguments: KeyArguments, context: ToolContext) -> ToolResult:
        key = _key(arguments.key)
        if not await remembered(self.memory.clear_fact(self.place.project, key)):
            raise ToolError(f"no fact {key}; get_fact without key lists all")
        return ToolResult(f"Forgot {key}")


def _key(key: str) -> str:
    return " ".join(storable(key).split())


def _short(value: str) -> str:
    line = " ".join(value.split())
    return line if len(line) <= LISTED_CHARACTERS else f"{line[:LISTED_CHARACTERS]}…"
