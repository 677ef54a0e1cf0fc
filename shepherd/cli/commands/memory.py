"""`shepherd memory`: messages that were evicted from contexts, and facts."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from shepherd.cli.commands import arguments, output
from shepherd.cli.commands.memory_view import counts_line, fact_lines, hit_lines
from shepherd.config.paths import Paths
from shepherd.memory.memory import Memory
from shepherd.memory.store import Place

T = TypeVar("T")

memory = typer.Typer(
    name="memory", help="Messages that left full contexts, and facts.", no_args_is_help=True
)


@memory.command("search", cls=arguments.ValueCommand)
def search(
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="What to look for.")],
) -> None:
    """Search like the model's `search_memory` in this project, the best hits first."""
    project = Place.of(Path.cwd()).project
    for line in _with_memory(lambda memory: hit_lines(memory, " ".join(words), project)):
        typer.echo(line)


@memory.command("facts")
def facts() -> None:
    """Show the facts for this project."""
    project = Place.of(Path.cwd()).project
    for line in fact_lines(_with_memory(lambda memory: memory.facts(project))):
        typer.echo(line)


@memory.command("clear")
def clear(yes: arguments.Yes = False) -> None:
    """Delete all messages and facts, of all projects, permanently."""
    if not yes:
        typer.echo(counts_line(_with_memory(lambda memory: memory.counts())))
        typer.confirm("Forget all of it?", abort=True)
    _with_memory(lambda memory: memory.clear())
    output.note("The memory is empty.")


def _with_memory(work: Callable[[Memory], Awaitable[T]]) -> T:
    """What `work` returns for the user's memory."""

    async def do() -> T:
        memory = Memory(Paths.from_env(os.environ).memory_file, output.warn)
        try:
            return await work(memory)
        finally:
            await memory.aclose()

    return asyncio.run(do())
