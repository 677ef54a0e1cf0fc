"""Commands about the conversation."""

import asyncio

from rich.text import Text

from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.repl.commands.view import two_columns
from shepherd.cli.repl.context_view import cache_rows, context_rows, measure_context
from shepherd.cli.repl.export import save_conversation
from shepherd.cli.terminal.sanitize import sanitize


def conversation_commands(context: CommandContext) -> list[Command]:
    """The commands."""
    conversation = _Conversation(context)
    return [
        Command("system", "[TEXT]", "the system message; with a text, replace it",
                conversation.system),
        Command("context", "", "what fills the context", conversation.context),
        Command("clear", "", "forget the conversation", conversation.clear),
        Command("save", "[FILE]", "write the conversation as Markdown, or JSON if FILE ends so",
                conversation.save),
    ]  # fmt: skip


class _Conversation:
    def __init__(self, context: CommandContext) -> None:
        self._context = context

    async def system(self, argument: str) -> None:
        conversation = self._context.conversation
        if not argument:
            text = conversation.session.system_message or "(none)"
            self._context.say(Text(sanitize(text)))
            return
        conversation.change_system_message(argument)
        cost = " The conversation is read again before the next answer."
        self._context.say(
            Text(f"The system message is replaced.{cost if conversation.session.messages else ''}")
        )

    async def context(self, argument: str) -> None:
        conversation = self._context.conversation
        backend = conversation.slot.loaded_backend
        if backend is None:
            self._context.say(Text("The model is not loaded yet."))
            return
        shares = await measure_context(conversation.session, backend)
        rows = [*context_rows(shares), *cache_rows(backend.cache_tiers)]
        self._context.say(two_columns(rows))

    async def clear(self, argument: str) -> None:
        self._context.conversation.clear()
        self._context.status.context_used = 0
        self._context.say(Text("The conversation starts afresh."))

    async def save(self, argument: str) -> None:
        conversation = self._context.conversation
        if not conversation.session.messages:
            self._context.renderer.error("There is nothing to save yet.")
            return
        name = argument or f"shepherd-{conversation.session.id}.md"
        try:
            path = await asyncio.to_thread(
                save_conversation, conversation.session, conversation.cwd, name
            )
        except FileExistsError:
            self._context.renderer.error(f"{name} exists; give another name.")
        except OSError as error:
            self._context.renderer.error(f"{name}: {error.strerror}")
        else:
            self._context.say(Text(sanitize(f"Saved to {path}")))
