"""Commands that shorten the conversation, and keep facts."""

from rich.text import Text

from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.conversation.compaction import (
    Compaction,
    SuggestedFact,
    compact,
    parse_fact,
    remember,
)
from shepherd.errors import ShepherdError

MAX_FACT = 200


def compaction_commands(context: CommandContext) -> list[Command]:
    """The commands."""
    compaction = _Compaction(context)
    return [
        Command("compact", "[WHAT TO KEEP]", "let the model summarise old turns in their place",
                compaction.compact),
        Command("remember", "NAME = VALUE", "keep a fact for later conversations",
                compaction.remember),
    ]  # fmt: skip


class _Compaction:
    def __init__(self, context: CommandContext) -> None:
        self._context = context

    async def compact(self, argument: str) -> None:
        conversation, renderer = self._context.conversation, self._context.renderer
        renderer.activity.start("summarising")
        try:
            backend = await conversation.backend()
            done = await compact(conversation.session, backend, argument, renderer)
        except ShepherdError as error:
            renderer.error(str(error))
            return
        finally:
            renderer.activity.stop()
        self._context.say(Text(done.text), Text(sanitize(done.summary), style="quiet"))
        await self._context.status.loaded(backend, conversation.session)
        await self._offer(done)

    async def remember(self, argument: str) -> None:
        await self._store(parse_fact(argument))

    async def _offer(self, done: Compaction) -> None:
        """Ask about each fact that the model would keep."""
        if self._context.conversation.memory is None:
            return
        for fact in done.facts:
            text = one_line(f"{fact.name} = {fact.value}", MAX_FACT)
            answer = await self._context.surface.ask_text(f"Remember {text}? (y/n) ")
            if answer.strip().lower() in ("y", "yes"):
                await self._store(fact)

    async def _store(self, fact: SuggestedFact) -> None:
        conversation = self._context.conversation
        await remember(conversation.memory, conversation.cwd, fact)
        self._context.say(Text(one_line(f"Remembered: {fact.name}", MAX_FACT)))
