"""How requests share the sequences, and prompts that are read at the same time a batch."""

from collections import Counter
from collections.abc import Sequence

from shepherd.backends.llamacpp.scheduling.job import Job


def next_job(waiting: Sequence[Job], active: Sequence[Job]) -> Job:
    """The waiting job whose request has the fewest sequences; of those the first."""
    counts = Counter(job.request for job in active)
    return min(waiting, key=lambda job: counts[job.request])


def surplus_job(waiting: Sequence[Job], active: Sequence[Job]) -> Job | None:
    """The job that gives its sequence to a request that has none; None if no job has to.

    It is the youngest of the request with the most sequences, and never that request's last one.
    """
    counts = Counter(job.request for job in active)
    if all(counts[job.request] for job in waiting):
        return None
    several = [job for job in reversed(active) if counts[job.request] > 1]
    return max(several, key=lambda job: counts[job.request], default=None)


def shares(usable: Sequence[int], left: Sequence[int], room: int) -> list[int]:
    """How many tokens of each prompt come next, oldest prompt first; they fill the room.

    A prompt has `left` tokens to read and can use `usable` of them now. One half of the room is
    shared equally, so no prompt starves. The rest goes to the prompts that end soonest: a short
    one does not wait for a long one, and equal ones end one after the other.
    """
    equal = (room + 1) // 2
    each = max(1, equal // max(1, len(usable)))
    given: list[int] = []
    for tokens in usable:
        given.append(min(tokens, each, equal))
        equal -= given[-1]
    spare = room - sum(given)
    for place in sorted(range(len(usable)), key=left.__getitem__):
        more = min(usable[place] - given[place], spare)
        given[place] += more
        spare -= more
    return given
