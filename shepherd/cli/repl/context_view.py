"""The parts of the context as lines."""

from collections.abc import Sequence

from shepherd.backends.base import CacheTier
from shepherd.cli.terminal.sanitize import one_line
from shepherd.conversation.context_use import ContextPart, ContextUse

MAX_NAME = 60


def context_rows(use: ContextUse) -> list[tuple[str, str]]:
    """Name and tokens of each part."""
    about = "" if use.error is None else "about "
    rows = part_rows(use.parts, use.size)
    rows.append(("used", about + _line(use.used, use.size)))
    if use.size:
        rows.append(("free", f"{about}{_line(use.free, use.size)} of {use.size:,}"))
    if use.read and use.read != use.used:
        rows.append(("read so far", _line(use.read, use.size)))
    if use.error is not None:
        known = f", ±{max(1, round(100 * use.error))}%" if use.error < 1 else ""
        rows.append(("counts", f"estimated{known}"))
    return rows


def part_rows(parts: Sequence[ContextPart], size: int) -> list[tuple[str, str]]:
    """Name and tokens of each of `parts`, in a context of `size` tokens."""
    return [(one_line(part.name, MAX_NAME), _line(part.tokens, size)) for part in parts]


def cache_rows(tiers: Sequence[CacheTier]) -> list[tuple[str, str]]:
    """The contents and savings of the prefix cache, tier by tier; none for other backends."""
    rows: list[tuple[str, str]] = []
    for tier in tiers:
        held = f"{tier.entries:,} kept, {tier.bytes / 1e6:,.1f} MB"
        saved = f"{tier.hits:,} hits saved {tier.tokens:,} tokens"
        evictions = f"{tier.evictions:,} evicted"
        rows.append((f"cache, {tier.name}", f"{held}; {saved}; {evictions}"))
    return rows


def _line(tokens: int, size: int) -> str:
    share = f"  {100 * tokens / size:.0f}%" if size else ""
    return f"{tokens:>7,}{share}"
