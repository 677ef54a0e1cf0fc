"""Commands about the terminal itself."""

from shepherd.cli.render.status import Totals
from shepherd.cli.repl.commands.base import Command, CommandContext, CommandTable
from shepherd.cli.terminal.sanitize import one_line
from shepherd.conversation.commands.command import Lines, Note, Row
from shepherd.errors import InvalidRequestError
from shepherd.prices import dollars
from shepherd.tools.text import pluralize

MAX_DESCRIPTION = 200
_KEYS = (
    ("Enter", "send; while the model works the message waits its turn"),
    ("Alt+Enter, Ctrl+J, \\ Enter", "new line"),
    ("Esc, Ctrl+C", "stop the model, a tool or a question; Ctrl+C clears typed text first"),
    ("Esc Esc", "in an empty prompt: go back to an earlier message"),
    ("Tab", "complete a /command or an @file; a file's content goes along with the message"),
    ("!command", "run your own command; !!command without the model's knowledge"),
    ("Up, Ctrl+R", "earlier messages"),
    ("Shift+Tab", "what runs without asking: ask, edits, auto"),
    ("Ctrl+O", "the last result or change whole"),
    ("Ctrl+D", "leave"),
)


class ViewCommands:
    """The commands; `table` is all that `/help` shows."""

    def __init__(self, context: CommandContext, table: CommandTable) -> None:
        self._context = context
        self._table = table

    def commands(self) -> list[Command[str]]:
        """All of them."""
        return [
            Command("help", "", "what there is", self._help),
            Command("tools", "", "the tools that the model may call", self._tools),
            Command("thinking", "on|off|show|hide", "let the model reason first; show or hide it",
                    self._thinking, lambda: ("on", "off", "show", "hide")),
            Command("usage", "", "tokens, and their price if it is known", self._usage),
            Command("stats", "", "tokens and speeds since the start", self._stats),
            Command("exit", "", "leave (also Ctrl+D)", self._exit),
            Command("quit", "", "leave", self._exit),
        ]  # fmt: skip

    async def _help(self, argument: str) -> Lines:
        return [*help_rows(self._table), "", *(Row(*row) for row in _KEYS)]

    async def _tools(self, argument: str) -> Lines:
        specs = self._context.conversation.session.tools
        rows = [Row(spec.name, one_line(spec.description, MAX_DESCRIPTION)) for spec in specs]
        return rows or ["No tools: the model was started without them."]

    async def _thinking(self, argument: str) -> Lines:
        session, renderer = self._context.conversation.session, self._context.renderer
        match argument:
            case "on" | "off":
                session.thinking = self._context.status.thinking = argument == "on"
            case "show" | "hide":
                renderer.show_thinking = argument == "show"
            case "":
                pass
            case _:
                raise InvalidRequestError("/thinking takes on, off, show or hide.")
        state = "on" if session.thinking else "off"
        visibility = "shown" if renderer.show_thinking else "hidden"
        return [f"thinking: {state}, {visibility}"]

    async def _usage(self, argument: str) -> Lines:
        status = self._context.status
        spans = (("last turn", status.turn), ("since the start", status.totals))
        rows = [Row(name, _use(totals)) for name, totals in spans]
        if status.totals.generations and status.totals.cost is None:
            note = "The price is unknown; terminal.prices in the settings can state it."
            return [*rows, Note(note)]
        return rows

    async def _stats(self, argument: str) -> Lines:
        totals = self._context.status.totals
        read = totals.prompt_tokens - totals.cached_tokens
        cached = f"{totals.prompt_tokens:,}, of which cached {totals.cached_tokens:,}"
        return [
            Row("messages answered", f"{totals.turns:,}"),
            Row("generations", f"{totals.generations:,}"),
            Row("prompt tokens", cached),
            Row("read", _tokens_in(read, totals.prefill_seconds)),
            Row("written", _tokens_in(totals.completion_tokens, totals.decode_seconds)),
        ]

    async def _exit(self, argument: str) -> None:
        self._context.leave()


def help_rows(table: CommandTable) -> list[Row]:
    """The commands with what they do."""
    return [Row(f"/{c.name} {c.usage}".strip(), c.summary) for c in table]


def _use(totals: Totals) -> str:
    cost = "" if totals.cost is None else f"; {dollars(totals.cost)}"
    cached = f" ({totals.cached_tokens:,} cached)" if totals.cached_tokens else ""
    read = pluralize(totals.prompt_tokens, "token", ",")
    return f"{read} read{cached}, {totals.completion_tokens:,} written{cost}"


def _tokens_in(tokens: int, seconds: float) -> str:
    speed = f" in {seconds:.1f} s ({tokens / seconds:.0f} a second)" if seconds > 0 else ""
    return f"{pluralize(tokens, 'token', ',')}{speed}"
