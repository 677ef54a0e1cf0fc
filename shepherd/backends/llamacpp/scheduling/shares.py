"""How prompts that are read at the same time share a batch."""

from collections.abc import Sequence


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
