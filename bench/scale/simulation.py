"""A discrete-event simulation of replicas with slots and caches, with Shepherd's own router."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bench.scale.host import Host
from bench.scale.routers import Memory, Request, make_router
from bench.scale.workload import Load
from shepherd.affinity import Prefix

FRONT = -1
"""The programs in front of the replicas, as a place of work."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica: requests at a time, tokens per second, the tokens of its cache.

    With `cores`, all replicas run on one machine with so many cores, and each of them on one core:
    what runs at the same time shares it. Otherwise each request has its speed for itself. The
    programs in front of the replicas need `before` seconds of a core for a request until it
    reaches its replica, and `beside` for its answer. The replica's own core needs `reading` seconds
    before the request gets a slot: it checks the request, and makes the prompt's tokens.
    """

    slots: int = 4
    prefill: float = 5_000.0
    decode: float = 60.0
    cache: int = 400_000
    cores: float = 0.0
    before: float = 0.0
    beside: float = 0.0
    reading: float = 0.0
    memory: Memory = field(default_factory=Memory)


@dataclass(slots=True)
class Figures:
    """What came out: tokens, the seconds to each first token, and the hit rates of batches."""

    prompt: int = 0
    cached: int = 0
    answer: int = 0
    first: Sequence[float] = field(default_factory=list[float])
    batches: Sequence[float] = ()

    @property
    def hit_rate(self) -> float:
        """The share of prompt tokens from caches."""
        return self.cached / max(1, self.prompt)

    @property
    def computed(self) -> float:
        """Tokens computed per token of prompts and answers served."""
        total = self.prompt + self.answer
        return (total - self.cached) / max(1, total)

    def quantiles(self, *shares: float) -> list[float]:
        """The seconds below which these shares of first tokens came."""
        ordered = np.sort(np.asarray(self.first))  # a list of millions takes half a minute
        last = len(ordered) - 1
        return [float(ordered[min(last, int(share * len(ordered)))]) for share in shares]


@dataclass(slots=True)
class Run:
    """A conversation under way: its next step, and the chain of its prompt."""

    number: int
    step: int = 0
    hashes: list[int] = field(default_factory=list[int])
    requested: float = 0.0
    replica: int = 0


class Replica:
    """Slots, a queue, and a cache of whole conversations and openings, least recently used out."""

    def __init__(self, engine: Engine) -> None:
        self.free = engine.slots
        self.queue: deque[Run] = deque()
        self._cache: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._room = engine.cache

    def size(self, kind: str, number: int) -> int:
        """The tokens of an entry, 0 without it."""
        return self._cache.get((kind, number), 0)

    def keep(self, kind: str, number: int, size: int) -> None:
        """Set the size of an entry, which becomes the newest."""
        self._room += self._cache.pop((kind, number), 0) - size
        self._cache[kind, number] = size

    def evict(self) -> None:
        """Remove the oldest entries until the rest fits."""
        while self._room < 0 and len(self._cache) > 1:
            self._room += self._cache.popitem(last=False)[1]


class Simulation:
    """Plays a load; `figures` has the results."""

    def __init__(self, load: Load, engine: Engine, name: str, replicas: int) -> None:
        self.figures = Figures()
        self._first: list[float] = [0.0] * len(load.chance)
        self._load = load
        self._engine = engine
        self._router = make_router(name, replicas, load.key, engine.memory)
        self._replicas = [Replica(engine) for _ in range(replicas)]
        self._loads = dict.fromkeys(range(replicas), 0.0)
        self._host = Host(engine.cores)

    def play(self) -> Figures:
        """Play all conversations."""
        for number, moment in enumerate(self._load.begin):
            self._host.wait(moment, partial(self._ask, Run(number)))
        self._host.run()
        self.figures.first = self._first
        return self.figures

    def _number(self, run: Run) -> int:
        """The number of the step among those of all sessions."""
        return self._load.start[self._load.session[run.number]] + run.step

    def _request(self, run: Run) -> int:
        """The number of the request among all."""
        return self._load.request[run.number] + run.step

    def _prefix(self, run: Run) -> Prefix:
        load, agent = self._load, self._load.agent[run.number]
        opening = load.opening_blocks[agent]
        if not run.hashes:
            run.hashes += [hash(("opening", agent, n)) for n in range(opening)]
        while len(run.hashes) < opening + load.blocks[self._number(run)]:
            run.hashes.append(hash((run.number, len(run.hashes))))
        ends = range(1, len(run.hashes) + 1)
        return Prefix(tuple(run.hashes), tuple(ends), opening, load.key[run.number])

    def _ask(self, run: Run) -> None:
        chance = self._load.chance[self._request(run)]
        request = Request(run.number, self._prefix(run), chance)
        run.replica = self._router.choose(request, self._loads)
        self._loads[run.replica] += 1
        run.requested = self._host.now
        if self._engine.before:
            self._host.work(FRONT, self._engine.before, lambda: self._read(run))
        else:
            self._read(run)

    def _read(self, run: Run) -> None:
        if self._engine.reading:
            self._host.work(run.replica, self._engine.reading, lambda: self._arrive(run))
        else:
            self._arrive(run)

    def _arrive(self, run: Run) -> None:
        replica = self._replicas[run.replica]
        if replica.free:
            replica.free -= 1
            self._begin(run)
        else:
            replica.queue.append(run)

    def _begin(self, run: Run) -> None:
        load, figures, number = self._load, self.figures, self._number(run)
        prompt = load.opening[load.agent[run.number]] + load.prompt[number]
        cached = self._keep(run, prompt)
        figures.prompt += prompt
        figures.cached += cached
        figures.answer += load.answer[number]
        work = (prompt - cached) / self._engine.prefill
        self._host.work(run.replica, work, lambda: self._answer(run))

    def _keep(self, run: Run, prompt: int) -> int:
        """Put the prompt and its answer into the cache; the tokens that need not be computed."""
        load, number, replica = self._load, run.number, self._replicas[run.replica]
        agent, step = load.agent[number], self._number(run)
        own = replica.size("conversation", number)
        opening = load.opening[agent] if own else replica.size("opening", agent)
        replica.keep("opening", agent, load.opening[agent])
        replica.keep("conversation", number, load.prompt[step] + load.answer[step])
        replica.evict()
        return min(own + opening, prompt - 1)

    def _answer(self, run: Run) -> None:
        self._first[self._request(run)] = self._host.now - run.requested
        work = self._load.answer[self._number(run)] / self._engine.decode
        self._host.work(run.replica, work, lambda: self._end(run))
        if self._engine.beside:
            self._host.work(FRONT, self._engine.beside, lambda: None)

    def _end(self, run: Run) -> None:
        replica = self._replicas[run.replica]
        self._loads[run.replica] -= 1
        if replica.queue:
            self._begin(replica.queue.popleft())
        else:
            replica.free += 1
        run.step += 1
        session = self._load.session[run.number]
        if self._number(run) < self._load.start[session + 1]:
            self._host.wait(self._load.pause[self._request(run)], lambda: self._ask(run))
