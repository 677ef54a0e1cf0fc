"""Commands about MCP servers."""

from rich.text import Text

from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.repl.commands.view import two_columns
from shepherd.cli.terminal.sanitize import one_line
from shepherd.errors import ConfigError
from shepherd.tools.text import pluralize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shepherd.mcp.hub import Entry, ServerHub

ACTIONS = ("show", "reconnect", "disable", "enable")
NO_SERVERS = "There are no MCP servers; `shepherd mcp add NAME -- PROGRAM` adds one."


def mcp_commands(context: CommandContext) -> list[Command]:
    """The commands."""
    view = _Servers(context)
    return [
        Command(
            "mcp",
            f"[{'|'.join(ACTIONS)} NAME]",
            "the MCP servers, their state and tools",
            view.mcp,
            view.choices,
            by_words=True,
        )
    ]


class _Servers:
    def __init__(self, context: CommandContext) -> None:
        self._context = context

    def choices(self) -> list[str]:
        """The choices that `/mcp` completes."""
        hub = self._context.conversation.servers
        names = [entry.name for entry in hub.entries] if hub else []
        return [*ACTIONS, *(f"{action} {name}" for action in ACTIONS for name in names)]

    async def mcp(self, argument: str) -> None:
        hub = self._context.conversation.servers
        if hub is None:
            self._context.say(Text(NO_SERVERS))
            return
        action, _, name = argument.partition(" ")
        try:
            await self._act(hub, action, name.strip())
        except ConfigError as error:
            self._context.renderer.error(str(error))

    async def _act(self, hub: "ServerHub", action: str, name: str) -> None:
        if not action:
            self._context.say(two_columns(map(_row, hub.entries)))
            return
        if action not in ACTIONS or not name:
            self._context.renderer.error(f"/mcp takes {', '.join(ACTIONS)} and a server's name.")
            return
        entry = hub.find(name)
        match action:
            case "disable":
                await hub.stop(entry)
            case "show":
                pass
            case _:
                await hub.restart(entry, self._context.conversation.approver)
        self._context.say(*map(Text, details(hub, entry)))


def prompts(context: CommandContext) -> list[tuple[str, str]]:
    """The prompts that the servers offer now, as `server:prompt`, with their arguments."""
    return _completions(context)[0]


def resources(context: CommandContext) -> list[str]:
    """The resources that the servers offer now, as `server:uri`."""
    return _completions(context)[1]


def _completions(context: CommandContext) -> tuple[list[tuple[str, str]], list[str]]:
    hub = context.conversation.servers
    if hub is None or not any(entry.connection for entry in hub.entries):
        return [], []
    from shepherd.mcp.prompts import completions  # the SDK is imported already

    return completions(hub)


def _row(entry: "Entry") -> tuple[str, str]:
    offer = entry.connection.catalogue if entry.connection else None
    counts = [pluralize(len(offer.tools), "tool")] if offer and offer.tools else []
    counts += [pluralize(len(offer.prompts), "prompt")] if offer and offer.prompts else []
    counts += [pluralize(len(offer.resources), "resource")] if offer and offer.resources else []
    return entry.name, one_line(
        ", ".join(filter(None, [entry.current, *counts, entry.reason])), 400
    )


def details(hub: "ServerHub", entry: "Entry") -> list[str]:
    """The state of a server and its offer, in lines."""
    from shepherd.mcp.prompts import offer_lines

    log = f"log: {hub.launcher.log_file(entry.server)}"
    return [one_line(line, 2000) for line in (*offer_lines(entry), log)]
