"""Two hundred tools of ten servers, as a user with many MCP servers has them."""

from itertools import product
from typing import Annotated, Any

from pydantic import Field

from shepherd.tools.access import Access, AccessKind
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult

SERVERS = [
    *("github", "jira", "slack", "postgres", "calendar"),
    *("mail", "kubernetes", "spotify", "weather", "maps"),
]
VERBS = ["create", "delete", "list", "update", "search"]
NOUNS = {
    "github": ["issue", "pull_request", "branch", "release"],
    "jira": ["ticket", "sprint", "board", "worklog"],
    "slack": ["message", "channel", "reaction", "reminder"],
    "postgres": ["table", "row", "index", "view"],
    "calendar": ["event", "invitation", "room", "holiday"],
    "mail": ["draft", "letter", "folder", "attachment"],
    "kubernetes": ["pod", "deployment", "secret", "namespace"],
    "spotify": ["playlist", "track", "album", "podcast"],
    "weather": ["forecast", "alert", "station", "reading"],
    "maps": ["route", "place", "marker", "layer"],
}


class RemoteArguments(Arguments):
    """The arguments of each of the tools."""

    owner: Annotated[str, Field(description="The owner of the place to work in.")]
    title: Annotated[str, Field(description="A short text without line breaks.")]
    labels: Annotated[tuple[str, ...], Field(description="Further words.")] = ()
    limit: Annotated[int, Field(ge=1, le=100, description="The maximum number of results.")] = 20


class RemoteTool(Tool[RemoteArguments]):
    """A tool that came from elsewhere; it records its calls."""

    arguments = RemoteArguments
    is_extension = True

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self.description = description
        self.calls: list[dict[str, Any]] = []

    def accesses(self, arguments: RemoteArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.TOOL, self.name)]

    async def run(self, arguments: RemoteArguments, context: ToolContext) -> ToolResult:
        self.calls.append(arguments.model_dump())
        return ToolResult(f"{self.name} did it for {arguments.owner}")


def remote_tools() -> list[RemoteTool]:
    """All of them, in the order of their servers."""
    return [
        RemoteTool(
            f"{server}__{verb}_{noun}",
            f"{verb.capitalize()} a {noun.replace('_', ' ')} of {server} for the given owner.",
        )
        for server in SERVERS
        for verb, noun in product(VERBS, NOUNS[server])
    ]
