"""Many clients at once, some of whom leave: the others must not notice."""

import asyncio
import logging
import math
import os
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random

import httpx
import numpy as np
import pytest

from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.events import Event
from shepherd.models import builtin_model
from shepherd.sampling import Sampling
from tests.backends.llamacpp.reference import Reference
from tests.integration.clients import (
    PARALLEL,
    Crowd,
    Tokens,
    WatchedBackend,
    random_case,
)
from tests.patience import PATIENCE
from tests.server.harness import RunningServer

logger = logging.getLogger("soak")

SECONDS = float(os.environ.get("SOAK_SECONDS", "0.5"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
REQUESTS = int(60 * SECONDS)
CLIENTS = min(64, REQUESTS // 3)
"""About as many as are answered in that time; what is done does not depend on who is quick."""

CASES = 12 + int(2 * SECONDS)
CLOSE_CALL = 0.5
"""Logits so near to each other that a batch of another shape may turn them round.

Measured on Pup (Q8_0, logits up to 8): mostly no difference at all, at the worst 0.11.
"""

CLEAR = 0.5
"""At least this share of the cases has no close call, so that their answers are always equal."""

GROWTH = (32 if SECONDS > 10 else 64) * 1024 * 1024
"""Bytes that the process may grow once it is warm; a short run does not get quite warm."""


SERVED = {
    "context_size": 4096,
    "n_batch": 4096,
    "cache_type_k": "f16",
    "cache_type_v": "f16",
}
"""The numbers that the server computes with."""


async def load(parallel: int) -> WatchedBackend:
    settings = LlamaCppSection(threads=1, cache_ram_mib=16)
    greedy = Sampling(temperature=0.0)
    return WatchedBackend.watch(
        await WatchedBackend.load(builtin_model(), settings, greedy, parallel=parallel)
    )


def accept(_event: Event) -> bool:
    return True


@asynccontextmanager
async def alone() -> AsyncGenerator[WatchedBackend]:
    """A backend with one sequence."""
    backend = await load(1)
    yield backend
    await backend.aclose()


@pytest.mark.timeout(900 + 20 * SECONDS)
def test_every_finished_answer_is_that_of_the_request_alone() -> None:
    random = Random(SEED)
    loop = asyncio.new_event_loop()
    backend = loop.run_until_complete(load(PARALLEL))
    with RunningServer(backend, loop=loop) as server:
        cases = [random_case(random) for _ in range(CASES)]
        crowd = Crowd(server, loop, cases, random, CLIENTS)
        asyncio.run(crowd.run(REQUESTS))
        server.until(lambda: backend.running == 0)
        server.do(all_sequences_are_free(backend))
        assert httpx.get(f"{server.url}/health", timeout=PATIENCE).json()["status"] == "ok"
    logger.info("seed %d: %s", SEED, dict(crowd.ends))
    asyncio.run(compare(crowd))
    assert {"answered", "streamed", "cancelled"} <= crowd.ends.keys()
    assert any(end.startswith("hung up") for end in crowd.ends)
    assert_flat(crowd.memory)


async def all_sequences_are_free(backend: WatchedBackend) -> None:
    """As many prompts as there are sequences are in memory at once, and none has ended."""
    sessions = [random_case(Random(n)).session for n in range(PARALLEL)]
    async with asyncio.timeout(PATIENCE - 1):
        held = [await backend.prefill_session(s, accept) for s in sessions]
    for prefilled in held:
        async with prefilled:
            pass
    assert backend.running == 0


async def compare(crowd: Crowd) -> None:
    """Each text is what the request says alone, or differs from it by a close call.

    A batch of another shape rounds differently, so two logits that are almost the same may change
    places; then each token must be the best, or as good, by logits computed from nothing.
    """
    found, clear = Counter[str](), 0
    async with alone() as backend:
        reference = Reference(builtin_model(), **SERVED)
        for case, texts in crowd.texts.items():
            generation = await backend.generate_from_session(case.session, accept, case.max_tokens)
            ((prompt, (alone_tokens,)),) = backend.answers.items()
            nearest = margin(reference, prompt, alone_tokens)
            clear += nearest > CLOSE_CALL
            told = {text_of(reference.vocab, t): t for t in crowd.server.backend.answers[prompt]}
            for text, count in texts.items():
                if text == generation.message.content:
                    found["same"] += count
                    continue
                assert nearest <= CLOSE_CALL, f"seed {SEED}: {text!r} is wrong"
                found["close call"] += count
                margin(reference, prompt, told[text])
            backend.answers.clear()
        reference.close()
    logger.info("answers: %s; clear: %d of %d cases", dict(found), clear, len(crowd.texts))
    assert clear > CLEAR * len(crowd.texts)


def text_of(vocab: Vocab, tokens: Tokens) -> str:
    """What a client sees of these tokens."""
    return b"".join(map(vocab.piece, tokens)).decode("utf-8", "replace")


def margin(reference: Reference, prompt: Tokens, answer: Tokens) -> float:
    """By how much each token of the answer is better than any other, at least.

    Fails if one is clearly worse.
    """
    tokens, nearest = [*prompt, *answer], math.inf
    logits = reference.logits(tokens, range(len(prompt), len(tokens)))
    for place, row in logits.items():
        others = np.delete(row, tokens[place])
        distance = float(row[tokens[place]] - others.max())
        if distance < 0:
            logger.info("close call: %g", -distance)
        assert distance > -CLOSE_CALL, f"seed {SEED}: token {place} is worse by {-distance}"
        nearest = min(nearest, distance)
    return nearest


def assert_flat(memory: list[int]) -> None:
    """After a third of the requests nothing grows any more but within the bound."""
    third = len(memory) // 3
    warm, late = max(memory[:third]), max(memory[2 * third :])
    logger.info("memory: %s MiB", [m >> 20 for m in memory[:: max(1, len(memory) // 12)]])
    assert late - warm < GROWTH, f"grew by {(late - warm) >> 20} MiB"
