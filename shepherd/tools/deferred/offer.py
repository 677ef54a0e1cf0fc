"""Decides which tools the prompt lists, and which ones only a search brings in."""

import json
from collections.abc import Iterable, Sequence

from shepherd.messages import ToolSpec
from shepherd.tools.base import AnyTool
from shepherd.tools.deferred.search import find_tools_spec
from shepherd.tools.deferred.wrapper import FIND_TOOLS, USE_TOOL_SPEC

CHARACTERS_PER_TOKEN = 3.5
"""An estimate for schemas; a small vocabulary needs more tokens."""


def listed_tools(
    tools: Iterable[AnyTool], max_tokens: int, *, search: bool = False
) -> list[ToolSpec]:
    """The tools in the prompt: all if the schemas of the added ones take at most `max_tokens`.

    Otherwise, and with `search`, `find_tools` and `use_tool` replace the added ones. Without
    `find_tools` among `tools` all others are listed.
    """
    every = list(tools)
    own = [tool.spec() for tool in every if not tool.is_extension and tool.name != FIND_TOOLS]
    added = [tool.spec() for tool in every if tool.is_extension]
    can_search = any(tool.name == FIND_TOOLS for tool in every)
    if not can_search or not (search or estimated_tokens(added) > max_tokens):
        return [*own, *added]
    return [*own, find_tools_spec(added), USE_TOOL_SPEC]


def estimated_tokens(tools: Sequence[ToolSpec]) -> int:
    """About the tokens of the tools in a prompt."""
    texts = (json.dumps([t.name, t.description, t.parameters], ensure_ascii=False) for t in tools)
    return round(sum(map(len, texts)) / CHARACTERS_PER_TOKEN)
