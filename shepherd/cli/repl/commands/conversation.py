"""Commands about the conversation."""

import asyncio

from rich.text import Text

from shepherd.backends.base import Backend
from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.repl.commands.view import two_columns
from shepherd.cli.repl.context_view import cache_rows, context_rows, part_rows
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.conversation.context_use import measure_context, measure_tools
from shepherd.conversation.export import save_conversation


def conversation_commands(context: CommandContext) -> list[Command]:
    """The commands."""
    conversation = _Conversation(context)
    return [
        Command("system", "[TEXT]", "the system message; with a text, replace it",
                conversation.system),
        Command("context", "[tools]", "what fills the context; with tools, what each takes",
                conversation.context, lambda: ("tools",)),
        Command("clear", "", "forget the conversation", conversation.clear),
        Command("save", "[FILE]", "write the conversation as Markdown, or JSON if FILE ends so",
                conversation.save),
        Command("export", "[FILE.md|FILE.html]", "write the conversation as a document to read",
                conversation.export),
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
        if argument:
            await self._tools(argument, backend)
            return
        use = await measure_context(conversation.session, backend)
        self._context.say(two_columns([*context_rows(use), *cache_rows(backend.cache_tiers)]))

    async def _tools(self, argument: str, backend: Backend) -> None:
        if argument != "tools":
            self._context.renderer.error("/context takes tools or nothing.")
            return
        session = self._context.conversation.session
        rows = part_rows(await measure_tools(session, backend), backend.info.context_size)
        self._context.say(two_columns(rows) if rows else Text("The model has no tools."))

    async def clear(self, argument: str) -> None:
        self._context.conversation.clear()
        self._context.status.context_used = 0
        self._context.say(Text("The conversation starts afresh."))

    async def save(self, argument: str) -> None:
        await self._save(argument or f"shepherd-{self._context.conversation.session.id}.md")

    async def export(self, argument: str) -> None:
        if argument and not argument.endswith((".md", ".html", ".htm")):
            self._context.renderer.error("/export writes a FILE that ends in .md or .html.")
            return
        await self._save(argument or f"shepherd-{self._context.conversation.session.id}.html")

    async def _save(self, name: str) -> None:
        conversation = self._context.conversation
        if not conversation.session.messages:
            self._context.renderer.error("There is nothing to save yet.")
            return
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
