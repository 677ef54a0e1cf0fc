"""Commands about evicted messages and facts."""

from rich.text import Text

from shepherd.cli.commands.memory_view import counts_line, fact_lines, hit_lines
from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.errors import MemoryStoreError
from shepherd.memory import Memory, Place

ACTIONS = ("search", "facts", "clear")
OFF = "There is no memory: memory.enabled or terminal.save_sessions is off."


def memory_commands(context: CommandContext) -> list[Command]:
    """The commands."""
    view = _MemoryView(context)
    return [
        Command(
            "memory",
            "[search WORDS|facts|clear]",
            "messages that left the context, and facts",
            view.memory,
            lambda: ACTIONS,
        )
    ]


class _MemoryView:
    def __init__(self, context: CommandContext) -> None:
        self._context = context

    async def memory(self, argument: str) -> None:
        memory = self._context.conversation.memory
        if memory is None:
            self._context.say(Text(OFF))
            return
        action, _, rest = argument.partition(" ")
        try:
            lines = await self._lines(memory, action, rest.strip())
        except MemoryStoreError as error:
            self._context.renderer.error(str(error))
            return
        if lines:
            self._context.say(*map(Text, lines))
        else:
            self._context.renderer.error("/memory takes search WORDS, facts or clear.")

    async def _lines(self, memory: Memory, action: str, rest: str) -> list[str]:
        """The lines to show; [] for an unknown action."""
        project = Place.of(self._context.conversation.cwd).project
        match action, rest:
            case "", "":
                return [counts_line(await memory.counts())]
            case "search", words if words:
                return await hit_lines(memory, words, project)
            case "facts", "":
                return fact_lines(await memory.facts(project))
            case "clear", "":
                counts = counts_line(await memory.counts())
                return [counts, "/memory clear all forgets it for good, of all projects."]
            case "clear", "all":
                await memory.clear()
                return ["The memory is empty."]
            case _:
                return []
