"""Commands of the terminal about its session: the system message, files, other sessions, memory."""

import asyncio
from contextlib import suppress
from itertools import islice

from shepherd.cli.commands.memory_view import counts_line, fact_lines, hit_lines
from shepherd.cli.render.renderer import show_last_exchanges
from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.terminal.sanitize import one_line
from shepherd.conversation.commands.command import Lines, Note, Row
from shepherd.conversation.export import save_conversation
from shepherd.errors import InvalidRequestError, SessionError
from shepherd.memory import Memory, Place
from shepherd.tools.text import pluralize
from shepherd.transcript import SessionSummary

MAX_LISTED = 20
MAX_TITLE = 60
MEMORY_ACTIONS = ("search", "facts", "clear")
NO_MEMORY = "There is no memory: memory.enabled or terminal.save_sessions is off."


class SessionCommands:
    """The commands; `/resume NUMBER` means the list that `/resume` has shown last."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context
        self._conversation = context.conversation
        self._listed: list[str] = []

    def commands(self) -> list[Command[str]]:
        """All of them."""
        return [
            Command("system", "[TEXT]", "the system message; with a text, replace it",
                    self._system),
            Command("save", "[FILE]",
                    "write the conversation as Markdown, or JSON if FILE ends so", self._save),
            Command("export", "[FILE.md|FILE.html]",
                    "write the conversation as a document to read", self._export),
            Command("resume", "[NUMBER|ID]",
                    "the recent sessions of this directory; with one of them, go on with it",
                    self._resume, self._ids),
            Command("memory", "[search WORDS|facts|clear]",
                    "messages that left the context, and facts", self._memory,
                    lambda: MEMORY_ACTIONS),
        ]  # fmt: skip

    async def _system(self, argument: str) -> Lines:
        conversation = self._conversation
        if not argument:
            return [conversation.session.system_message or "(none)"]
        conversation.change_system_message(argument)
        cost = " The conversation is read again before the next answer."
        return [f"The system message is replaced.{cost if conversation.session.messages else ''}"]

    async def _save(self, argument: str) -> Lines:
        return await self._written(argument or f"shepherd-{self._conversation.session.id}.md")

    async def _export(self, argument: str) -> Lines:
        if argument and not argument.endswith((".md", ".html", ".htm")):
            raise InvalidRequestError("/export writes a FILE that ends in .md or .html.")
        return await self._written(argument or f"shepherd-{self._conversation.session.id}.html")

    async def _written(self, name: str) -> Lines:
        session, cwd = self._conversation.session, self._conversation.cwd
        if not session.messages:
            raise InvalidRequestError("There is nothing to save yet.")
        try:
            path = await asyncio.to_thread(save_conversation, session, cwd, name)
        except FileExistsError as error:
            raise InvalidRequestError(f"{name} exists; give another name.") from error
        except OSError as error:
            raise InvalidRequestError(f"{name}: {error.strerror}") from error
        return [f"Saved to {path}"]

    def _ids(self) -> list[str]:
        """The ids that `/resume` completes, the newest first."""
        conversation = self._conversation
        ids = conversation.sessions.session_ids(conversation.cwd)
        others = (name for name in ids if name != conversation.session.id)
        return list(islice(others, MAX_LISTED))

    async def _resume(self, argument: str) -> Lines | None:
        if not argument:
            return await self._list()
        conversation, renderer = self._conversation, self._context.renderer
        left = conversation.session
        listed = self._listed or await asyncio.to_thread(self._ids)
        number = int(argument) if argument.isdecimal() else 0
        conversation.resume(listed[number - 1] if 0 < number <= len(listed) else argument)
        if left.messages and left.journal is not None:
            renderer.notice(f"/resume {left.id} goes back")
        show_last_exchanges(conversation.session.messages, renderer)
        await self._context.show_use()
        return None

    async def _list(self) -> Lines:
        summaries = await asyncio.to_thread(self._summaries)
        self._listed = [summary.id for summary in summaries]
        if not summaries:
            return ["There is no other session of this directory."]
        rows = [Row(str(n), _summary_line(s)) for n, s in enumerate(summaries, start=1)]
        return [*rows, Note("/resume NUMBER goes on with one, /resume ID with any session.")]

    def _summaries(self) -> list[SessionSummary]:
        result: list[SessionSummary] = []
        for name in self._ids():
            with suppress(SessionError):  # `shepherd sessions list` reports the problem
                result.append(self._conversation.sessions.summary(name))
        return result

    async def _memory(self, argument: str) -> Lines:
        memory = self._conversation.memory
        if memory is None:
            return [NO_MEMORY]
        action, _, rest = argument.partition(" ")
        lines = await self._memory_lines(memory, action, rest.strip())
        if not lines:
            raise InvalidRequestError("/memory takes search WORDS, facts or clear.")
        return lines

    async def _memory_lines(self, memory: Memory, action: str, rest: str) -> list[str]:
        """The lines to show; [] for an unknown action."""
        project = Place.of(self._conversation.cwd).project
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


def _summary_line(summary: SessionSummary) -> str:
    when = summary.updated.astimezone().strftime("%Y-%m-%d %H:%M")
    size = pluralize(summary.messages, "message")
    return f"{summary.id}  {when}  {size}  {one_line(summary.title, MAX_TITLE)}"
