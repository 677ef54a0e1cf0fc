"""Greedy answers from a warm cache, a cold one, a restarted one, and llama.cpp alone."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bench.weights import GEMMA, SMOLLM2, model_file
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.prefilled import LlamaPrefilled
from shepherd.messages import Message
from shepherd.session import Session
from tests.backends.llamacpp.reference import EXACT, TOLERANCE, Reference
from tests.backends.llamacpp.support import Recorder, loaded
from tests.backends.llamacpp.tiny import write_gemma, write_hybrid, write_llama
from tests.examples import PROFILE

CONTEXT = 2048
TOKENS = 24
SYSTEM = "the hello in the hell, well then " * 36
"""Long enough for the cache on disk."""
USER = ["hello in the hell", "well then, the other", "and in the end"]
ASSISTANT = ["the hello is in there", "he is in the well"]
QUANTIZED = 0.02
"""The tie of models whose weights are quantized, in parts of the largest logit. Batches of other
shapes then round differently. The largest that was measured is 0.0081 (SmolLM2)."""

RANDOM = {"llama": write_llama, "gemma": write_gemma, "hybrid": write_hybrid}


class Answer(NamedTuple):
    """The tokens of a prompt and of the greedy answer to it, and how many were cached."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    cached: int


class Case(NamedTuple):
    """A model, and how close two logits are when either may be chosen."""

    path: Path
    tie: float


REAL = [SMOLLM2, GEMMA] if PROFILE == "long" else []
"""Each takes a minute of processor time."""


@pytest.fixture(params=[*RANDOM, *REAL])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    if request.param in RANDOM:
        return Case(RANDOM[request.param](tmp_path / "model.gguf", context=CONTEXT), 2 * TOLERANCE)
    path = model_file(request.param)
    if path is None:
        pytest.skip(f"{request.param} is not installed")
    return Case(path, QUANTIZED)


def session(turn: int) -> Session:
    """A fixed conversation up to a turn of the user."""
    result = Session(SYSTEM)
    for index, text in enumerate(USER[: turn + 1]):
        result.add(Message.user(text))
        if index < turn:
            result.add(Message.assistant(ASSISTANT[index]))
    return result


async def answer(backend: LlamaCppBackend, asked: Session) -> Answer:
    prefilled = await backend.prefill_session(asked, Recorder())
    assert isinstance(prefilled, LlamaPrefilled)
    await backend.generate_from_prefilled(prefilled, Recorder(), TOKENS)
    prompt = tuple(prefilled.prompt.tokens)
    return Answer(prompt, tuple(prefilled.generated), prefilled.cached_tokens)


async def warm_answers(case: Case, cache: Path) -> list[Answer]:
    """The turns one after the other, and the last once more."""
    async with loaded(case.path, cache=cache, **settings_of(case)) as backend:
        return [await answer(backend, session(turn)) for turn in (0, 1, 2, 2)]


async def cold_answers(case: Case) -> list[Answer]:
    """Each turn on a model that has just been loaded."""
    answers: list[Answer] = []
    for turn in range(len(USER)):
        async with loaded(case.path, **settings_of(case)) as backend:
            answers.append(await answer(backend, session(turn)))
    return answers


async def restarted_answer(case: Case, cache: Path) -> Answer:
    """The last turn after a restart with the saved conversation."""
    async with loaded(case.path, cache=cache, **settings_of(case)) as backend:
        return await answer(backend, session(2))


def settings_of(case: Case) -> dict[str, Any]:
    """Full width for random models; real ones run as they come."""
    exact = EXACT if case.tie < QUANTIZED else {}
    return {**exact, "context_size": CONTEXT, "speculation": "off"}


def gaps(reference: Reference, given: Answer) -> list[float]:
    """How far each token of an answer is below the best one, in parts of the largest logit."""
    tokens = [*given.prompt, *given.tokens]
    lengths = range(len(given.prompt), len(tokens))
    rows = reference.logits(tokens, [*lengths])
    return [
        float(rows[length].max() - rows[length][tokens[length]]) / float(np.abs(rows[length]).max())
        for length in lengths
    ]


@pytest.mark.long
async def test_warm_cold_and_restarted_answers_are_llamacpps(case: Case, tmp_path: Path) -> None:
    """Each token is the likeliest by llama.cpp's own logits, computed from nothing, or ties."""
    cache = tmp_path / "cache"
    warm = await warm_answers(case, cache)
    cold = await cold_answers(case)
    restarted = await restarted_answer(case, cache)
    assert [answer.cached > 0 for answer in warm[1:]] == [True, True, True]
    assert restarted.cached > 0
    reference = Reference(case.path, **settings_of(case), n_batch=CONTEXT)
    try:
        for given in (*warm, *cold, restarted):
            assert len(given.tokens) > 0
            assert max(gaps(reference, given)) <= case.tie
    finally:
        reference.close()
    for one, other in [*zip(warm, [*cold, cold[2]], strict=True), (restarted, cold[2])]:
        assert one.prompt == other.prompt
        if case.tie < QUANTIZED:
            assert one.tokens == other.tokens


@pytest.mark.parametrize("kind", RANDOM)
def test_context_matters_to_the_random_models(kind: str, tmp_path: Path) -> None:
    """A word at the start changes what is likely at the end."""
    reference = Reference(RANDOM[kind](tmp_path / "model.gguf", context=CONTEXT))
    try:
        rows = [reference.logits([1, word, *range(40, 60)], [22])[22] for word in (30, 31)]
        assert float(np.abs(rows[0] - rows[1]).max()) > 20 * TOLERANCE * float(rows[0].max())
    finally:
        reference.close()
