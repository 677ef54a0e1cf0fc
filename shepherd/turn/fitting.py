"""Making a session fit into its backend's context."""

import math
from dataclasses import replace

from shepherd.backends.base import Backend
from shepherd.errors import ContextFullError
from shepherd.eviction import message_groups, plan_eviction
from shepherd.messages import Message
from shepherd.session import Session
from shepherd.tools.text import pluralize

ANSWER_SHARE = 8
"""An eighth of the context is kept free for the answer, as long as something can be evicted."""

SLACK_SHARE = 4
"""Once something must go, another quarter of the context goes with it, so that the next turns begin
as those before, which prompt caches live from. Reading what stays again then costs some 2.5 times
what is new in these turns; with an eighth it would be 6 times, whatever the context's size."""

UNKNOWN_OVERFLOW_SHARE = 8
"""Without a number from the backend, one eighth of the conversation goes at a time, then more."""

RESULT_SHARE = 4
"""One tool result may take a quarter of the context."""

SAMPLE_CHARACTERS, SAMPLE_MARGIN = 2000, 0.6
"""How much text is measured, and how much denser than it a tool's result may be."""

COUNT_TOLERANCE, ESTIMATE_TOLERANCE = 1.25, 3.0
"""How far counts and estimates may be below the truth before a plan is called hopeless."""


async def message_counts(session: Session, backend: Backend) -> list[int]:
    """The tokens of each message; what is not in the ledger yet is counted and noted there.

    Estimates are made anew, as they get better.
    """
    counts = session.ledger.counts
    estimated = backend.count_error is not None
    for i, message in enumerate(session.messages):
        if counts[i] is None or estimated:
            counts[i] = await backend.count_message_tokens(session, message)
    return [c or 0 for c in counts]


async def make_room(
    session: Session, backend: Backend, full: ContextFullError, failures: int = 0
) -> list[Message]:
    """Evict the oldest whole groups that free what `full` asks for, and return them.

    With it go the answer's share and some slack, so that nothing must go again soon. Each time
    that this was not enough (`failures`) twice as much goes, and always a group.
    Raises ContextFullError, and evicts nothing, when even all groups would not be enough.
    """
    counts = await message_counts(session, backend)
    scale = await _scale(session, backend, full)
    stated = full.tokens_over if full.tokens_over and full.tokens_over > 0 else None
    if _is_hopeless(session, counts, backend, scale, stated):
        raise ContextFullError(
            f"The last message does not fit: {full}. Shorten it, or use a model or "
            "context_size with more room.",
            full.tokens_over,
            full.prompt_tokens,
        )
    window = min(sum(counts), int(backend.info.context_size / scale) or sum(counts))
    if stated is None:
        over = max(1, sum(counts) // UNKNOWN_OVERFLOW_SHARE) << failures
    else:
        over = (math.ceil(stated / scale) << failures) + window // ANSWER_SHARE
    slack = window // SLACK_SHARE
    return session.evict(plan_eviction(session.messages, counts, over, slack))


def has_room(backend: Backend, prompt_tokens: int) -> bool:
    """Whether the prompt leaves the answer its share, as far as is known."""
    return _missing(backend, prompt_tokens) == 0


async def room_for_answer(session: Session, backend: Backend, prompt_tokens: int) -> list[Message]:
    """Evict the oldest groups so that the prompt leaves room for an answer, and return them.

    None go where the prompt would not fit without them either: whether it really does not is for
    the backend to say.
    """
    counts = await message_counts(session, backend)
    if prompt_tokens - _freeable(session, counts) > backend.info.context_size:
        return []
    missing = _missing(backend, prompt_tokens)
    slack = backend.info.context_size // SLACK_SHARE
    return session.evict(plan_eviction(session.messages, counts, missing, slack))


def _missing(backend: Backend, prompt_tokens: int) -> int:
    """The tokens that must go for the answer's share; none where the context's size is unknown."""
    size = backend.info.context_size
    return max(0, prompt_tokens + size // ANSWER_SHARE - size) if size else 0


async def _scale(session: Session, backend: Backend, full: ContextFullError) -> float:
    """The backend's tokens for each of ours, where ours are estimates and it told its own."""
    if backend.count_error is None or not full.prompt_tokens:
        return 1.0
    return full.prompt_tokens / max(1, await backend.count_session_tokens(session))


def _is_hopeless(
    session: Session, counts: list[int], backend: Backend, scale: float, stated: int | None
) -> bool:
    if not message_groups(session.messages):
        return True
    if stated is None:
        return False
    tolerance = COUNT_TOLERANCE if backend.count_error is None else ESTIMATE_TOLERANCE
    return _freeable(session, counts) * scale * tolerance < stated


def _freeable(session: Session, counts: list[int]) -> int:
    return sum(counts[i] for group in message_groups(session.messages) for i in group)


async def result_bytes(session: Session, backend: Backend) -> int | None:
    """How long a tool's text should be, so that the tool itself can cut it and say how to go on.

    By what the conversation's own words take, with a margin for text that takes more tokens. None
    where the context's size is unknown.
    """
    if backend.info.context_size == 0:
        return None
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


SEARCH_TOOL = "search_memory"
"""With this tool the model finds again what left."""


def eviction_notice(session: Session, count: int) -> str:
    """The notice about the `count` oldest messages: that they left, and how they are found."""
    text = f"Context full: {pluralize(count, 'old message')} left the conversation."
    if session.archive is None or not session.archive.keeps:
        return text
    offered = any(tool.name == SEARCH_TOOL for tool in session.tools)
    return f"{text} Kept: {SEARCH_TOOL if offered else '`shepherd memory search`'} finds them."
