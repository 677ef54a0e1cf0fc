"""Plans which messages to evict from a full context, without side effects."""

from collections.abc import Sequence
from itertools import pairwise

from shepherd.messages import Message, Role


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
