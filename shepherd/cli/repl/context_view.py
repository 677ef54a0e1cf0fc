"""The parts of the context, in tokens."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from shepherd.backends.base import Backend, CacheTier
from shepherd.messages import Message, Role
from shepherd.session import Session
from shepherd.turn.fitting import message_counts


@dataclass(frozen=True, slots=True)
class ContextShares:
    """Tokens by purpose; `size` 0 if unknown, `measured` False for an estimate.

    `tools` includes the template's text around all parts. `error`: see `Backend.count_error`.
    """

    system: int
    tools: int
    user: int
    answers: int
    results: int
    size: int
    measured: bool
    error: float | None = None

    @property
    def used(self) -> int:
        """The sum of all parts."""
        return self.system + self.tools + self.user + self.answers + self.results

    @property
    def free(self) -> int:
        """The remaining tokens."""
        return max(0, self.size - self.used)


async def measure_context(session: Session, backend: Backend) -> ContextShares:
    """Count the session's parts with the backend's tokenizer."""
    counts = await message_counts(session, backend)
    by_role = dict.fromkeys(Role, 0)
    for message, count in zip(session.messages, counts, strict=True):
        by_role[message.role] += count
    system = await _count(session, backend, session.system_message)
    used = session.ledger.context_used
    rest = used - system - sum(by_role.values())
    return ContextShares(
        system=system,
        tools=rest if used and rest >= 0 else await _tool_tokens(session, backend),
        user=by_role[Role.USER],
        answers=by_role[Role.ASSISTANT],
        results=by_role[Role.TOOL],
        size=backend.info.context_size,
        measured=bool(used and rest >= 0),
        error=backend.count_error,
    )


def context_rows(shares: ContextShares) -> list[tuple[str, str]]:
    """Name and tokens of each part."""
    parts = [
        ("system message", shares.system),
        ("tools and template", shares.tools),
        ("your messages", shares.user),
        ("answers", shares.answers),
        ("tool results", shares.results),
    ]
    about = "" if shares.measured else "about "
    rows = [(name, _line(tokens, shares.size)) for name, tokens in parts]
    rows.append(("used", about + _line(shares.used, shares.size)))
    if shares.size:
        rows.append(("free", f"{about}{_line(shares.free, shares.size)} of {shares.size:,}"))
    if shares.error is not None:
        known = f", ±{max(1, round(100 * shares.error))}%" if shares.error < 1 else ""
        rows.append(("counts", f"estimated{known}"))
    return rows


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


async def _tool_tokens(session: Session, backend: Backend) -> int:
    if not session.tools:
        return 0
    listed = json.dumps(
        [{"name": t.name, "description": t.description, **t.parameters} for t in session.tools]
    )
    return await _count(session, backend, listed)


async def _count(session: Session, backend: Backend, text: str) -> int:
    if not text:
        return 0
    return await backend.count_message_tokens(session, Message(Role.SYSTEM, text))
