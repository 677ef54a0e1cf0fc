"""Sessions as blocks of tokens: read from public traces, or made from a seed.

A trace has the blocks of each prompt by number: equal numbers are equal tokens. The text itself is
not in it, and needs not be. kv-cache-tester (Apache-2.0) has hundreds of real ones.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import inf
from pathlib import Path
from typing import Any
from zlib import crc32

SHARED_BLOCKS = 150
"""Of the system prompt and the tools, with which all made sessions begin: 9,600 tokens."""
BLOCK = 64
"""The tokens of a block in a trace."""
FIRST_TOKEN, TOKENS = 300, 600
"""The range of the tokens that stand for a block."""


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt's blocks and the tokens of its answer, `wait` seconds after the answer before.

    It waits for a `person`, or for a tool.
    """

    wait: float
    blocks: tuple[int, ...]
    answer: int
    person: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """The requests of one agent, in order."""

    name: str
    requests: tuple[Request, ...]

    @property
    def longest(self) -> int:
        """The blocks of its longest prompt."""
        return max(len(request.blocks) for request in self.requests)

    def shortened(self, blocks: int, requests: int, seconds: float) -> "Session":
        """The session with at most so many requests and blocks, and waits of at most `seconds`.

        All waits keep their proportions.
        """
        kept = [r for r in self.requests if 0 < len(r.blocks) <= blocks][:requests]
        scale = seconds / max([seconds, *(r.wait for r in kept)])
        return Session(self.name, tuple(replace(r, wait=r.wait * scale) for r in kept))


def read(folder: Path) -> list[Session]:
    """The sessions of a folder of traces; those of sub-agents run where their parent waits."""
    sessions: list[Session] = []
    for path in sorted(folder.glob("*.json")):
        trace: dict[str, Any] = json.loads(path.read_bytes())
        requests = tuple(_requests(trace.get("requests", ())))
        if trace.get("hash_id_scope") != "global":  # the numbers are those of this trace alone
            first = crc32(path.name.encode()) << 64
            requests = tuple(
                replace(r, blocks=tuple(first + block for block in r.blocks)) for r in requests
            )
        if requests:
            sessions.append(Session(path.stem, requests))
    return sessions


def _requests(entries: Sequence[dict[str, Any]]) -> Iterator[Request]:
    ended, stop = 0.0, ""
    for entry in entries:
        if "requests" in entry:  # a sub-agent
            yield from _requests(entry["requests"])
            continue
        time = float(entry.get("t", 0.0))
        wait = float(entry.get("think_time", max(0.0, time - ended)))
        ended = time + float(entry.get("api_time", 0.0))
        blocks, answer = tuple(entry.get("hash_ids", ())), max(1, int(entry.get("out", 1)))
        yield Request(wait, blocks, answer, stop == "end_turn")
        stop = entry.get("stop", "")


def made(count: int, seed: int = 0) -> list[Session]:
    """Sessions like real ones: they begin alike, grow by answers and results, and wait for tools.

    Medians are those of the public traces: 20,000 tokens at the beginning, 115,000 at the end, 96 %
    of each prompt known. One in eight calls is a person's turn, with a long wait. One in forty
    answers makes the conversation compact.
    """
    return [_made(f"made {number}", random.Random(f"{seed} {number}")) for number in range(count)]


def _made(name: str, chance: random.Random) -> Session:
    new = iter(range(chance.randrange(1 << 48), 1 << 62))
    shared = tuple(range(SHARED_BLOCKS))
    blocks = [*shared, *(next(new) for _ in range(int(chance.lognormvariate(5.0, 0.5))))]
    requests: list[Request] = []
    for _ in range(chance.randrange(30, 90)):
        is_person = chance.random() < 1 / 8
        wait = chance.lognormvariate(3.5, 1.0) if is_person else chance.lognormvariate(1.0, 1.2)
        answer = max(8, int(chance.lognormvariate(5.0, 0.9)))
        requests.append(Request(wait, tuple(blocks), answer, is_person))
        if chance.random() < 1 / 40:
            blocks = [*shared, *(next(new) for _ in range(60))]
        else:
            size = answer / BLOCK + chance.lognormvariate(2.3, 1.1)
            blocks.extend(next(new) for _ in range(max(1, int(size))))
    return Session(name, tuple(requests))


def tokens(blocks: Sequence[int], size: int) -> list[int]:
    """The tokens of a prompt, `size` for each block."""
    result: list[int] = []
    for block in blocks:
        chance = random.Random(block)
        result.extend(FIRST_TOKEN + chance.randrange(TOKENS) for _ in range(size))
    return result


def optimum(sessions: Sequence[Session]) -> int:
    """The blocks that must be computed if nothing is ever forgotten."""
    known = {prefix for s in sessions for r in s.requests for prefix in prefixes(r.blocks)}
    return len(known)


def in_turn(sessions: Sequence[Session]) -> list[tuple[int, int]]:
    """The session and the number of each request, as if computing took no time."""
    queue = [(s.requests[0].wait, number, 0) for number, s in enumerate(sessions)]
    heapify(queue)
    order: list[tuple[int, int]] = []
    while queue:
        time, number, place = heappop(queue)
        order.append((number, place))
        requests = sessions[number].requests
        if place + 1 < len(requests):
            heappush(queue, (time + requests[place + 1].wait, number, place + 1))
    return order


def least(
    sessions: Sequence[Session],
    order: Sequence[tuple[int, int]],
    capacity: int,
    *,
    foresees: bool = True,
) -> int:
    """The blocks that a cache of so many computes, if requests come in this order.

    It knows the future, and forgets what is needed last (Belady). If it does not, it forgets what
    was needed longest ago. The end of a prompt leaves before its beginning.
    """
    paths = [tuple(prefixes(sessions[number].requests[place].blocks)) for number, place in order]
    following: list[dict[int, float]] = []
    seen: dict[int, float] = {}
    for turn in reversed(range(len(paths))):
        following.append({prefix: seen.get(prefix, inf) for prefix in paths[turn]})
        seen.update(dict.fromkeys(paths[turn], turn))
    cache: dict[int, tuple[float, int]] = {}
    computed = 0
    for turn, path in enumerate(paths):
        needed = following.pop()
        known = next((i for i, prefix in enumerate(path) if prefix not in cache), len(path))
        computed += len(path) - known
        for depth, prefix in enumerate(path):
            cache[prefix] = (needed[prefix] if foresees else -turn, depth)
        over = len(cache) - capacity
        if over > 0:
            for prefix in sorted(cache, key=cache.__getitem__)[-over:]:
                del cache[prefix]
    return computed


def prefixes(blocks: Sequence[int]) -> Iterator[int]:
    """A number for each prefix: equal for equal ones."""
    state = 0
    for block in blocks:
        state = hash((state, block))
        yield state
