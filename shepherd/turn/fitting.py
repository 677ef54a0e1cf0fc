"""Makes a session fit into its backend's context: cuts results, and evicts the oldest messages."""

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from shepherd.backends.base import Backend
from shepherd.errors import ContextFullError
from shepherd.messages import Message, Role
from shepherd.session import Session
from shepherd.tools.text import pluralize

ANSWER_SHARE = 8
"""An eighth of the context stays free for the answer, as long as something can be evicted."""

SLACK_SHARE = 4
"""An eviction frees another quarter of the context, so that the prompts of the next turns share a
prefix, which prompt caches need. Computing the remaining messages again then costs about 2.5 times
the new tokens of these turns. With an eighth it would cost 6 times, for any context size."""

UNKNOWN_OVERFLOW_SHARE = 8
"""If the backend gives no number, an eighth of the conversation is evicted at a time, then more."""

RESULT_SHARE = 4
"""One tool result may take a quarter of the context."""

SAMPLE_CHARACTERS, SAMPLE_MARGIN = 2000, 0.6
"""The length of a text sample, and the share of its bytes per token that results may have."""

COUNT_TOLERANCE, ESTIMATE_TOLERANCE = 1.25, 3.0
"""The factors by which counts and estimates may be too low before a plan is hopeless."""


async def message_counts(session: Session, backend: Backend) -> list[int]:
    """The tokens of each message; missing counts are added to the ledger.

    Estimates are repeated, because they improve.
    """
    counts = session.ledger.counts
    are_estimates = backend.info.count_error is not None
    for i, message in enumerate(session.messages):
        if counts[i] is None or are_estimates:
            counts[i] = await backend.count_message_tokens(session, message)
    return [count or 0 for count in counts]


async def make_room(
    session: Session, backend: Backend, full: ContextFullError, failures: int = 0
) -> list[Message]:
    """Evict the oldest whole groups that free what `full` asks for, and return them.

    It also frees the answer's share and some slack, so that the next eviction comes late. After
    each failed attempt (`failures`) it evicts twice as much, and at least one group.
    Raises ContextFullError, and evicts nothing, if even all groups would not be enough.
    """
    counts = await message_counts(session, backend)
    scale = await _scale(session, backend, full)
    # the tokens that are too many, if the backend says how many
    stated_over = full.tokens_over if full.tokens_over and full.tokens_over > 0 else None
    if _is_hopeless(session, counts, backend, scale, stated_over):
        raise ContextFullError(
            f"The last message does not fit: {full}. Shorten it, or use a model or "
            "context_size with more room.",
            full.tokens_over,
            full.prompt_tokens,
        )
    # shares are of the context; where its size is not known (0), of the conversation
    window = min(sum(counts), int(backend.info.context_size / scale) or sum(counts))
    if stated_over is None:
        to_free = max(1, sum(counts) // UNKNOWN_OVERFLOW_SHARE) << failures
    else:
        to_free = (math.ceil(stated_over / scale) << failures) + window // ANSWER_SHARE
    slack = window // SLACK_SHARE
    return session.evict(plan_eviction(session.messages, counts, to_free, slack))


def has_room(backend: Backend, prompt_tokens: int) -> bool:
    """Whether the prompt leaves the answer's share free, as far as is known."""
    return _missing(backend, prompt_tokens) == 0


async def room_for_answer(session: Session, backend: Backend, prompt_tokens: int) -> list[Message]:
    """Evict the oldest groups so that the prompt leaves room for an answer, and return them.

    Evicts nothing if the prompt would not fit without them either; the backend then decides
    whether it fits.
    """
    counts = await message_counts(session, backend)
    if prompt_tokens - _freeable(session, counts) > backend.info.context_size:
        return []
    missing = _missing(backend, prompt_tokens)
    slack = backend.info.context_size // SLACK_SHARE
    return session.evict(plan_eviction(session.messages, counts, missing, slack))


def _missing(backend: Backend, prompt_tokens: int) -> int:
    """The tokens to free for the answer's share; 0 if the context's size is unknown."""
    size = backend.info.context_size
    return max(0, prompt_tokens + size // ANSWER_SHARE - size) if size else 0


async def _scale(session: Session, backend: Backend, full: ContextFullError) -> float:
    """The backend's tokens per estimated token; 1.0 without estimates or the backend's count."""
    if backend.info.count_error is None or not full.prompt_tokens:
        return 1.0
    return full.prompt_tokens / max(1, await backend.count_session_tokens(session))


def _is_hopeless(
    session: Session, counts: list[int], backend: Backend, scale: float, stated_over: int | None
) -> bool:
    """Whether even the eviction of all groups would free less than the stated tokens."""
    if not message_groups(session.messages):
        return True  # nothing may leave
    if stated_over is None:
        return False  # the backend did not tell how much is missing, so it is tried
    tolerance = COUNT_TOLERANCE if backend.info.count_error is None else ESTIMATE_TOLERANCE
    return _freeable(session, counts) * scale * tolerance < stated_over


def _freeable(session: Session, counts: list[int]) -> int:
    """The tokens of all messages that may be evicted."""
    return sum(counts[i] for group in message_groups(session.messages) for i in group)


async def result_bytes(session: Session, backend: Backend) -> int | None:
    """The maximum bytes of a tool's result, so that the tool can cut it and say how to continue.

    Derived from the density of the conversation's text, with a margin for denser text. None if the
    context's size is unknown.
    """
    if backend.info.context_size == 0:
        return None
    sample = f"{session.system_message}\n{session.messages[-1].content}"[:SAMPLE_CHARACTERS]
    tokens = await backend.count_message_tokens(session, Message.user(sample))
    bytes_per_token = SAMPLE_MARGIN * len(sample.encode()) / max(1, tokens)
    budget = backend.info.context_size // RESULT_SHARE
    # a sample may be odd, such as one long word; a token of usual text has one to four bytes
    return int(budget * min(4.0, max(1.0, bytes_per_token))) or None


async def fit_result(session: Session, backend: Backend, message: Message) -> Message:
    """The tool result, cut at its end if it exceeds its share of the context."""
    budget = backend.info.context_size // RESULT_SHARE
    # a token has at least one byte, so a short text need not be counted
    if budget == 0 or len(message.content.encode()) <= budget:
        return message
    tokens = await backend.count_message_tokens(session, message)
    if tokens <= budget:
        return message
    keep = max(0, len(message.content) * budget // tokens - 80)  # room for the note
    note = f"[cut to fit the context: {keep} of {len(message.content)} characters]"
    return replace(message, content=f"{message.content[:keep]}\n{note}")


SEARCH_TOOL = "search_memory"
"""The tool with which the model finds evicted messages."""


def eviction_notice(session: Session, count: int) -> str:
    """The notice that the `count` oldest messages left, and how to find them."""
    text = f"Context full: {pluralize(count, 'old message')} left the conversation."
    if session.archive is None or not session.archive.keeps:
        return text
    offered = any(tool.name == SEARCH_TOOL for tool in session.tools)
    return f"{text} Kept: {SEARCH_TOOL if offered else '`shepherd memory search`'} finds them."


def message_groups(messages: Sequence[Message]) -> list[range]:
    """The groups that may be evicted, oldest first; a group is evicted as a whole or not at all.

    A group is a user message with everything up to the next one. After the last user message, it
    is one assistant message with all results of its calls. The last user message and the newest
    group after it can't be evicted.
    """
    last_user = _last_user(messages)
    head_end = len(messages) if last_user is None else last_user
    groups = _split(messages, 0, head_end, Role.USER)
    if last_user is not None:
        # without the newest group, which the model needs to go on
        groups += _split(messages, last_user + 1, len(messages), Role.ASSISTANT)[:-1]
    elif groups:  # no user has written: the newest group stays here, too
        groups.pop()
    return groups


def plan_eviction(
    messages: Sequence[Message], counts: Sequence[int], tokens_over: int, slack: int = 0
) -> list[range]:
    """The oldest whole groups that free at least `tokens_over` tokens.

    `counts` holds each message's tokens. The plan is empty if nothing can be evicted, and frees
    less than `tokens_over` if all groups are not enough. Otherwise it goes on until `slack` more
    tokens are free; for the slack, it evicts at most half of the remaining tokens.
    """
    groups = message_groups(messages)
    sizes = [sum(counts[i] for i in group) for group in groups]
    max_freed = tokens_over + max(0, sum(sizes) - tokens_over) // 2
    plan: list[range] = []
    freed = 0
    for group, size in zip(groups, sizes, strict=True):
        fits_now = freed >= tokens_over
        has_slack = freed - tokens_over >= slack
        # the slack begins no eviction, and takes not more than half of what could go
        if fits_now and (not plan or has_slack or freed + size > max_freed):
            break
        plan.append(group)
        freed += size
    return _merged(plan)


def _last_user(messages: Sequence[Message]) -> int | None:
    """The index of the last message that a user wrote, None without one."""
    return next((i for i, m in reversed([*enumerate(messages)]) if _opens(m, Role.USER)), None)


def _split(messages: Sequence[Message], start: int, end: int, opener: Role) -> list[range]:
    """Split `start..end` before every message of role `opener`."""
    cuts = [i for i in range(start + 1, end) if _opens(messages[i], opener)]
    bounds = [start, *cuts, end]
    return [range(first, after) for first, after in pairwise(bounds) if first < after]


def _opens(message: Message, opener: Role) -> bool:
    """Whether a group may begin with `message`; a hint belongs to the answer before it."""
    return message.role is opener and not message.is_hint


def _merged(groups: Sequence[range]) -> list[range]:
    """The groups, of which neighbours are one range."""
    merged: list[range] = []
    for group in groups:
        if merged and merged[-1].stop == group.start:
            merged[-1] = range(merged[-1].start, group.stop)
        else:
            merged.append(group)
    return merged
