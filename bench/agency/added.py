"""Forty further tools, which no task needs; the benchmark measures their cost."""

from itertools import product
from typing import Annotated

from pydantic import Field

from shepherd.tools.access import Access
from shepherd.tools.tool import AnyTool, Arguments, Tool, ToolContext, ToolResult

NOUNS = {
    "tracker": ("ticket", "sprint", "board", "label"),
    "calendar": ("event", "invitation", "room", "holiday"),
}
VERBS = ("create", "remove", "show", "update", "archive")


class AddedArguments(Arguments):
    """The arguments of each of them."""

    owner: Annotated[str, Field(description="The owner of the entry.")]
    title: Annotated[str, Field(description="A short text.")]
    limit: Annotated[int, Field(description="The maximum number of results.")] = 20


class AddedTool(Tool[AddedArguments]):
    """A tool that does nothing."""

    arguments = AddedArguments
    is_extension = True

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self.description = description

    def accesses(self, arguments: AddedArguments, context: ToolContext) -> list[Access]:
        return []

    async def run(self, arguments: AddedArguments, context: ToolContext) -> ToolResult:
        return ToolResult("done")


def added_tools() -> list[AnyTool]:
    """All of them."""
    return [
        AddedTool(f"{server}__{verb}_{noun}", f"{verb.capitalize()} a {noun} of the {server}.")
        for server, nouns in NOUNS.items()
        for verb, noun in product(VERBS, nouns)
    ]
