"""The contents of the memory in lines: for the commands, and for the prompt without Typer."""

from collections.abc import Sequence

from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.memory.memory import Memory, search_facts
from shepherd.memory.store import Counts, Fact
from shepherd.tools.memory import NO_MATCHES, fact_line, message_line
from shepherd.tools.text import pluralize

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
