"""Slash commands, and the table of them."""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass

from rich.console import RenderableType

from shepherd.cli.render.renderer import Renderer
from shepherd.cli.render.status import Status
from shepherd.cli.render.surface import Surface
from shepherd.cli.repl.approve import ApproveSwitch
from shepherd.cli.terminal.paint import BLANK_LINE, Piece
from shepherd.conversation.conversation import Conversation
from shepherd.validation import nearest

_COMMAND = re.compile(r"/([a-z?][a-z0-9_-]*)?(?:\s+(.*))?", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Command:
    """One command: `run` gets the text after the name; `choices` completes it.

    With `by_words`, completion adds one word of a choice at a time. With `is_message`, the line is
    sent like a message, and the conversation expands it; `run` is then not called.
    """

    name: str
    usage: str
    summary: str
    run: Callable[[str], Awaitable[None]]
    choices: Callable[[], Iterable[str]] | None = None
    by_words: bool = False
    is_message: bool = False


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The objects that commands use."""

    conversation: Conversation
    surface: Surface
    renderer: Renderer
    status: Status
    approve: ApproveSwitch
    leave: Callable[[], None]

    def say(self, *lines: RenderableType) -> None:
        """Show lines, with a blank line above them."""
        self.surface.show(BLANK_LINE, *(Piece(line) for line in lines))


class CommandTable:
    """Commands by name; `prompts` and `resources` of MCP servers complete like them."""

    def __init__(self) -> None:
        self._commands: dict[str, Command] = {}
        self.prompts: Callable[[], Iterable[tuple[str, str]]] = tuple
        self.resources: Callable[[], Iterable[str]] = tuple

    def offered_prompts(self) -> Iterable[tuple[str, str]]:
        """The prompts of servers now, with their descriptions."""
        return self.prompts()

    def offered_resources(self) -> Iterable[str]:
        """The resources of servers now."""
        return self.resources()

    def __iter__(self) -> Iterator[Command]:
        return iter(self._commands.values())

    def __len__(self) -> int:
        return len(self._commands)

    def extend(self, commands: Iterable[Command]) -> None:
        """Add commands; raises ValueError if a name is taken."""
        for command in commands:
            if command.name in self._commands:
                raise ValueError(f"two commands are named /{command.name}")
            self._commands[command.name] = command

    def find(self, name: str) -> Command | None:
        """The command of that name."""
        return self._commands.get(name)

    def nearest(self, name: str) -> str:
        """The command most similar to `name`, or ""."""
        starting = [n for n in self._commands if name and n.startswith(name)]
        return (starting or [nearest(name, self._commands, cutoff=0.5)])[0]


def parse_command(text: str) -> tuple[str, str] | None:
    """Name and argument if `text` is a command; `/etc/passwd` is not one."""
    match = _COMMAND.fullmatch(text.strip())
    return (match.group(1) or "", (match.group(2) or "").strip()) if match else None
