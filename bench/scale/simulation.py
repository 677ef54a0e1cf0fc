"""A discrete-event simulation of replicas with slots and caches."""

import heapq
import random
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.scale.routers import Router
from bench.scale.workload import Conversation, Step, Workload
from shepherd.affinity import Prefix

BLOCK_TOKENS = 256
"""The tokens of one hash: 1,024 characters."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica: requests at a time, tokens per second, the tokens of its cache."""

    slots: int = 4
    prefill: float = 5_000.0
    decode: float = 60.0
    cache: int = 400_000
    overhead: float = 0.0


@dataclass(slots=True)
class Figures:
    """What came out: tokens, and the seconds to each first token."""

    prompt: int = 0
    cached: int = 0
    answer: int = 0
    first: list[float] = field(default_factory=list[float])

    @property
    def hit_rate(self) -> float:
        """The share of prompt tokens from caches."""
        return self.cached / max(1, self.prompt)

    @property
    def computed(self) -> float:
        """Tokens computed per token of prompts and answers served."""
        total = self.prompt + self.answer
        return (total - self.cached) / max(1, total)

    def quantile(self, share: float) -> float:
        """The seconds below which this share of first tokens came."""
        ordered = sorted(self.first)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(slots=True)
class Run:
    """A conversation under way: its next step, its tokens, and the chain of its prompt."""

    conversation: Conversation
    step: int = 0
    tokens: int = 0
    hashes: list[int] = field(default_factory=list[int])
    asked: float = 0.0

    def prefix(self) -> Prefix:
        """The prompt of the next step; a step begins a new block."""
        plan = self.conversation
        if not self.hashes:
            blocks = _blocks(plan.opening)
            self.hashes += [hash((plan.agent, n)) for n in range(blocks)]
            self.tokens = plan.opening
        new = plan.steps[self.step].new
        self.tokens += new
        for _ in range(_blocks(new)):
            self.hashes.append(hash((plan.number, len(self.hashes), self.hashes[-1])))
        ends = range(1, len(self.hashes) + 1)
        key = hash((plan.number, plan.agent))
        return Prefix(tuple(self.hashes), tuple(ends), _blocks(plan.opening), key)


def _blocks(tokens: int) -> int:
    return max(1, -(-tokens // BLOCK_TOKENS))


class Replica:
    """Slots, a queue, and a cache of whole conversations and openings, least recently used out."""

    def __init__(self, engine: Engine) -> None:
        self.free = engine.slots
        self.queue: deque[Run] = deque()
        self._cache: OrderedDict[tuple[str, int], tuple[int, int]] = OrderedDict()
        self._room = engine.cache

    def cached(self, run: Run) -> int:
        """The tokens of a prompt that need not be computed; at least one is."""
        plan = run.conversation
        own, _ = self._cache.get(("conversation", plan.number), (0, 0))
        opening, _ = self._cache.get(("agent", plan.agent), (0, 0))
        return min(max(own, opening), run.tokens - 1)

    def keep(self, run: Run) -> None:
        """Note a prompt with its answer."""
        plan = run.conversation
        self._put(("agent", plan.agent), plan.opening, plan.opening)
        own = run.tokens + plan.steps[run.step].answer
        self._put(("conversation", plan.number), own, own - plan.opening)

    def _put(self, name: tuple[str, int], tokens: int, size: int) -> None:
        _, before = self._cache.pop(name, (0, 0))
        self._cache[name] = tokens, size
        self._room += before - size
        while self._room < 0 and len(self._cache) > 1:
            _, (_, freed) = self._cache.popitem(last=False)
            self._room += freed


class Simulation:
    """Conversations that begin at random, or all at once without a rate."""

    def __init__(self, engine: Engine, replicas: int, router: Router, seed: int = 0) -> None:
        self.figures = Figures()
        self._engine = engine
        self._router = router
        self._replicas = [Replica(engine) for _ in range(replicas)]
        self._loads = dict.fromkeys(range(replicas), 0.0)
        self._events: list[tuple[float, int, int, Run]] = []
        self._count = 0
        self._chance = random.Random(seed)
        self._workload: Workload | None = None

    def play(self, conversations: Sequence[Conversation], workload: Workload, rate: float) -> None:
        """Play conversations that begin at a rate per second."""
        self._workload = workload
        moment = 0.0
        for conversation in conversations:
            moment += self._chance.expovariate(rate)
            self._plan(moment, -1, Run(conversation))
        self._run()

    def play_at_once(self, conversations: Sequence[Conversation]) -> None:
        """Play conversations that begin together and never pause."""
        for conversation in conversations:
            self._plan(0.0, -1, Run(conversation))
        self._run()

    def _plan(self, moment: float, replica: int, run: Run) -> None:
        """An end on a replica, or the next request if there is none."""
        self._count += 1
        heapq.heappush(self._events, (moment, self._count, replica, run))

    def _run(self) -> None:
        while self._events:
            moment, _, replica, run = heapq.heappop(self._events)
            if replica < 0:
                self._ask(moment, run)
            else:
                self._end(moment, replica, run)

    def _ask(self, moment: float, run: Run) -> None:
        chosen = self._router.choose(run.prefix(), self._loads)
        self._loads[chosen] += 1
        run.asked = moment
        replica = self._replicas[chosen]
        if replica.free:
            self._begin(moment, chosen, run)
        else:
            replica.queue.append(run)

    def _begin(self, moment: float, number: int, run: Run) -> None:
        replica, engine = self._replicas[number], self._engine
        replica.free -= 1
        cached = replica.cached(run)
        replica.keep(run)
        step: Step = run.conversation.steps[run.step]
        first = moment + engine.overhead + (run.tokens - cached) / engine.prefill
        figures = self.figures
        figures.prompt += run.tokens
        figures.cached += cached
        figures.answer += step.answer
        figures.first.append(first - run.asked)
        self._plan(first + step.answer / engine.decode, number, run)

    def _end(self, moment: float, number: int, run: Run) -> None:
        replica = self._replicas[number]
        self._loads[number] -= 1
        replica.free += 1
        if replica.queue:
            self._begin(moment, number, replica.queue.popleft())
        run.tokens += run.conversation.steps[run.step].answer
        run.step += 1
        if run.step == len(run.conversation.steps):
            return
        pause = 0.0
        if self._workload is not None:
            pause = self._workload.pause(self._chance, run.conversation.steps[run.step])
        self._plan(moment + pause, -1, run)
