"""What each replica holds of each conversation and opening, by recency, in flat arrays.

numba compiles these functions, if it is installed: they use numbers, arrays and tuples only.
"""

from collections.abc import MutableSequence
from typing import Any, NamedTuple

import numpy as np

from bench.scale.workload import Load

NONE = -1
Numbers = MutableSequence[int]


class Holdings(NamedTuple):
    """Entries of conversations and openings: a list for each replica, the oldest entry first.

    The entry of an opening has the number `agent * replicas + replica`. The others are linked by
    conversation: `first` of it, then `same`. `free` begins the list of unused entries. An entry
    with the size 0 is not in use.
    """

    owner: Numbers
    replica: Numbers
    size: Numbers
    newer: Numbers
    older: Numbers
    same: Numbers
    first: Numbers
    newest: Numbers
    oldest: Numbers
    total: Numbers
    free: Numbers


def holdings(load: Load, replicas: int, entries: int) -> Holdings:
    """Empty ones, with room for so many entries of conversations."""
    fixed = len(load.opening) * replicas
    size = fixed + entries
    same: Any = np.arange(1, size + 1)
    same[:fixed] = same[-1] = NONE
    replica: Any = np.zeros(size, dtype=np.int64)
    replica[:fixed] = np.arange(fixed) % replicas
    return Holdings(
        owner=filled(size, NONE),
        replica=replica,
        size=filled(size),
        newer=filled(size, NONE),
        older=filled(size, NONE),
        same=same,
        first=filled(len(load.agent), NONE),
        newest=filled(replicas, NONE),
        oldest=filled(replicas, NONE),
        total=filled(replicas),
        free=filled(1, fixed),
    )


def filled(size: int, value: int = 0) -> Any:
    """An array with the same number everywhere."""
    return np.full(size, value, dtype=np.int64)


def entry_of(held: Holdings, conversation: int, replica: int) -> int:
    """The entry of a conversation on a replica, NONE if there is none."""
    entry = held.first[conversation]
    while entry != NONE and held.replica[entry] != replica:
        entry = held.same[entry]
    return entry


def hold(held: Holdings, conversation: int, replica: int, size: int) -> None:
    """Set the size of a conversation's entry, which becomes the newest."""
    entry = entry_of(held, conversation, replica)
    if entry == NONE:
        entry = held.free[0]
        held.free[0] = held.same[entry]
        held.owner[entry] = conversation
        held.replica[entry] = replica
        held.same[entry] = held.first[conversation]
        held.first[conversation] = entry
        held.size[entry] = 0
    refresh(held, entry, size)


def refresh(held: Holdings, entry: int, size: int) -> None:
    """Set the size of an entry, which becomes the newest."""
    replica = held.replica[entry]
    if held.size[entry]:
        unlink(held, entry)
    held.total[replica] += size - held.size[entry]
    held.size[entry] = size
    last = held.newest[replica]
    held.older[entry] = last
    held.newer[entry] = NONE
    if last == NONE:
        held.oldest[replica] = entry
    else:
        held.newer[last] = entry
    held.newest[replica] = entry


def unlink(held: Holdings, entry: int) -> None:
    """Take an entry out of its replica's list."""
    replica, newer, older = held.replica[entry], held.newer[entry], held.older[entry]
    if newer == NONE:
        held.newest[replica] = older
    else:
        held.older[newer] = older
    if older == NONE:
        held.oldest[replica] = newer
    else:
        held.newer[older] = newer


def drop(held: Holdings, entry: int) -> None:
    """Remove an entry."""
    unlink(held, entry)
    held.total[held.replica[entry]] -= held.size[entry]
    held.size[entry] = 0
    owner = held.owner[entry]
    if owner == NONE:
        return
    if held.first[owner] == entry:
        held.first[owner] = held.same[entry]
    else:
        before = held.first[owner]
        while held.same[before] != entry:
            before = held.same[before]
        held.same[before] = held.same[entry]
    held.owner[entry] = NONE
    held.same[entry] = held.free[0]
    held.free[0] = entry


def evict(held: Holdings, replica: int, limit: int) -> None:
    """Remove the oldest entries until the rest fits; the newest one stays."""
    while held.total[replica] > limit and held.oldest[replica] != held.newest[replica]:
        drop(held, held.oldest[replica])


def trim(held: Holdings, replica: int, limit: int) -> None:
    """Shorten the oldest entries until the rest fits."""
    while held.total[replica] > limit:
        entry = held.oldest[replica]
        excess = held.total[replica] - limit
        if held.size[entry] <= excess:
            drop(held, entry)
        else:
            held.size[entry] -= excess
            held.total[replica] -= excess
