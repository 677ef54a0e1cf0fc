"""Commands about the conversation."""

import asyncio
import json
from pathlib import Path

from rich.text import Text

from shepherd.backends.base import Backend
from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.repl.commands.view import two_columns
from shepherd.cli.repl.context_view import cache_rows, context_rows, part_rows
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.conversation.context_use import measure_context, measure_tools
from shepherd.messages import Message, Role, message_to_json
from shepherd.session import Session
from shepherd.tools.deferred.wrapper import open_call


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


def save_conversation(session: Session, cwd: Path, name: str) -> Path:
    """Write the conversation to a new file, as JSON if its name ends so; raises OSError."""
    path = cwd / Path(name).expanduser()
    text = as_json(session) if path.suffix == ".json" else as_markdown(session)
    with path.open("x", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return path


def as_json(session: Session) -> str:
    """The session's id, system message and messages as one JSON object."""
    data = {
        "id": session.id,
        "system_message": session.system_message,
        "messages": [message_to_json(m.without_images()) for m in session.messages],
    }
    return json.dumps(data, ensure_ascii=False, indent=2) + "\n"


def as_markdown(session: Session) -> str:
    """The conversation as a document, with calls and results in code blocks."""
    parts = [f"# Shepherd session {session.id}"]
    for message in session.messages:
        parts += _message_parts(message)
    return "\n\n".join(parts) + "\n"


def _message_parts(message: Message) -> list[str]:
    if message.role is Role.TOOL:
        return [f"**{message.name}** gave:", fenced(message.plain_text)]
    role = Role.SYSTEM if message.is_hint else message.role
    title = {Role.USER: "## You", Role.ASSISTANT: "## Model"}.get(role, "## System")
    parts = [title]
    if message.reasoning:
        quoted = message.reasoning.strip().replace("\n", "\n> ")
        parts.append(f"> {quoted}")
    if text := message.plain_text.strip():
        parts.append(text)
    for call in map(open_call, message.tool_calls):
        parts += [f"**{call.name}** called with:", fenced(call.arguments_json, "json")]
    return parts


def fenced(text: str, language: str = "") -> str:
    """The text in a fence that no part of it can close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
