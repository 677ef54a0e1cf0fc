"""Finding again what left the conversation."""

from typing import Annotated

from pydantic import Field

from shepherd.memory import Fact, Found
from shepherd.memory.search import WHOLE_CHARACTERS, search_facts
from shepherd.tools.base import Arguments, ToolContext, ToolResult
from shepherd.tools.memory.base import MemoryTool, remembered

NO_MATCHES = "(no matches)"


class SearchArguments(Arguments):
    """What to look for."""

    query: Annotated[str, Field(min_length=1)]
    limit: Annotated[int, Field(ge=1, le=20)] = 5


class SearchMemory(MemoryTool[SearchArguments]):
    """Facts first, then messages of this project, then others; each with its time and role."""

    name = "search_memory"
    description = "Find facts and messages that left the context, by words."
    arguments = SearchArguments

    async def run(self, arguments: SearchArguments, context: ToolContext) -> ToolResult:
        project = self.place.project
        query, limit = arguments.query, arguments.limit
        messages = await remembered(self.memory.search(query, project, limit))
        facts = search_facts(await remembered(self.memory.facts(project)), query, limit)
        lines = [*map(fact_line, facts), *map(message_line, messages)]
        return ToolResult("\n".join(lines) or NO_MATCHES)


def fact_line(fact: Fact) -> str:
    """`[fact] key: value`; `get_fact` gives all of a long one."""
    long = len(fact.value) > WHOLE_CHARACTERS
    return f"[fact] {fact.key}: {fact.value[:WHOLE_CHARACTERS]}{'…' if long else ''}"


def message_line(found: Found) -> str:
    """`[2026-11-21 08:03 user] words`; in local time, with the directory if it is another's."""
    who = found.tool or found.role.value
    where = f" in {found.directory}" if found.directory else ""
    return f"[{found.said.astimezone():%Y-%m-%d %H:%M} {who}{where}] {found.text}"
