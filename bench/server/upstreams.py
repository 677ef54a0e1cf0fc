"""Three of llama.cpp's servers as one provider: which router meets their caches?"""

import asyncio
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.peers import Load, llama_server
from bench.table import markdown, milliseconds
from shepherd.affinity import AffinityRouter, Balance, Choice, Prefix
from shepherd.backends.base import Backend
from shepherd.backends.upstreams.group import Router
from shepherd.backends.upstreams.opening import open_upstreams, single_opener
from shepherd.config.paths import Paths
from shepherd.config.providers.book import ProviderBook
from shepherd.config.providers.provider import make_provider
from shepherd.events import ignore_events
from shepherd.messages import Message
from shepherd.models import builtin_model
from shepherd.sampling import Sampling
from shepherd.session import Session

ONE, AFFINE = "one server", "affine"
_SYSTEM = "You are a helpful assistant. " * 10
_QUESTION = "Question {turn} about topic {topic}: what is there to know, in a few words? " * 3


@dataclass(frozen=True, slots=True)
class Sizes:
    """The load: conversations in parallel, `rounds` after each other, and servers."""

    conversations: int = 4
    turns: int = 5
    rounds: int = 1
    servers: int = 3
    context: int = 4096


QUICK = Sizes(conversations=2, turns=2, rounds=1, servers=2, context=4096)


class RandomRouter:
    """Any server."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def choose(self, prefix: Prefix, loads: Mapping[str, float]) -> Choice[str]:
        """A random one."""
        del prefix
        return Choice(self._random.choice(list(loads)))

    def record(self, prefix: Prefix, replica: str) -> None:
        """Nothing."""


class LeastBusyRouter(RandomRouter):
    """The server with the fewest requests, a random one of equals."""

    def choose(self, prefix: Prefix, loads: Mapping[str, float]) -> Choice[str]:
        """A random one of the least busy."""
        least = min(loads.values())
        return super().choose(prefix, {url: n for url, n in loads.items() if n == least})


@dataclass
class Figures:
    """The tokens of all prompts, those of them from a cache, and seconds to first tokens."""

    prompt: int = 0
    cached: int = 0
    seconds: list[float] = field(default_factory=list[float])

    @property
    def hits(self) -> float:
        return self.cached / max(self.prompt, 1)


def main(sizes: Sizes) -> str:
    """The table."""
    routers: dict[str, Router] = {
        ONE: RandomRouter(),
        "random": RandomRouter(),
        "least busy": LeastBusyRouter(),
        AFFINE: AffinityRouter[str](Balance()),
    }
    figures = {name: _measured(name, router, sizes) for name, router in routers.items()}
    return table(figures)


def table(figures: Mapping[str, Figures]) -> str:
    """One row for each router."""
    rows: list[list[str]] = []
    for name, measured in figures.items():
        beside = measured.hits / max(figures[ONE].hits, 1e-9)
        p50, p95 = statistics.median(measured.seconds), quantile(measured.seconds, 0.95)
        times = [milliseconds(p50), milliseconds(p95)]
        rows.append([name, f"{measured.hits:.1%}", f"{beside:.1%}", *times])
    header = ["router", "cached tokens", "of one server's", "first token p50", "p95"]
    return markdown(header, rows)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _measured(name: str, router: Router, sizes: Sizes) -> Figures:
    """The figures of fresh servers; a single one has the slots of all."""
    count = 1 if name == ONE else sizes.servers
    slots = sizes.conversations * (sizes.servers if count == 1 else 1)
    load = Load(builtin_model(), sizes.context * (sizes.servers // count), slots, 1)
    with ExitStack() as stack:
        urls = [f"{stack.enter_context(llama_server(load))}/v1" for _ in range(count)]
        home = stack.enter_context(tempfile.TemporaryDirectory())
        return asyncio.run(_talk(urls, home, router, sizes))


async def _talk(urls: Sequence[str], home: str, router: Router, sizes: Sizes) -> Figures:
    provider = make_provider("bench", {"type": "openai", "base_urls": urls, "api_key": "none"})
    book = ProviderBook(Paths.from_env({"HOME": home}), {})
    backend = await open_upstreams(provider, single_opener(book), router=router)
    figures = Figures()
    try:
        for number in range(sizes.rounds):
            topics = (f"{number}-{index}" for index in range(sizes.conversations))
            await asyncio.gather(*(_converse(backend, t, sizes.turns, figures) for t in topics))
    finally:
        await backend.aclose()
    return figures


async def _converse(backend: Backend, topic: str, turns: int, figures: Figures) -> None:
    session = Session(_SYSTEM, sampling=Sampling(temperature=0.0))
    for turn in range(turns):
        session.add(Message.user(_QUESTION.format(turn=turn, topic=topic)))
        generation = await backend.generate_from_session(session, ignore_events, 12)
        session.add(generation.message)
        figures.prompt += generation.stats.prompt_tokens
        figures.cached += generation.stats.cached_tokens
        figures.seconds.append(generation.stats.prefill_seconds)
