"""A long prompt is not read beside the tokens of conversations that wait."""

import random
import string

import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.cache.tiers import Crowding
from shepherd.backends.llamacpp.native.devices import CPU_LIMITS, has_gpu
from shepherd.messages import Message
from shepherd.session import Session
from tests.backends.llamacpp.support import PUP, Recorder, loaded

LONG, MEDIUM, SHORT = 115, 9, 5  # words of some three tokens


@pytest.fixture
def on_cpu() -> None:
    """Decided while a test runs, because it loads llama.cpp."""
    if has_gpu():
        pytest.skip("on a GPU measurements decide")


def talk(seed: int, words: int) -> Session:
    rng = random.Random(seed)
    text = " ".join("".join(rng.choices(string.ascii_lowercase, k=5)) for _ in range(words))
    return Session(text, [Message.user("Hello")])


async def ask(backend: LlamaCppBackend, session: Session) -> tuple[str, int, int]:
    """The answer, the prompt's tokens, and how many of them were cached."""
    generation = await backend.generate_from_session(session, Recorder(), 8)
    stats = generation.stats
    return generation.message.content, stats.prompt_tokens, stats.cached_tokens


def entries(backend: LlamaCppBackend) -> tuple[int, int]:
    """Conversations in memory and in host memory."""
    held = {tier.name: tier.entries for tier in backend.status.cache_tiers}
    return held["memory"], held["host"]


@pytest.mark.usefixtures("on_cpu")
async def test_a_long_conversation_makes_way_and_comes_back_warm() -> None:
    async with loaded(PUP, parallel=3, context_size=2048) as backend:
        first = talk(1, LONG)
        answer, tokens, _ = await ask(backend, first)
        assert tokens > 280
        await ask(backend, talk(2, LONG))
        assert entries(backend) == (1, 1)
        again, tokens, cached = await ask(backend, first)
        assert again == answer
        assert cached >= tokens - 1


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    ("words", "host_mib"), [((SHORT, MEDIUM), -1), ((MEDIUM, SHORT), -1), ((LONG, LONG), 0)]
)
async def test_it_stays_where_that_costs_little_or_nothing_could_keep_it(
    words: tuple[int, int], host_mib: int
) -> None:
    async with loaded(PUP, parallel=3, context_size=2048, cache_ram_mib=host_mib) as backend:
        for seed, count in enumerate(words):
            await ask(backend, talk(seed, count))
        assert entries(backend)[0] == 2


@pytest.mark.usefixtures("on_cpu")
async def test_what_is_shared_is_no_crowd() -> None:
    async with loaded(PUP, parallel=3, context_size=2048) as backend:
        shared = talk(1, LONG)
        async with await backend.prefill_session(shared, Recorder()) as held:
            other = Session(shared.system_message, [Message.user("Who are you?")])
            await ask(backend, other)
            await backend.generate_from_prefilled(held, Recorder(), 8)
        longer = Session(shared.system_message, [Message.user(talk(3, MEDIUM).system_message)])
        await ask(backend, longer)
        assert entries(backend)[1] == 0


def test_on_a_gpu_the_measured_cost_of_a_cell_decides() -> None:
    crowding = Crowding(None)
    assert not crowding.pays(10**6, 10**6, lambda: 0.001)  # nothing is known yet
    for cells in [*range(0, 20_000, 500)] * 3:
        crowding.note(512, cells, 512 * (1e-4 + 2e-9 * cells))
    assert crowding.pair_seconds == pytest.approx(2e-9, rel=0.01)
    assert crowding.pays(50_000, 4_000, lambda: 0.3)
    assert not crowding.pays(50_000, 4_000, lambda: 0.5)


def test_on_a_cpu_it_is_a_fixed_product() -> None:
    crowding = Crowding(CPU_LIMITS.crowding)
    assert crowding.pays(64, 64, lambda: 1e9)
    assert not crowding.pays(64, 63, lambda: 0.0)
