"""Commands of the terminal alone: help, figures, files of sessions, the memory."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

from shepherd import errors, prices
from shepherd.cli.commands.memory_view import counts_line, fact_lines, hit_lines
from shepherd.cli.render.renderer import show_last_exchanges
from shepherd.cli.render.status import Totals
from shepherd.cli.repl.commands.base import Command, CommandContext, CommandTable
from shepherd.cli.terminal.sanitize import one_line
from shepherd.conversation.commands.command import Lines, Note, Row
from shepherd.conversation.export import save_conversation
from shepherd.memory.store import Place
from shepherd.tools.text import pluralize
from shepherd.transcript import SessionSummary

MAX_LISTED = 20
MAX_TITLE = 60
MAX_DESCRIPTION = 200
NO_MEMORY = "There is no memory: memory.enabled or terminal.save_sessions is off."
_KEYS = (
    Row("Enter", "send; while the model works the message waits its turn"),
    Row("Alt+Enter, Ctrl+J, \\ Enter", "new line"),
    Row("Esc, Ctrl+C", "stop the model, a tool or a question; Ctrl+C clears typed text first"),
    Row("Esc Esc", "in an empty prompt: go back to an earlier message"),
    Row("Tab", "complete a /command or an @file; a file's content goes along with the message"),
    Row("Tab, while it works", "send the message into the running turn; Enter lets it wait"),
    Row("!command", "run your own command; !!command without the model's knowledge"),
    Row("Up, Ctrl+R", "earlier messages"),
    Row("Shift+Tab", "what runs without asking: ask, edits, review, plan, auto"),
    Row("Ctrl+O", "the last result or change whole"),
    Row("Ctrl+D", "leave"),
)


class TerminalCommands:
    """The commands; `table` is all that `/help` shows."""

    def __init__(self, context: CommandContext, table: CommandTable) -> None:
        self._context = context
        self._table = table
        self._conversation = context.conversation
        self._listed: list[str] = []
        """The ids of the list that `/resume` has shown last."""

    def commands(self) -> list[Command[str]]:
        """All of them."""
        return [
            *basic_commands(self._table, self._context.leave, "leave", ["", *_KEYS]),
            Command("tools", "", "the tools that the model may call", self._tools, beside=True),
            Command("thinking", "on|off|show|hide", "let the model reason first; show or hide it",
                    self._thinking, lambda: ("on", "off", "show", "hide")),
            Command("usage", "", "tokens, and their price if it is known", self._usage,
                    beside=True),
            Command("stats", "", "tokens and speeds since the start", self._stats, beside=True),
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
                    lambda: ("search", "facts", "clear")),
        ]  # fmt: skip

    async def _system(self, argument: str) -> Lines:
        """Show the system message, or replace it."""
        conversation = self._conversation
        if not argument:
            return [conversation.session.system_message or "(none)"]
        conversation.change_system_message(argument)
        cost = " The conversation is read again before the next answer."
        return [f"The system message is replaced.{cost if conversation.session.messages else ''}"]

    async def _save(self, argument: str) -> Lines:
        """Write the conversation as Markdown or JSON."""
        return await self._written(argument or f"shepherd-{self._conversation.session.id}.md")

    async def _export(self, argument: str) -> Lines:
        """Write the conversation as a document to read."""
        if argument and not argument.endswith((".md", ".html", ".htm")):
            raise errors.InvalidRequestError("/export writes a FILE that ends in .md or .html.")
        return await self._written(argument or f"shepherd-{self._conversation.session.id}.html")

    async def _written(self, name: str) -> Lines:
        """Write the conversation into a new file, in the format that its name ends with."""
        session, cwd = self._conversation.session, self._conversation.cwd
        if not session.messages:
            raise errors.InvalidRequestError("There is nothing to save yet.")
        try:
            path = await asyncio.to_thread(save_conversation, session, cwd, name)
        except FileExistsError as error:
            raise errors.InvalidRequestError(f"{name} exists; give another name.") from error
        except OSError as error:
            raise errors.InvalidRequestError(f"{name}: {error.strerror}") from error
        return [f"Saved to {path}"]

    def _ids(self) -> list[str]:
        """The ids that `/resume` completes, the newest first."""
        conversation = self._conversation
        ids = conversation.sessions.session_ids(conversation.cwd)
        others = (name for name in ids if name != conversation.session.id)
        return list(islice(others, MAX_LISTED))

    async def _resume(self, argument: str) -> Lines | None:
        """List the sessions, or go on with one: by its number in the list, or by its id."""
        if not argument:
            return await self._list()
        conversation, renderer = self._conversation, self._context.renderer
        previous = conversation.session
        # before a list is shown, the numbers are those that it would have
        listed = self._listed or await asyncio.to_thread(self._ids)
        number = int(argument) if argument.isdecimal() else 0
        is_listed_number = 0 < number <= len(listed)  # an id may have digits alone, too
        conversation.resume(listed[number - 1] if is_listed_number else argument)
        if previous.messages and previous.journal is not None:  # it is saved
            renderer.notice(f"/resume {previous.id} goes back")
        show_last_exchanges(conversation.session.messages, renderer)
        await self._context.show_use()
        return None

    async def _list(self) -> Lines:
        """The sessions of this directory, whose numbers `/resume` takes then."""
        summaries = await asyncio.to_thread(self._summaries)
        self._listed = [summary.id for summary in summaries]
        if not summaries:
            return ["There is no other session of this directory."]
        rows = [Row(str(n), _summary_line(s)) for n, s in enumerate(summaries, start=1)]
        return [*rows, Note("/resume NUMBER goes on with one, /resume ID with any session.")]

    def _summaries(self) -> list[SessionSummary]:
        """What is known of each session; those that can't be read are left out."""
        result: list[SessionSummary] = []
        for name in self._ids():
            with suppress(errors.SessionError):  # `shepherd sessions list` reports the problem
                result.append(self._conversation.sessions.summary(name))
        return result

    async def _memory(self, argument: str) -> Lines:
        """Show what the memory holds, search it, or clear it."""
        memory = self._conversation.memory
        if memory is None:
            return [NO_MEMORY]
        action, _, words = argument.partition(" ")
        project = Place.of(self._conversation.cwd).project
        match action, words.strip():  # a word too many is an error
            case "", "":
                return [counts_line(await memory.counts())]
            case "search", query if query:
                return await hit_lines(memory, query, project)
            case "facts", "":
                return fact_lines(await memory.facts(project))
            case "clear", "":
                counts = counts_line(await memory.counts())
                return [counts, "/memory clear all forgets it for good, of all projects."]
            case "clear", "all":
                await memory.clear()
                return ["The memory is empty."]
            case _:
                raise errors.InvalidRequestError("/memory takes search WORDS, facts or clear.")

    async def _tools(self, argument: str) -> Lines:
        """The names and descriptions of the tools."""
        specs = self._conversation.session.tools
        rows = [Row(spec.name, one_line(spec.description, MAX_DESCRIPTION)) for spec in specs]
        return rows or ["No tools: the model was started without them."]

    async def _thinking(self, argument: str) -> Lines:
        """Switch reasoning on or off, or its text; then show what is set."""
        session, renderer = self._conversation.session, self._context.renderer
        match argument:
            case "on" | "off":
                session.thinking = self._context.status.thinking = argument == "on"
            case "show" | "hide":
                renderer.show_thinking = argument == "show"
            case "":  # what is set is shown in any case
                pass
            case _:
                raise errors.InvalidRequestError("/thinking takes on, off, show or hide.")
        state = "on" if session.thinking else "off"
        visibility = "shown" if renderer.show_thinking else "hidden"
        return [f"thinking: {state}, {visibility}"]

    async def _usage(self, argument: str) -> Lines:
        """Tokens and costs of the last turn, and since the start."""
        status = self._context.status
        spans = (("last turn", status.turn), ("since the start", status.totals))
        rows = [Row(name, _use(totals)) for name, totals in spans]
        if status.totals.generations and status.totals.cost is None:
            note = "The price is unknown; terminal.prices in the settings can state it."
            return [*rows, Note(note)]
        return rows

    async def _stats(self, argument: str) -> Lines:
        """What was read and written since the start; the speeds are averages."""
        totals = self._context.status.totals
        read = totals.prompt_tokens - totals.cached_tokens
        cached = f"{totals.prompt_tokens:,}, of which cached {totals.cached_tokens:,}"
        return [
            Row("messages answered", f"{totals.turns:,}"),
            Row("generations", f"{totals.generations:,}"),
            Row("prompt tokens", cached),
            Row("read", _tokens_in(read, totals.prefill_seconds)),
            Row("written", _tokens_in(totals.completion_tokens, totals.decode_seconds)),
        ]


def _summary_line(summary: SessionSummary) -> str:
    """`ID  2026-05-01 09:30  12 messages  the first words of the first one`."""
    when = summary.updated.astimezone().strftime("%Y-%m-%d %H:%M")
    size = pluralize(summary.messages, "message")
    return f"{summary.id}  {when}  {size}  {one_line(summary.title, MAX_TITLE)}"


def basic_commands(
    table: CommandTable, leave: Callable[[], None], leaving: str, more_help: Lines = ()
) -> list[Command[str]]:
    """The commands of any terminal; `leaving` says what `/exit` does."""

    async def show_help(_argument: str) -> Lines:
        # commands may have been added meanwhile
        commands = [Row(f"/{c.name} {c.usage}".strip(), c.summary) for c in table]
        return [*commands, *more_help]

    async def run_leave(_argument: str) -> None:
        leave()

    return [
        Command("help", "", "what there is", show_help, beside=True),
        Command("exit", "", f"{leaving} (also Ctrl+D)", run_leave),
        Command("quit", "", leaving, run_leave),
    ]


def _use(totals: Totals) -> str:
    """`1,200 tokens read (900 cached), 80 written; $1.23`."""
    cost = "" if totals.cost is None else f"; {prices.dollars(totals.cost)}"
    cached = f" ({totals.cached_tokens:,} cached)" if totals.cached_tokens else ""
    read = pluralize(totals.prompt_tokens, "token", ",")
    return f"{read} read{cached}, {totals.completion_tokens:,} written{cost}"


def _tokens_in(tokens: int, seconds: float) -> str:
    """`80 tokens in 2.0 s (40 a second)`."""
    speed = f" in {seconds:.1f} s ({tokens / seconds:.0f} a second)" if seconds > 0 else ""
    return f"{pluralize(tokens, 'token', ',')}{speed}"
