"""The simulation in flat arrays, for a million conversations.

It plays the same as `simulation`, as a test holds. With numba it takes about a thousandth of the
time.
"""

import heapq
import sys
from collections.abc import Callable, MutableSequence, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType
from typing import Any, NamedTuple, cast

import numpy as np

from bench.scale import affine as affine_module
from bench.scale import recency
from bench.scale.affine import Affine, affine, choose, least, note
from bench.scale.recency import NONE, Holdings, entry_of, evict, filled, hold, holdings, refresh
from bench.scale.routers import HOMES, OWN, RANDOM, ROUTERS, balance_of, homes
from bench.scale.simulation import Engine, Figures
from bench.scale.workload import Load
from shepherd.affinity import router as router_module

BATCHES = 10
"""The conversations in the order of their beginnings, in as many parts: for confidence."""


class Replicas(NamedTuple):
    """What replicas do now; a queue begins with `front`, and `behind` leads to the next one."""

    running: MutableSequence[int]
    loads: MutableSequence[int]
    front: MutableSequence[int]
    back: MutableSequence[int]
    cache: Holdings


class Talks(NamedTuple):
    """By conversation: the next step, the replica, the time of the request, the one behind it."""

    step: MutableSequence[int]
    place: MutableSequence[int]
    asked: MutableSequence[float]
    behind: MutableSequence[int]


class Results(NamedTuple):
    """By batch: tokens of prompts, those from caches, of answers. By request: `first`."""

    prompt: MutableSequence[int]
    cached: MutableSequence[int]
    answer: MutableSequence[int]
    first: MutableSequence[float]


class Rules(NamedTuple):
    """How requests are routed, and how fast they are answered."""

    kind: int
    homes: Sequence[int]
    slots: int
    prefill: float
    decode: float
    cache: int


class World(NamedTuple):
    """All of a simulation; `counter` has the number of events so far."""

    load: Load
    rules: Rules
    router: Affine
    replicas: Replicas
    talks: Talks
    results: Results
    counter: MutableSequence[int]


Events = list[tuple[float, int, int]]
"""The moment, the number of the event, and twice the conversation, plus one for an end."""


def play(world: World) -> None:
    """Play all conversations; fills the results."""
    events: Events = [(world.load.begin[0], 0, 0)]
    while len(events) > 0:
        moment, _, code = heapq.heappop(events)
        if code & 1:
            _end(world, events, moment, code >> 1)
        else:
            _ask(world, events, moment, code >> 1)


def _plan(world: World, events: Events, moment: float, code: int) -> None:
    world.counter[0] += 1
    heapq.heappush(events, (moment, world.counter[0], code))


def _ask(world: World, events: Events, moment: float, conversation: int) -> None:
    talks, replicas, load = world.talks, world.replicas, world.load
    if talks.step[conversation] == 0 and conversation + 1 < len(load.agent):
        _plan(world, events, load.begin[conversation + 1], 2 * conversation + 2)
    replica = _route(world, conversation)
    replicas.loads[replica] += 1
    talks.place[conversation] = replica
    talks.asked[conversation] = moment
    if replicas.running[replica] < world.rules.slots:
        replicas.running[replica] += 1
        _begin(world, events, moment, conversation)
        return
    talks.behind[conversation] = NONE
    if replicas.front[replica] == NONE:
        replicas.front[replica] = conversation
    else:
        talks.behind[replicas.back[replica]] = conversation
    replicas.back[replica] = conversation


def _route(world: World, conversation: int) -> int:
    load, loads, talks = world.load, world.replicas.loads, world.talks
    step = talks.step[conversation]
    if world.rules.kind == HOMES:
        return world.rules.homes[conversation]
    if world.rules.kind == OWN:
        replica = choose(world.router, load, conversation, loads)
        blocks = load.blocks[load.start[load.session[conversation]] + step]
        note(world.router, load, conversation, replica, blocks)
        return replica
    chance = load.chance[load.request[conversation] + step]
    if world.rules.kind == RANDOM:
        return int(chance * len(loads))
    return least_busy(loads, chance)


def least_busy(loads: Sequence[int], chance: float) -> int:
    """A replica with the fewest requests, by chance."""
    smallest, number = least(loads), 0
    for load in loads:
        if load == smallest:
            number += 1
    skipped = int(chance * number)
    for replica in range(len(loads)):
        if loads[replica] == smallest:
            if skipped == 0:
                return replica
            skipped -= 1
    return 0


def _begin(world: World, events: Events, moment: float, conversation: int) -> None:
    load, rules, results, talks = world.load, world.rules, world.results, world.talks
    number = load.start[load.session[conversation]] + talks.step[conversation]
    agent, replica = load.agent[conversation], talks.place[conversation]
    prompt = load.opening[agent] + load.prompt[number]
    cached = _cached(world, conversation, prompt)
    own = load.prompt[number] + load.answer[number]
    cache = world.replicas.cache
    refresh(cache, agent * len(world.replicas.loads) + replica, load.opening[agent])
    hold(cache, conversation, replica, own)
    evict(cache, replica, rules.cache)
    first = moment + (prompt - cached) / rules.prefill
    batch = conversation * BATCHES // len(load.agent)
    results.prompt[batch] += prompt
    results.cached[batch] += cached
    results.answer[batch] += load.answer[number]
    request = load.request[conversation] + talks.step[conversation]
    results.first[request] = first - talks.asked[conversation]
    end = first + load.answer[number] / rules.decode
    _plan(world, events, end, 2 * conversation + 1)


def _cached(world: World, conversation: int, prompt: int) -> int:
    """The tokens of a prompt that need not be computed; at least one is."""
    load, cache, replica = world.load, world.replicas.cache, world.talks.place[conversation]
    agent = load.agent[conversation]
    entry = entry_of(cache, conversation, replica)
    if entry != NONE:
        return min(load.opening[agent] + cache.size[entry], prompt - 1)
    return min(cache.size[agent * len(world.replicas.loads) + replica], prompt - 1)


def _end(world: World, events: Events, moment: float, conversation: int) -> None:
    load, talks, replicas = world.load, world.talks, world.replicas
    replica = talks.place[conversation]
    replicas.loads[replica] -= 1
    waiting = replicas.front[replica]
    if waiting == NONE:
        replicas.running[replica] -= 1
    else:
        replicas.front[replica] = talks.behind[waiting]
        _begin(world, events, moment, waiting)
    talks.step[conversation] += 1
    step, session = talks.step[conversation], load.session[conversation]
    if load.start[session] + step < load.start[session + 1]:
        pause = load.pause[load.request[conversation] + step]
        _plan(world, events, moment + pause, 2 * conversation)


def simulate(load: Load, engine: Engine, name: str, replicas: int) -> Figures:
    """Play the load with a router; compiled if numba is installed."""
    world = _world(load, engine, name, replicas)
    run = compiled() if find_spec("numba") else play
    if run is play:
        world = _in_lists(world)
    run(world)
    return figures_of(world.results)


def figures_of(results: Results) -> Figures:
    """The sums, and the hit rate of each batch."""
    parts = [
        cached / max(1, prompt)
        for prompt, cached in zip(results.prompt, results.cached, strict=True)
    ]
    figures = Figures(sum(results.prompt), sum(results.cached), sum(results.answer), results.first)
    figures.batches = parts
    return figures


def _world(load: Load, engine: Engine, name: str, replicas: int) -> World:
    kind, size = ROUTERS[name], len(load.agent)
    places: Any = np.asarray(homes(load.key, replicas) if kind == HOMES else [0])
    rules = Rules(kind, places, engine.slots, engine.prefill, engine.decode, engine.cache)
    smallest = min(map(sum, zip(load.prompt, load.answer, strict=True)))
    entries = min(replicas * (engine.cache // smallest + 2), len(load.chance) + 1)
    cache = holdings(load, replicas, int(entries))
    queues = filled(replicas, NONE), filled(replicas, NONE)
    moments: Any = np.zeros(size)
    first: Any = np.zeros(len(load.chance))
    return World(
        load,
        rules,
        affine(load, replicas, balance_of(name), engine.memory),
        Replicas(filled(replicas), filled(replicas), *queues, cache),
        Talks(filled(size), filled(size), moments, filled(size)),
        Results(filled(BATCHES), filled(BATCHES), filled(BATCHES), first),
        filled(1),
    )


def _in_lists(value: Any) -> Any:
    """The same with lists, which Python reads faster than arrays."""
    if isinstance(value, tuple):
        parts: list[Any] = [_in_lists(part) for part in cast(tuple[Any, ...], value)]
        return cast(Any, value)._make(parts)
    return value.tolist() if isinstance(value, np.ndarray) else value


@cache
def compiled() -> Callable[[World], None]:
    """The simulation, compiled by numba."""
    numba: Any = import_module("numba")
    extending: Any = import_module("numba.extending")
    for module in (router_module, recency, affine_module, sys.modules[__name__]):
        for function in vars(module).values():
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                extending.register_jitable(forceinline=True)(function)
    return numba.njit(play)
