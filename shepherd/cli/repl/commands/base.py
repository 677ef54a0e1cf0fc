"""What commands of the terminal are made of: their context, and the table of them."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from shepherd.cli.render.renderer import Renderer
from shepherd.cli.render.status import Status
from shepherd.cli.render.surface import Surface
from shepherd.cli.render.tool_view import display_pieces
from shepherd.cli.terminal.paint import BLANK_LINE, Ink, Piece
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.conversation.commands.command import Command, Diff, Lines, Note, Offer, Row
from shepherd.conversation.conversation import Conversation
from shepherd.validation import nearest

_COMMAND = re.compile(
    r"/(?P<name>[a-z?][a-z0-9_-]*)?(?:\s+(?P<argument>.*))?", re.DOTALL | re.IGNORECASE
)

_SHELL_COMMAND = re.compile(r"`shepherd (?P<name>provider|memory) ")


_ELSEWHERE = {
    "cost": "usage",
    "history": "resume",
    "new": "clear",
    "reset": "clear",
    "sessions": "resume",
    "status": "stats",
    "tokens": "usage",
}
"""What commands of other agents are called here."""


class CommandContext(Struct, frozen=True):
    """The objects that commands of the terminal use."""

    conversation: Conversation
    surface: Surface
    renderer: Renderer
    status: Status
    leave: Callable[[], None]

    def say(self, *lines: RenderableType) -> None:
        """Show lines, with a blank line above them."""
        self.surface.show(BLANK_LINE, *(Piece(line) for line in lines))

    def show(self, lines: Lines) -> None:
        """Show the output of a command, with a blank line above it."""
        show_lines(lines, self.renderer, self.surface)

    async def show_use(self) -> None:
        """Count the tokens of the conversation again, for the status line."""
        backend = self.conversation.slot.loaded_backend
        self.status.context_used = 0  # what is shown until the count is known
        if backend is not None:  # otherwise the first turn counts, once the model is loaded
            await self.status.note_loaded(backend, self.conversation.session)


def show_lines(lines: Lines, renderer: Renderer, surface: Surface) -> None:
    """Show the output of a command; the whole of a diff is among the results to read."""
    ink: list[Ink] = [BLANK_LINE] if lines else []
    for kind, group in groupby(lines, type):  # rows that follow each other make one table
        if kind is Row:
            rows = [line for line in group if isinstance(line, Row)]  # all; only for the types
            ink.append(Piece(_two_columns(rows)))
        elif kind is Diff:
            for diff in map(str, group):
                renderer.results.add("diff", diff)
                ink += display_pieces(diff)
        elif kind is not Offer:  # an offer is asked, not shown
            style = "quiet" if kind is Note else ""
            ink += [Piece(Text(sanitize(str(line)), style=style)) for line in group]
    surface.show(*ink)


def _two_columns(rows: Iterable[Row]) -> Table:
    """A table of names and their meanings."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for row in rows:
        meaning = f"{row.meaning} {row.aside}".rstrip()
        table.add_row(Text(sanitize(row.name)), Text(sanitize(meaning)))
    return table


class CommandTable:
    """Commands by name."""

    def __init__(self) -> None:
        self._commands: dict[str, Command[str]] = {}

    def __iter__(self) -> Iterator[Command[str]]:
        return iter(self._commands.values())

    def extend(self, commands: Iterable[Command[str]]) -> None:
        """Add commands; raises ValueError if a name is taken."""
        for command in commands:
            if command.name in self._commands:
                raise ValueError(f"two commands are named /{command.name}")
            self._commands[command.name] = command

    def find(self, name: str) -> Command[str] | None:
        """The command of that name."""
        return self._commands.get(name)

    def is_message(self, name: str) -> bool:
        """Whether the line of a command is sent as a message, which the conversation expands."""
        command = self.find(name)
        return command is not None and command.is_message

    def nearest(self, name: str) -> str:
        """The command that `name` means in other programs, or the most similar one, or ""."""
        if (meant := _ELSEWHERE.get(name, "")) in self._commands:
            return meant
        for command in self._commands:
            if name and command.startswith(name):  # `""` begins every name
                return command
        return nearest(name, self._commands, cutoff=0.5)

    def with_slash_commands(self, text: str) -> str:
        """The text with commands of this table in the place of the same ones of the shell.

        `shepherd provider list` becomes `/provider list` if the table has it.
        """

        def replaced(match: re.Match[str]) -> str:
            name = match["name"]
            return f"`/{name} " if self.find(name) else match[0]  # a remote terminal lacks some

        return _SHELL_COMMAND.sub(replaced, text)


class CommandLine(NamedTuple):
    """The name of a command, "" in a lone slash, and what stands behind it."""

    name: str
    argument: str


def parse_command(text: str) -> CommandLine | None:
    """The parts of a line that is a command, such as `/model NAME`; `/etc/passwd` is none."""
    match = _COMMAND.fullmatch(text.strip())
    if match is None:
        return None
    return CommandLine(match["name"] or "", (match["argument"] or "").strip())
