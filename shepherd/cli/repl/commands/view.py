"""Commands about the terminal itself."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.text import Text

from shepherd.cli.render.totals import Totals
from shepherd.cli.repl.commands.base import Command, CommandContext, CommandTable
from shepherd.cli.terminal.sanitize import one_line
from shepherd.config.choices import ApproveMode
from shepherd.prices import dollars
from shepherd.tools.text import pluralize

if TYPE_CHECKING:
    from rich.table import Table

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


def view_commands(context: CommandContext, table: CommandTable) -> list[Command]:
    """The commands."""
    view = _View(context, table)
    return [
        Command("help", "", "what there is", view.help),
        Command("tools", "", "the tools that the model may call", view.tools),
        Command(
            "approve",
            "ask|edits|auto|all|none",
            "what runs without asking",
            view.approve,
            view.modes,
        ),
        Command(
            "thinking",
            "on|off|show|hide",
            "let the model reason first; show or hide it",
            view.thinking,
            lambda: ("on", "off", "show", "hide"),
        ),
        Command("usage", "", "tokens, and their price if it is known", view.usage),
        Command("stats", "", "tokens and speeds since the start", view.stats),
        Command("exit", "", "leave (also Ctrl+D)", view.exit),
        Command("quit", "", "leave", view.exit),
    ]


class _View:
    def __init__(self, context: CommandContext, table: CommandTable) -> None:
        self._context = context
        self._table = table

    async def help(self, argument: str) -> None:
        rows = [(f"/{c.name} {c.usage}".strip(), c.summary) for c in self._table]
        self._context.say(two_columns(rows), Text(), two_columns(_KEYS))

    async def tools(self, argument: str) -> None:
        specs = self._context.conversation.session.tools
        if not specs:
            self._context.say(Text("No tools: the model was started without them."))
            return
        self._context.say(two_columns((s.name, one_line(s.description, 200)) for s in specs))

    def modes(self) -> list[str]:
        return [mode.value for mode in ApproveMode]

    async def approve(self, argument: str) -> None:
        approve = self._context.approve
        if argument and argument not in self.modes():
            self._context.renderer.error(f"/approve takes {', '.join(self.modes())}.")
            return
        mode = ApproveMode(argument) if argument else approve.policy.mode
        text = await approve.set(mode)
        self._context.say(Text(f"approve: {mode.value}. {text}"))

    async def thinking(self, argument: str) -> None:
        session, renderer = self._context.conversation.session, self._context.renderer
        match argument:
            case "on" | "off":
                session.thinking = argument == "on"
                self._context.status.thinking = session.thinking
            case "show" | "hide":
                renderer.show_thinking = argument == "show"
            case "":
                pass
            case _:
                renderer.error("/thinking takes on, off, show or hide.")
                return
        state = "on" if session.thinking else "off"
        visibility = "shown" if renderer.show_thinking else "hidden"
        self._context.say(Text(f"thinking: {state}, {visibility}"))

    async def usage(self, argument: str) -> None:
        status = self._context.status
        spans = (("last turn", status.turn), ("since the start", status.totals))
        self._context.say(two_columns((name, self._use(totals)) for name, totals in spans))
        if status.totals.generations and status.totals.cost is None:
            note = "The price is unknown; terminal.prices in the settings can state it."
            self._context.say(Text(note, style="quiet"))

    def _use(self, totals: Totals) -> str:
        cost = "" if totals.cost is None else f"; {dollars(totals.cost)}"
        cached = f" ({totals.cached_tokens:,} cached)" if totals.cached_tokens else ""
        read = pluralize(totals.prompt_tokens, "token", ",")
        return f"{read} read{cached}, {totals.completion_tokens:,} written{cost}"

    async def stats(self, argument: str) -> None:
        totals = self._context.status.totals
        read = totals.prompt_tokens - totals.cached_tokens
        rows = [
            ("messages answered", f"{totals.turns:,}"),
            ("generations", f"{totals.generations:,}"),
            (
                "prompt tokens",
                f"{totals.prompt_tokens:,}, of which cached {totals.cached_tokens:,}",
            ),
            ("read", _tokens_in(read, totals.prefill_seconds)),
            (
                "written",
                _tokens_in(totals.completion_tokens, totals.decode_seconds),
            ),
        ]
        self._context.say(two_columns(rows))

    async def exit(self, argument: str) -> None:
        self._context.leave()


def _tokens_in(tokens: int, seconds: float) -> str:
    speed = f" in {seconds:.1f} s ({tokens / seconds:.0f} a second)" if seconds > 0 else ""
    return f"{pluralize(tokens, 'token', ',')}{speed}"


def two_columns(rows: Iterable[tuple[str, str]]) -> "Table":
    """A table of names and their meanings."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, meaning in rows:
        table.add_row(Text(name), Text(meaning))
    return table
