"""With `llamacpp.deterministic` results are the same bit for bit, whatever else is computed."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.engine import choose_rows
from shepherd.backends.llamacpp.native.batch import Span, pad
from shepherd.backends.llamacpp.native.params import ROWS
from shepherd.errors import ModelLoadError
from shepherd.models import builtin_model
from shepherd.sampling import Sampling
from tests.backends.llamacpp.operations import World
from tests.backends.llamacpp.support import conversation, generate, settings

OPERATIONS = 40
QUESTIONS = [f"Tell me {number} things about the sheep. " * 32 for number in range(3)]


@st.composite
def spans(draw: st.DrawFn) -> list[Span]:
    lengths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=5))
    return [
        Span(number, 7, list(range(length)), True, draw(st.integers(1, length)))
        for number, length in enumerate(lengths)
    ]


@given(spans(), st.sampled_from(ROWS))
def test_no_part_of_a_padded_batch_is_smaller_than_the_rows(parts: list[Span], rows: int) -> None:
    padded, places = pad(parts, rows)
    flat = [token for span in padded for token in span.tokens]
    for span, part in zip(padded, parts, strict=True):
        assert len(span.tokens) % rows == span.outputs % rows == 0
        assert list(span.tokens[: len(part.tokens)]) == part.tokens
        missing = len(span.tokens) - len(part.tokens)
        assert missing < rows
        assert part.outputs + missing <= span.outputs <= len(span.tokens)
    assert [flat[place] for place in places] == [t for part in parts for t in part.tokens]


@pytest.mark.parametrize("kind", ["llama", "moe", "gemma"])
def test_logits_equal_those_of_a_start_from_nothing(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """Cached, restored and shared prefixes, in batches with others; as in the random operations."""
    world = World(request.getfixturevalue(kind), seed=3, deterministic=True)
    try:
        for _ in range(OPERATIONS):
            world.operate()
        world.drain()
    finally:
        compared = world.compared
        world.close()
    assert compared > OPERATIONS


async def test_answers_are_the_same_alone_in_company_and_after_a_restart(tmp_path: Path) -> None:
    """Log probabilities too, with seeds, of a quantized model."""
    alone = await _load(tmp_path)
    first = [await _answer(alone, text) for text in QUESTIONS]
    await alone.aclose()
    together = await _load(tmp_path)
    second = await asyncio.gather(*(_answer(together, text) for text in reversed(QUESTIONS)))
    again = [await _answer(together, text) for text in QUESTIONS]
    restored = next(tier.hits for tier in together.status.cache_tiers if tier.name == "disk")
    await together.aclose()
    assert first == second[::-1] == again
    assert restored > 0


def test_a_device_without_equal_results_is_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"llamacpp\.deterministic is not possible"):
        choose_rows(lambda _rows, _tokens: False)


async def test_a_recurrent_model_is_refused(mamba: Path) -> None:
    with pytest.raises(ModelLoadError, match="recurrent"):
        await LlamaCppBackend.load(mamba, settings(deterministic=True))


async def _load(folder: Path) -> LlamaCppBackend:
    values = settings(deterministic=True, context_size=1024, threads=1, ubatch=64)
    return await LlamaCppBackend.load(builtin_model(), values, parallel=2, cache=folder)


async def _answer(backend: LlamaCppBackend, text: str) -> object:
    session = conversation(text)
    session.sampling = Sampling(temperature=0.9, seed=5, logprobs=3)
    result = await generate(backend, session, max_tokens=8)
    return result.message.content, result.logprobs
