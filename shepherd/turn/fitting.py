"""Making a session fit into its backend's context."""

from dataclasses import replace

from shepherd.backends.base import Backend
from shepherd.errors import ContextFullError
from shepherd.eviction import message_groups, plan_eviction
from shepherd.messages import Message
from shepherd.session import Session

UNKNOWN_OVERFLOW_SHARE = 8
"""Without a number from the backend, one eighth of the context is freed at a time."""

RESULT_SHARE = 4
"""One tool result may take a quarter of the context."""

SAMPLE_CHARACTERS, SAMPLE_MARGIN = 2000, 0.6
"""How much text is measured, and how much denser than it a tool's result may be."""

COUNT_TOLERANCE = 1.25
"""How far the counted tokens may be below the true ones before a plan is called hopeless."""


async def message_counts(session: Session, backend: Backend) -> list[int]:
    """The tokens of each message; what is not in the ledger yet is counted and noted there."""
    counts = session.ledger.counts
    for i, message in enumerate(session.messages):
        if counts[i] is None:
            counts[i] = await backend.count_message_tokens(session, message)
    return [c or 0 for c in counts]


async def make_room(session: Session, backend: Backend, full: ContextFullError) -> list[Message]:
    """Evict the oldest whole groups that free what `full` asks for, and return them.

    Raises ContextFullError, and evicts nothing, when even all groups would not be enough.
    """
    counts = await message_counts(session, backend)
    over = full.tokens_over or max(1, backend.info.context_size // UNKNOWN_OVERFLOW_SHARE)
    freeable = sum(counts[i] for group in message_groups(session.messages) for i in group)
    if freeable * COUNT_TOLERANCE < over:
        raise ContextFullError(
            f"The last message does not fit: {full}. Shorten it, or use a model or "
            "context_size with more room.",
            full.tokens_over,
        )
    return session.evict(plan_eviction(session.messages, counts, over))


async def evict_oldest(session: Session, backend: Backend, tokens: int) -> list[Message]:
    """Evict the oldest whole groups that free `tokens`, or as many as may go."""
    counts = await message_counts(session, backend)
    return session.evict(plan_eviction(session.messages, counts, tokens))


async def result_bytes(session: Session, backend: Backend) -> int | None:
    """How long a tool's text should be, so that the tool itself can cut it and say how to go on.

    By what the conversation's own words take, with a margin for text that takes more tokens.
    """
    sample = f"{session.system_message}\n{session.messages[-1].content}"[:SAMPLE_CHARACTERS]
    tokens = await backend.count_message_tokens(session, Message.user(sample))
    bytes_per_token = SAMPLE_MARGIN * len(sample.encode()) / max(1, tokens)
    budget = backend.info.context_size // RESULT_SHARE
    return int(budget * min(4.0, max(1.0, bytes_per_token))) or None


async def fit_result(session: Session, backend: Backend, message: Message) -> Message:
    """The tool result, cut at its end if it would take more than its share of the context."""
    budget = backend.info.context_size // RESULT_SHARE
    if budget == 0 or len(message.content.encode()) <= budget:
        return message
    tokens = await backend.count_message_tokens(session, message)
    if tokens <= budget:
        return message
    keep = max(0, len(message.content) * budget // tokens - 80)
    note = f"[cut to fit the context: {keep} of {len(message.content)} characters]"
    return replace(message, content=f"{message.content[:keep]}\n{note}")
