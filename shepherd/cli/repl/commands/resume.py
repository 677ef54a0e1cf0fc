"""Resumes an earlier session."""

import asyncio
from contextlib import suppress
from itertools import islice

from rich.text import Text

from shepherd.cli.render.renderer import show_last_exchanges
from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.repl.commands.view import two_columns
from shepherd.cli.terminal.sanitize import one_line
from shepherd.errors import SessionError
from shepherd.tools.text import pluralize
from shepherd.transcript import SessionStore, SessionSummary

MAX_LISTED = 20
TITLE_WIDTH = 60


def resume_commands(context: CommandContext) -> list[Command]:
    """The commands."""
    resume = _Resume(context)
    return [
        Command(
            "resume",
            "[NUMBER|ID]",
            "the recent sessions of this directory; with one of them, go on with it",
            resume.resume,
            resume.ids,
        )
    ]


class _Resume:
    def __init__(self, context: CommandContext) -> None:
        self._context = context
        self._listed: list[str] = []

    @property
    def _store(self) -> SessionStore:
        return self._context.conversation.sessions

    def ids(self) -> list[str]:
        """The ids that `/resume` completes, the newest first."""
        conversation = self._context.conversation
        own = conversation.session.id
        others = (name for name in self._store.session_ids(conversation.cwd) if name != own)
        return list(islice(others, MAX_LISTED))

    async def resume(self, argument: str) -> None:
        if not argument:
            await self._list()
            return
        conversation, renderer = self._context.conversation, self._context.renderer
        left = conversation.session
        try:
            conversation.resume(await self._chosen(argument))
        except SessionError as error:
            renderer.error(str(error))
            return
        if left.messages and left.journal is not None:
            renderer.notice(f"/resume {left.id} goes back")
        show_last_exchanges(conversation.session.messages, renderer)
        await self._show_use()

    async def _list(self) -> None:
        summaries = await asyncio.to_thread(self._summaries)
        self._listed = [summary.id for summary in summaries]
        if not summaries:
            self._context.say(Text("There is no other session of this directory."))
            return
        rows = ((str(n), _line(summary)) for n, summary in enumerate(summaries, start=1))
        self._context.say(
            two_columns(rows),
            Text("/resume NUMBER goes on with one, /resume ID with any session.", style="quiet"),
        )

    def _summaries(self) -> list[SessionSummary]:
        result: list[SessionSummary] = []
        for name in self.ids():
            with suppress(SessionError):  # `shepherd sessions list` reports the problem
                result.append(self._store.summary(name))
        return result

    async def _chosen(self, argument: str) -> str:
        """The id for a number in the last list, or `argument` itself."""
        listed = self._listed or await asyncio.to_thread(self.ids)
        number = int(argument) if argument.isdecimal() else 0
        return listed[number - 1] if 0 < number <= len(listed) else argument

    async def _show_use(self) -> None:
        conversation, status = self._context.conversation, self._context.status
        status.context_used = 0
        if conversation.slot.loaded_backend is not None:
            await status.loaded(conversation.slot.loaded_backend, conversation.session)


def _line(summary: SessionSummary) -> str:
    when = summary.updated.astimezone().strftime("%Y-%m-%d %H:%M")
    size = pluralize(summary.messages, "message")
    return f"{summary.id}  {when}  {size}  {one_line(summary.title, TITLE_WIDTH)}"
