"""How the texts of many requests share batches."""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.llamacpp.embedding_backend import EmbeddingQueue
from shepherd.errors import BackendError

MAX_TOKENS, MAX_TEXTS = 10, 4
TEXT = st.integers(1, 15).map(lambda size: [size] * size)
REQUESTS = st.lists(st.lists(TEXT, max_size=6), min_size=1, max_size=6)


class Computer:
    """Gives each text its first token; keeps the batches, and refuses texts of one token."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses = refuses
        self.batches: list[Sequence[Sequence[int]]] = []

    async def compute(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        self.batches.append(texts)
        await asyncio.sleep(0)
        if any(len(text) == self.refuses for text in texts):
            raise BackendError("no")
        return [[float(text[0])] for text in texts]


def queue(computer: Computer) -> EmbeddingQueue:
    return EmbeddingQueue(computer.compute, MAX_TOKENS, MAX_TEXTS, 100)


@given(requests=REQUESTS)
def test_each_request_gets_its_vectors_in_order(requests: list[list[list[int]]]) -> None:
    async def run() -> None:
        computer = Computer()
        waiting = queue(computer)
        results = await asyncio.gather(*(waiting.vectors(texts) for texts in requests))
        assert results == [[[float(text[0])] for text in texts] for texts in requests]
        assert waiting.running == 0
        for batch in computer.batches:
            assert 1 <= len(batch) <= MAX_TEXTS
            assert len(batch) == 1 or sum(map(len, batch)) <= MAX_TOKENS

    asyncio.run(run())


@given(requests=REQUESTS, cancelled=st.sets(st.integers(0, 5)), turns=st.integers(0, 6))
def test_cancelled_requests_do_not_disturb_others(
    requests: list[list[list[int]]], cancelled: set[int], turns: int
) -> None:
    async def run() -> None:
        computer = Computer()
        waiting = queue(computer)
        tasks = [asyncio.create_task(waiting.vectors(texts)) for texts in requests]
        for _ in range(turns):
            await asyncio.sleep(0)
        for index in cancelled:
            if index < len(tasks):
                tasks[index].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for index, (texts, result) in enumerate(zip(requests, results, strict=True)):
            if not isinstance(result, asyncio.CancelledError):
                assert result == [[float(text[0])] for text in texts]
            else:
                assert index in cancelled
        assert waiting.running == 0
        count = len(computer.batches)
        assert await waiting.vectors([[7]]) == [[7.0]]
        assert computer.batches[count:] in ([[[7]]], [])

    asyncio.run(run())


@given(requests=REQUESTS, bad=st.integers(1, 15))
def test_a_batch_that_fails_ends_only_its_requests(
    requests: list[list[list[int]]], bad: int
) -> None:
    async def run() -> None:
        computer = Computer(refuses=bad)
        waiting = queue(computer)
        tasks = [waiting.vectors(texts) for texts in requests]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [batch for batch in computer.batches if any(len(text) == bad for text in batch)]
        for texts, result in zip(requests, results, strict=True):
            shared = any(text in batch for batch in failed for text in texts)
            if isinstance(result, BackendError):
                assert shared
            else:
                assert result == [[float(text[0])] for text in texts]
                assert bad not in map(len, texts)
        assert waiting.running == 0

    asyncio.run(run())


def test_a_short_request_does_not_wait_for_a_long_one() -> None:
    async def run() -> None:
        computer = Computer()
        waiting = queue(computer)
        long = asyncio.create_task(waiting.vectors([[5] * 5] * 50))
        await asyncio.sleep(0)
        assert await waiting.vectors([[1]]) == [[1.0]]
        assert len(computer.batches) < 5
        assert not long.done()
        await waiting.aclose()
        assert isinstance((await asyncio.gather(long, return_exceptions=True))[0], BackendError)

    asyncio.run(run())
