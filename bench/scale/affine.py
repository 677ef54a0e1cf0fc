"""The decisions of `shepherd.affinity.AffinityRouter`, by the number of a conversation.

The real router compares chains of hashes, which takes too long for millions of conversations. A
test holds that both choose alike. numba compiles these functions, if it is installed.
"""

from collections.abc import MutableSequence, Sequence
from typing import Any, NamedTuple

import numpy as np

from bench.scale.recency import (
    NONE,
    Holdings,
    filled,
    hold,
    holdings,
    refresh,
    trim,
)
from bench.scale.routers import Memory
from bench.scale.workload import Load
from shepherd.affinity import AffinityRouter, Balance
from shepherd.affinity.router import ENTRY_BYTES, mixed

NO_LEVEL = 1 << 40


class Affine(NamedTuple):
    """The state of a router; `joined` has the replicas with a record, and their number last."""

    factor: float
    slack: float
    max_blocks: int
    min_share: int
    salts: Sequence[int]
    joined: MutableSequence[int]
    held: Holdings
    excluded: MutableSequence[int]


def affine(load: Load, replicas: int, balance: Balance, memory: Memory) -> Affine:
    """A router that knows nothing yet."""
    blocks = memory.max_bytes // ENTRY_BYTES
    min_share = max(1, memory.replica_bytes // ENTRY_BYTES)
    router = AffinityRouter[int](balance)
    salts: Any = np.asarray([router.salt(n) for n in range(replicas)], dtype=np.uint64)
    held = holdings(load, replicas, max(blocks, min_share * replicas) + replicas)
    joined, excluded = filled(replicas + 1), filled(replicas)
    limits = balance.factor, balance.slack, blocks, min_share
    return Affine(*limits, salts, joined, held, excluded)


def choose(router: Affine, load: Load, conversation: int, loads: Sequence[int]) -> int:
    """The replica for the next request of a conversation; `loads` are its requests by replica."""
    limit = router.factor * least(loads) + router.slack
    chosen = _with_conversation(router, load.key[conversation], conversation, limit, loads)
    if chosen == NONE:
        chosen = _with_opening(router, load, conversation, limit, loads)
    if chosen == NONE:
        chosen = _without_beginning(router, load, conversation, loads)
    return chosen


def least(values: Sequence[int]) -> int:
    """The smallest number."""
    smallest = values[0]
    for value in values:
        smallest = min(smallest, value)
    return smallest


def _with_conversation(
    router: Affine, key: int, conversation: int, limit: float, loads: Sequence[int]
) -> int:
    """The replica that holds most of the conversation and is not too busy, NONE without one."""
    held = router.held
    level = NO_LEVEL
    while level > 0:
        lower, chosen = 0, NONE
        entry = held.first[conversation]
        while entry != NONE:
            if held.size[entry] < level:
                lower = max(lower, held.size[entry])
            entry = held.same[entry]
        entry = held.first[conversation]
        while entry != NONE and lower > 0:
            replica = held.replica[entry]
            if held.size[entry] == lower and loads[replica] <= limit:
                chosen = _better(router, key, loads, chosen, replica)
            entry = held.same[entry]
        if chosen != NONE:
            return chosen
        level = lower
    return NONE


def _with_opening(
    router: Affine, load: Load, conversation: int, limit: float, loads: Sequence[int]
) -> int:
    """The replica that holds most of the opening, and is not too busy or crowded; else NONE."""
    held, agent, replicas = router.held, load.agent[conversation], len(loads)
    crowd = _crowd(router, load, agent)
    _mark(router, conversation, 1)
    level, chosen = NO_LEVEL, NONE
    while level > 0 and chosen == NONE:
        lower = 0
        for replica in range(replicas):
            size = held.size[agent * replicas + replica]
            if size < level and not router.excluded[replica]:
                lower = max(lower, size)
        for replica in range(replicas):
            fits = loads[replica] <= limit and held.total[replica] <= crowd
            is_holder = held.size[agent * replicas + replica] == lower
            if lower > 0 and fits and is_holder and not router.excluded[replica]:
                chosen = _better(router, load.key[conversation], loads, chosen, replica)
        level = lower
    _mark(router, conversation, 0)
    return chosen


def _without_beginning(router: Affine, load: Load, conversation: int, loads: Sequence[int]) -> int:
    """One of the least busy replicas; a crowded one only if all of them are."""
    smallest = least(loads)
    crowd = _crowd(router, load, load.agent[conversation])
    fits, crowded = NONE, NONE
    for replica in range(len(loads)):
        if loads[replica] == smallest:
            if router.held.total[replica] <= crowd:
                fits = _better(router, load.key[conversation], loads, fits, replica)
            else:
                crowded = _better(router, load.key[conversation], loads, crowded, replica)
    return crowded if fits == NONE else fits


def _crowd(router: Affine, load: Load, agent: int) -> float:
    return router.factor * least(router.held.total) + load.opening_blocks[agent]


def _mark(router: Affine, conversation: int, value: int) -> None:
    """Exclude the replicas that hold the conversation, or take them back."""
    entry = router.held.first[conversation]
    while entry != NONE:
        router.excluded[router.held.replica[entry]] = value
        entry = router.held.same[entry]


def _better(router: Affine, key: int, loads: Sequence[int], one: int, other: int) -> int:
    """The less busy replica; of equals that with the higher weight for the key."""
    if one == NONE or loads[other] < loads[one]:
        return other
    if loads[other] > loads[one]:
        return one
    return other if mixed(key ^ router.salts[other]) > mixed(key ^ router.salts[one]) else one


def note(router: Affine, load: Load, conversation: int, replica: int, own: int) -> None:
    """Record that a replica reads a prompt with so many blocks after its opening."""
    held, joined = router.held, router.joined
    replicas = len(joined) - 1
    if not joined[replica]:
        joined[replica] = 1
        joined[replicas] += 1
        for other in range(replicas):
            trim(held, other, max(router.min_share, router.max_blocks // joined[replicas]))
    share = max(router.min_share, router.max_blocks // joined[replicas])
    agent = load.agent[conversation]
    opening = min(load.opening_blocks[agent], share)
    own = min(own, share - opening)
    if own > 0:
        hold(held, conversation, replica, own)
    refresh(held, agent * replicas + replica, opening)
    trim(held, replica, share)
