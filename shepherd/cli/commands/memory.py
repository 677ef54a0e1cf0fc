"""`shepherd memory`: messages that were evicted from contexts, and facts."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from shepherd.cli.commands.arguments import ValueCommand
from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.config.paths import Paths
from shepherd.memory import Counts, Fact, Memory, Place
from shepherd.memory.search import search_facts
from shepherd.tools.memory import NO_MATCHES, fact_line, message_line
from shepherd.tools.text import pluralize

T = TypeVar("T")

memory = typer.Typer(
    name="memory", help="Messages that left full contexts, and facts.", no_args_is_help=True
)


@memory.command("search", cls=ValueCommand)
def search(
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="What to look for.")],
) -> None:
    """Search like the model's `search_memory` in this project, the best hits first."""
    project = _place().project
    for line in _with_memory(lambda memory: hit_lines(memory, " ".join(words), project)):
        typer.echo(line)


@memory.command("facts")
def facts() -> None:
    """Show the facts for this project."""
    project = _place().project
    for line in fact_lines(_with_memory(lambda memory: memory.facts(project))):
        typer.echo(line)


@memory.command("clear")
def clear(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete all messages and facts, of all projects, permanently."""
    if not yes:
        typer.echo(counts_line(_with_memory(lambda memory: memory.counts())))
        typer.confirm("Forget all of it?", abort=True)
    _with_memory(lambda memory: memory.clear())
    sys.stderr.write("The memory is empty.\n")


def _place() -> Place:
    return Place.of(Path.cwd())


def _with_memory(work: Callable[[Memory], Awaitable[T]]) -> T:
    async def do() -> T:
        memory = Memory(Paths.from_env(os.environ).memory_file, _warn)
        try:
            return await work(memory)
        finally:
            await memory.aclose()

    return asyncio.run(do())


def _warn(text: str) -> None:
    sys.stderr.write(f"shepherd: {text}\n")


MAX_HITS = 10
FACT_WIDTH = 200
MIB = 1_048_576


async def hit_lines(memory: Memory, query: str, project: str) -> list[str]:
    """The results of `search_memory`, the best first."""
    messages = await memory.search(query, project, MAX_HITS)
    facts = search_facts(await memory.facts(project), query, MAX_HITS)
    lines = [*map(fact_line, facts), *map(message_line, messages)]
    return [sanitize(line) for line in lines] or [NO_MATCHES]


def fact_lines(facts: Sequence[Fact]) -> list[str]:
    """A line per fact; those for all projects are marked."""
    lines = (
        f"{fact.key}: {fact.value}{'  (all projects)' if fact.everywhere else ''}" for fact in facts
    )
    return [one_line(line, FACT_WIDTH) for line in lines] or ["(no facts)"]


def counts_line(counts: Counts) -> str:
    """The number of messages and facts, and their size."""
    facts = pluralize(counts.facts, "fact", ",")
    if counts.oldest is None:
        return f"No messages, {facts}."
    since = f"{counts.oldest.astimezone():%Y-%m-%d}"
    messages = pluralize(counts.messages, "message", ",")
    sessions = pluralize(counts.sessions, "session", ",")
    size = f"{counts.text_bytes / MIB:.1f} MiB"
    return f"{messages} from {sessions} since {since} ({size}), {facts}."
