"""What commands of the terminal are made of: their context, and the table of them."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

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

__all__ = ["Command", "CommandContext", "CommandTable", "parse_command", "two_columns"]

_COMMAND = re.compile(r"/([a-z?][a-z0-9_-]*)?(?:\s+(.*))?", re.DOTALL | re.IGNORECASE)

_SHELL_COMMAND = re.compile(r"`shepherd (provider|memory) ")


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
        self.status.context_used = 0
        if backend is not None:
            await self.status.note_loaded(backend, self.conversation.session)


def show_lines(lines: Lines, renderer: Renderer, surface: Surface) -> None:
    """Show the output of a command; the whole of a diff is among the results to read."""
    ink: list[Ink] = [BLANK_LINE] if lines else []
    for kind, group in groupby(lines, type):
        if kind is Row:
            rows = (line for line in group if isinstance(line, Row))
            cells = ((row.name, f"{row.meaning} {row.aside}".rstrip()) for row in rows)
            ink.append(Piece(two_columns((sanitize(n), sanitize(m)) for n, m in cells)))
        elif kind is Diff:
            for diff in map(str, group):
                renderer.results.add("diff", diff)
                ink += display_pieces(diff)
        elif kind is not Offer:
            style = "quiet" if kind is Note else ""
            ink += [Piece(Text(sanitize(str(line)), style=style)) for line in group]
    surface.show(*ink)


def two_columns(rows: Iterable[tuple[str, str]]) -> Table:
    """A table of names and their meanings."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, meaning in rows:
        table.add_row(Text(name), Text(meaning))
    return table


class CommandTable:
    """Commands by name."""

    def __init__(self) -> None:
        self._commands: dict[str, Command[str]] = {}

    def __iter__(self) -> Iterator[Command[str]]:
        return iter(self._commands.values())

    def __len__(self) -> int:
        return len(self._commands)

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
        """The command most similar to `name`, or ""."""
        starting = [n for n in self._commands if name and n.startswith(name)]
        return (starting or [nearest(name, self._commands, cutoff=0.5)])[0]

    def with_slash_commands(self, text: str) -> str:
        """The text with commands of this table in the place of the same ones of the shell."""
        return _SHELL_COMMAND.sub(lambda m: f"`/{m[1]} " if self.find(m[1]) else m[0], text)


def parse_command(text: str) -> tuple[str, str] | None:
    """Name and argument if `text` is a command; `/etc/passwd` is not one."""
    match = _COMMAND.fullmatch(text.strip())
    return (match.group(1) or "", (match.group(2) or "").strip()) if match else None
