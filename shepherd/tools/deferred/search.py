"""`find_tools`: the tools whose schemas are not in the prompt."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from shepherd.errors import ToolError
from shepherd.messages import Message, Role, ToolSpec
from shepherd.tools.base import Access, AnyTool, Arguments, Tool, ToolContext, ToolResult
from shepherd.tools.deferred.ranking import ToolIndex
from shepherd.tools.deferred.signature import notes, signature, summary
from shepherd.tools.deferred.wrapper import FIND_TOOLS, USE_TOOL
from shepherd.tools.text import pluralize

MAX_RESULTS = 5
MAX_CHARACTERS = 2_500
"""Maximum length of a result; the descriptions of arguments are left out beyond it."""

MAX_GROUPS, MAX_GROUP_NAME = 8, 24
"""Maximum number of servers that the description names, and characters of each name."""

_CALL = re.compile(r"^([a-zA-Z0-9_-]{1,64})\(", re.MULTILINE)


class FindArguments(Arguments):
    """What to search for."""

    query: Annotated[str, Field(min_length=1, max_length=500)]


class FindTools(Tool[FindArguments]):
    """Searches the added tools of the runner that runs it."""

    name = FIND_TOOLS
    description = "Search more tools by keywords; returns their names and arguments."
    arguments = FindArguments

    def accesses(self, arguments: FindArguments, context: ToolContext) -> list[Access]:
        return []

    async def run(self, arguments: FindArguments, context: ToolContext) -> ToolResult:
        if context.runner is None:
            raise ToolError(f"{FIND_TOOLS} works in a conversation only")
        tools = [tool.spec() for tool in context.runner.tools if tool.is_extension]
        index = await asyncio.to_thread(ToolIndex, tools)
        matches = await asyncio.to_thread(index.search, arguments.query, MAX_RESULTS)
        if not matches:
            return ToolResult(_nothing(tools))
        head = f"{len(matches)} of {pluralize(len(tools), 'tool')}; call one with {USE_TOOL}:"
        return ToolResult("\n".join([head, *_entries(matches)]))


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The tools that searches brought into a conversation; see `session.DeferredTools`."""

    tools: Iterable[AnyTool]

    def specs_in(self, messages: Sequence[Message]) -> list[ToolSpec]:
        """The specs of the tools that results of `find_tools` in `messages` name."""
        results = (m.content for m in messages if m.role is Role.TOOL and m.name == FIND_TOOLS)
        names = {name for text in results for name in _CALL.findall(text)}
        if not names:
            return []
        return [tool.spec() for tool in self.tools if tool.is_extension and tool.name in names]


def groups(tools: Iterable[ToolSpec]) -> list[str]:
    """The servers of tools named `SERVER__TOOL`, sorted."""
    prefixes = (tool.name.partition("__") for tool in tools)
    return sorted({server for server, separator, _ in prefixes if separator and server})


def find_tools_spec(tools: Sequence[ToolSpec]) -> ToolSpec:
    """`find_tools` for a model, with the names of the servers as hints."""
    spec = FindTools().spec()
    servers = [name[:MAX_GROUP_NAME] for name in groups(tools)]
    if not servers:
        return spec
    more = ", …" if len(servers) > MAX_GROUPS else ""
    hint = f" Servers: {', '.join(servers[:MAX_GROUPS])}{more}."
    return ToolSpec(spec.name, spec.description + hint, spec.parameters)


def _entries(tools: Iterable[ToolSpec]) -> list[str]:
    lines: list[str] = []
    size = 0
    for tool in tools:
        entry = [signature(tool), *(f"  {text}" for text in [summary(tool)] if text)]
        details = [f"    {note}" for note in notes(tool)]
        if size + sum(map(len, [*entry, *details])) <= MAX_CHARACTERS:
            entry += details
        size += sum(map(len, entry))
        lines += entry
    return lines


def _nothing(tools: Sequence[ToolSpec]) -> str:
    servers = groups(tools)
    where = f" There are {pluralize(len(tools), 'tool')}"
    where += f", of {', '.join(servers[:MAX_GROUPS])}." if servers else "."
    return f"No tool matches. Try other words.{where if tools else ''}"
