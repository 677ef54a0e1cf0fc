"""The pieces of `bench.backends`, once and small; nothing is timed."""

import json

import pytest

from bench.backends.measure import QUICK, Rounds, Sizes, measure
from bench.backends.recordings import ADAPTERS
from bench.backends.report import latency_table, processor_table
from bench.backends.text import TOOL, arguments, words
from bench.backends.upstream import BURST, CALL_WORDS, CALLS, PACED, serving
from bench.backends.worker import OURS, SDK, Result, Task, Worker

CHUNKS = 40


async def results(side: str, adapter: str, *tasks: Task) -> list[Result]:
    """What one client gets for each task."""
    async with serving() as url:
        worker = Worker(side, adapter, url)
        try:
            return [await worker.run(task) for task in tasks]
        finally:
            await worker.aclose()


@pytest.mark.parametrize("side", [OURS, SDK])
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_each_client_takes_in_the_whole_answer(side: str, adapter: str) -> None:
    text, calls, paced = await results(
        side, adapter, Task(BURST, CHUNKS), Task(CALLS, 2), Task(PACED, 4, times=2)
    )
    assert text.characters == sum(map(len, words(CHUNKS)))
    assert calls.characters == 2 * len(TOOL + json.dumps(arguments(CALL_WORDS)))
    assert (len(paced.first), len(paced.chunks)) == (2, 6)
    assert min(*paced.first, *paced.chunks) > 0


def test_the_sides_take_turns_in_processes_of_their_own() -> None:
    sizes = Sizes(rounds=2, chunks=10, paced=2, calls=1, firsts=1, fresh=1)
    found = {"ollama": measure("ollama", sizes)}
    for sides in found["ollama"].values():
        assert [len(sides[side]) for side in (OURS, SDK)] == [2, 2]
    assert processor_table(found, sizes).count("| ollama |") == 3
    assert latency_table(found).count("| ollama |") == 3


def test_medians_of_the_rounds() -> None:
    def rounds(*values: int) -> list[Result]:
        return [Result(cpu=v / 1000, first=[v] * 3, chunks=[v * 1_000_000]) for v in values]

    sides = {OURS: rounds(1, 2, 9), SDK: rounds(4, 4, 5)}
    found: dict[str, Rounds] = {"gemini": dict.fromkeys(QUICK.tasks("gemini"), sides)}
    assert "| 400.0 ms | 800.0 ms | 0.50 × |" in processor_table(found, QUICK)
    assert "| 2.00 ms | 4.00 ms | 0.50 × |" in latency_table(found)
