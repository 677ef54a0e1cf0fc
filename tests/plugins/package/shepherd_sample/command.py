"""A slash command."""

from collections.abc import Iterator

from rich.text import Text

from shepherd.cli.repl.commands.base import Command, CommandContext


def commands(context: CommandContext) -> Iterator[Command[str]]:
    """`/shout TEXT`."""

    async def shout(text: str) -> None:
        context.say(Text(text.upper()))

    yield Command("shout", "/shout TEXT", "show a text in capital letters", shout)
