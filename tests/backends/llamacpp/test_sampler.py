from collections.abc import Iterator

import pytest

from shepherd.backends.llamacpp.context import NativeContext, Span
from shepherd.backends.llamacpp.model import NativeModel
from shepherd.backends.llamacpp.params import context_params
from shepherd.backends.llamacpp.sampler import SamplerChain
from shepherd.sampling import Sampling
from tests.backends.llamacpp.support import settings

PROMPT = [30, 40, 50, 60]


@pytest.fixture(scope="module")
def context(llama_model: NativeModel) -> Iterator[NativeContext]:
    """A context whose last batch holds logits."""
    context = NativeContext(llama_model, context_params(settings(), 1, llama_model.bytes))
    context.decode([Span(0, 0, PROMPT, wants_logits=True)])
    yield context
    context.close()


@pytest.fixture(scope="module")
def best(context: NativeContext, llama_model: NativeModel) -> int:
    logits = context.logits(len(PROMPT) - 1, llama_model.vocab.size)
    return logits.index(max(logits))


def sample(
    sampling: Sampling,
    context: NativeContext,
    model: NativeModel,
    seen: list[int] | None = None,
    times: int = 1,
) -> list[int]:
    chain = SamplerChain(sampling, model.vocab, context.size)
    chain.prime(seen or [])
    tokens = [chain.sample(context, len(PROMPT) - 1) for _ in range(times)]
    chain.close()
    chain.close()
    return tokens


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.0),
        Sampling(temperature=0.0, penalty_present=1.0),
        Sampling(temperature=5.0, top_k=1),
        Sampling(temperature=5.0, top_p=0.0),
        Sampling(temperature=5.0, top_k=0, top_p=1.0, min_p=1.0),
        Sampling(temperature=0.01, top_k=0, top_p=1.0),
    ],
)
def test_the_narrowest_choice_is_the_best_token(
    sampling: Sampling, context: NativeContext, llama_model: NativeModel, best: int
) -> None:
    assert sample(sampling, context, llama_model) == [best]


def test_min_keep_keeps_more_than_top_p_would(
    context: NativeContext, llama_model: NativeModel
) -> None:
    narrow = Sampling(temperature=5.0, top_p=0.0, min_keep=10, seed=1)
    assert len(set(sample(narrow, context, llama_model, times=50))) > 1


def test_a_seed_repeats_and_no_seed_varies(
    context: NativeContext, llama_model: NativeModel
) -> None:
    wide = Sampling(temperature=2.0, top_k=0, top_p=1.0, seed=7)
    first = sample(wide, context, llama_model, times=20)
    assert sample(wide, context, llama_model, times=20) == first
    free = Sampling(temperature=2.0, top_k=0, top_p=1.0)
    drawn = [sample(free, context, llama_model, times=20) for _ in range(3)]
    assert drawn[0] != drawn[1] or drawn[1] != drawn[2]


@pytest.mark.parametrize(
    "penalty",
    [{"penalty_present": 10.0}, {"penalty_freq": 10.0}, {"penalty_repeat": 10.0}],
)
def test_penalties_see_what_came_before(
    penalty: dict[str, float], context: NativeContext, llama_model: NativeModel, best: int
) -> None:
    greedy = Sampling(temperature=0.0, **penalty)  # pyright: ignore[reportArgumentType]
    assert sample(greedy, context, llama_model) == [best]
    assert sample(greedy, context, llama_model, [best]) != [best]
    two = sample(greedy, context, llama_model, times=2)
    assert two[0] != two[1]


@pytest.mark.parametrize(("last_n", "picked"), [(0, 1), (2, 1), (3, 0), (-1, 0)])
def test_penalties_look_back_as_far_as_last_n(
    last_n: int, picked: int, context: NativeContext, llama_model: NativeModel, best: int
) -> None:
    sampling = Sampling(temperature=0.0, penalty_present=10.0, penalty_last_n=last_n)
    others = [t for t in (30, 31, 32) if t != best][:2]
    tokens = sample(sampling, context, llama_model, [best, *others])
    assert tokens.count(best) == picked
