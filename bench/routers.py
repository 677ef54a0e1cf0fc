"""How routers of conversations meet the caches of their replicas, in a simulation.

    python -m bench.routers [--replicas 8] [--seconds 900] [--report 1.0] [--seed 0]

Conversations of agents begin at random, with the steps of `bench.replay` behind the openings of
eight agents. A load of 0.8 means that the replicas would be busy for 80 % of the time if no token
were read twice. Tokens that a cache has lost come on top: with a small cache a load of 0.8 can be
more than the replicas can do. Their queues then grow for as long as requests come, so that the
simulated time has an end. What began before half of it only fills the caches.

Each router sees its own requests at once, and those of the others when the replicas report.
"""

import argparse
import heapq
import math
import random
from bisect import bisect
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import product
from typing import Protocol

from bench.replay.sessions import sessions
from shepherd.affinity import Balance, Prefix
from shepherd.cli.deploy.arguments import BUSY_SLACK
from shepherd.cli.deploy.chooser import ReplicaChooser

OPENINGS = (797, 1_357, 2_634, 4_996, 9_800, 12_100, 20_153, 22_618)
"""Tokens of the first prompts of continue, pi, cline, opencode, Codex, Gemini, Qwen and Claude."""

SLOTS, PREFILL, DECODE = 4, 5_000.0, 60.0
"""Of a replica: requests at a time, and for each of them tokens a second."""

TOOL_SECONDS, USER_SECONDS, SPREAD = 2.0, 40.0, 1.0
"""The medians of the pauses before results of tools and messages of users."""

BLOCK_TOKENS, CHARACTERS_PER_TOKEN, PLACES = 256, 4, 64
CACHES, LOADS, ROUTERS = (400_000, 150_000), (0.5, 0.8), (1, 4)
BALANCE = Balance(slack=BUSY_SLACK)


@dataclass(frozen=True, slots=True)
class Step:
    """One request of a conversation: its new tokens, those of its answer, the pause before."""

    new: int
    answer: int
    pause: float


@dataclass(slots=True)
class Conversation:
    """A conversation under way; `chain` has the hashes of its prompt."""

    number: int
    agent: int
    steps: Sequence[Step]
    chain: list[int]
    prompt: int = 0
    step: int = 0
    asked: float = 0.0
    replica: str = ""
    router: int = 0


class Router(Protocol):
    """Chooses the replica of a request, and hears what becomes of it."""

    def choose(self, talk: Conversation, reported: Mapping[str, int]) -> str: ...

    def end(self, replica: str) -> None: ...


class Ours:
    """The router of `shepherd deploy ray`."""

    def __init__(self, clock: Callable[[], float], *, beside_others: bool) -> None:
        self._chooser = ReplicaChooser(BALANCE, clock, beside_others=beside_others)

    def choose(self, talk: Conversation, reported: Mapping[str, int]) -> str:
        hashes, opening = tuple(talk.chain), _blocks(OPENINGS[talk.agent])
        prefix = Prefix(hashes, tuple(range(1, len(hashes) + 1)), opening, hashes[opening])
        best = self._chooser.rank("", prefix, reported)[0]
        self._chooser.note_sent("", prefix, best)
        return best

    def end(self, replica: str) -> None:
        self._chooser.note_end(replica)


class Ring:
    """A ring of hashes; with a bound, replicas over it are passed by, as ours does."""

    def __init__(self, replicas: Sequence[str], bound: Balance | None) -> None:
        places = ((_hash(f"{name} {n}"), name) for name in replicas for n in range(PLACES))
        self._ring = sorted(places)
        self._bound = bound
        self._running = Counter[str]()

    def choose(self, talk: Conversation, reported: Mapping[str, int]) -> str:
        loads = {name: max(self._running[name], length) for name, length in reported.items()}
        limit = self._bound.limit(min(loads.values())) if self._bound else math.inf
        place = bisect(self._ring, (_hash(f"conversation {talk.number}"), ""))
        around = (name for _, name in (*self._ring[place:], *self._ring[:place]))
        chosen = next(name for name in around if loads[name] <= limit)
        self._running[chosen] += 1
        return chosen

    def end(self, replica: str) -> None:
        self._running[replica] -= 1


class LeastBusy(Ring):
    """The replica with the fewest requests, the first of the ring among equals."""

    def __init__(self, replicas: Sequence[str]) -> None:
        super().__init__(replicas, Balance(1.0, 0.0))


@dataclass(slots=True)
class Replica:
    """Slots, a queue, and a cache of openings and conversations, the least recently used out."""

    room: int
    free: int = SLOTS
    queue: deque[Conversation] = field(default_factory=deque[Conversation])
    cache: OrderedDict[tuple[str, int], int] = field(
        default_factory=OrderedDict[tuple[str, int], int]
    )

    @property
    def requests(self) -> int:
        return SLOTS - self.free + len(self.queue)

    def read(self, talk: Conversation) -> int:
        """Put a prompt and its answer into the cache; the tokens that were there already."""
        step, opening = talk.steps[talk.step], OPENINGS[talk.agent]
        own = self.cache.get(("conversation", talk.number), 0)
        shared = opening if own else self.cache.get(("opening", talk.agent), 0)
        whole = talk.prompt + step.new + step.answer
        for entry, size in (
            (("opening", talk.agent), opening),
            (("conversation", talk.number), whole),
        ):
            self.room += self.cache.pop(entry, 0) - size
            self.cache[entry] = size
        while self.room < 0 and len(self.cache) > 1:
            self.room += self.cache.popitem(last=False)[1]
        return min(own + shared, opening + talk.prompt + step.new - 1)


class Simulation:
    """Conversations over replicas until a time; `firsts` has the seconds to each first token."""

    def __init__(self, kind: str, count: int, replicas: int, cache: int, report: float) -> None:
        self.now, self.firsts, self.read, self.cached = 0.0, list[float](), 0, 0
        self.replicas = {f"r{number}": Replica(cache) for number in range(replicas)}
        names = list(self.replicas)
        make: dict[str, Callable[[], Router]] = {
            "least busy": lambda: LeastBusy(names),
            "consistent hash": lambda: Ring(names, None),
            "hash ring, our load bound": lambda: Ring(names, BALANCE),
            "ours": lambda: Ours(lambda: self.now, beside_others=count > 1),
            "ours without homes": lambda: Ours(lambda: self.now, beside_others=False),
        }
        self._routers = [make[kind]() for _ in range(count)]
        self._report = 0.0 if count == 1 else report
        self._reported = dict.fromkeys(names, 0)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._chance = random.Random(0)

    def play(self, talks: Iterator[tuple[float, Conversation]], seconds: float) -> None:
        """Play the conversations; what was asked in the second half counts."""
        self._begin(talks)
        if self._report:
            self._tell()
        while self._events:
            self.now, _, action = heapq.heappop(self._events)
            if self.now > seconds:
                break
            self._counts = self.now > seconds / 2
            action()
        waiting = (talk for replica in self.replicas.values() for talk in replica.queue)
        self.firsts += [seconds - talk.asked for talk in waiting if talk.asked > seconds / 2]

    def quantile(self, share: float) -> float:
        return sorted(self.firsts)[int(share * len(self.firsts))]

    def _wait(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, self._chance.getrandbits(62), action))

    def _begin(self, talks: Iterator[tuple[float, Conversation]]) -> None:
        """Wait for the next conversation, and for the one after it."""
        pause, talk = next(talks)
        self._wait(pause, lambda: (self._begin(talks), self._ask(talk))[0])

    def _tell(self) -> None:
        """The replicas report their queues."""
        self._reported = {name: replica.requests for name, replica in self.replicas.items()}
        self._wait(self._report, self._tell)

    def _ask(self, talk: Conversation) -> None:
        step = talk.steps[talk.step]
        while len(talk.chain) < _blocks(OPENINGS[talk.agent]) + _blocks(talk.prompt + step.new):
            talk.chain.append(_hash(f"{talk.number} {len(talk.chain)}"))
        talk.router, talk.asked = self._chance.randrange(len(self._routers)), self.now
        if not self._report:
            self._reported = {name: replica.requests for name, replica in self.replicas.items()}
        talk.replica = self._routers[talk.router].choose(talk, self._reported)
        replica = self.replicas[talk.replica]
        if replica.free:
            replica.free -= 1
            self._serve(replica, talk)
        else:
            replica.queue.append(talk)

    def _serve(self, replica: Replica, talk: Conversation) -> None:
        step = talk.steps[talk.step]
        prompt, cached = OPENINGS[talk.agent] + talk.prompt + step.new, replica.read(talk)
        first = (prompt - cached) / PREFILL
        if self._counts:
            self.read, self.cached = self.read + prompt, self.cached + cached
            self.firsts.append(self.now + first - talk.asked)
        self._wait(first + step.answer / DECODE, lambda: self._end(replica, talk))

    def _end(self, replica: Replica, talk: Conversation) -> None:
        self._routers[talk.router].end(talk.replica)
        if replica.queue:
            self._serve(replica, replica.queue.popleft())
        else:
            replica.free += 1
        step = talk.steps[talk.step]
        talk.prompt, talk.step = talk.prompt + step.new + step.answer, talk.step + 1
        if talk.step < len(talk.steps):
            self._wait(talk.steps[talk.step].pause, lambda: self._ask(talk))


def conversations(rate: float, seed: int) -> Iterator[tuple[float, Conversation]]:
    """Conversations without an end, each with the seconds since the one before."""
    chance, recorded, number = random.Random(seed), _recorded(), 0
    while True:
        agent = chance.randrange(len(OPENINGS))
        steps = [
            Step(new, answer, (median * math.exp(chance.gauss(0, SPREAD))))
            for new, answer, median in chance.choice(recorded)
        ]
        chain = [_hash(f"agent {agent} {n}") for n in range(_blocks(OPENINGS[agent]))]
        yield chance.expovariate(rate), Conversation(number, agent, steps, chain)
        number += 1


def rate_of(load: float, replicas: int) -> float:
    """The conversations a second that keep replicas busy for this share of the time."""
    recorded = _recorded()
    busy = sum(new / PREFILL + answer / DECODE for steps in recorded for new, answer, _ in steps)
    return load * replicas * SLOTS * len(recorded) / busy


def _recorded() -> list[list[tuple[int, int, float]]]:
    """The new tokens, those of the answer, and the median of the pause before, by session."""
    return [
        [
            (
                _tokens(turn.user),
                _tokens(turn.assistant),
                TOOL_SECONDS if turn.user.startswith("<tool") else USER_SECONDS,
            )
            for turn in session.turns
        ]
        for session in sessions()
    ]


def _tokens(text: str) -> int:
    return max(1, math.ceil(len(text) / CHARACTERS_PER_TOKEN))


def _blocks(tokens: int) -> int:
    return max(1, -(-tokens // BLOCK_TOKENS))


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.routers")
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--report", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print("| cache | load | routers | router | hits | p50 | p99 | waiting at the end |")
    print("|---|---|---|---|---|---|---|---|")
    for cache, load, count in product(CACHES, LOADS, ROUTERS):
        # one that sees no load is the same beside others, and one router needs no homes
        other = "consistent hash" if count == 1 else "ours without homes"
        for kind in ("least busy", other, "hash ring, our load bound", "ours"):
            print(_row(args, kind, count, cache, load), flush=True)


def _row(args: argparse.Namespace, kind: str, count: int, cache: int, load: float) -> str:
    """A row of the table: one simulation."""
    played = Simulation(kind, count, args.replicas, cache, args.report)
    played.play(conversations(rate_of(load, args.replicas), args.seed), args.seconds)
    waiting = sum(len(replica.queue) for replica in played.replicas.values())
    p50, p99 = played.quantile(0.5), played.quantile(0.99)
    return (
        f"| {cache // 1000}k | {load} | {count} | {kind} | {played.cached / played.read:.1%} "
        f"| {1000 * p50:,.0f} ms | {p99:.2f} s | {waiting} |"
    )


if __name__ == "__main__":
    main()
