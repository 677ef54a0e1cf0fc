"""Whatever is done in whatever order, answers are those of a model that remembers nothing."""

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.operations import World
from tests.examples import few

OPERATIONS = int(os.environ.get("OPERATIONS", few(2000, 400)))
"""Of all kinds of memory together."""

KINDS = ["single", "llama", "moe", "gemma", "mamba", "hybrid", "lfm2", "qwen35", "deepseek4"]


@pytest.mark.parametrize(("seed", "kind"), list(enumerate(KINDS)))
def test_random_operations(
    seed: int, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """One layer deep, moving tokens after an eviction is exact; elsewhere it is off."""
    shifts = kind == "single"
    if shifts:
        path = tiny.write_llama(tmp_path / "single.gguf", layers=1)
    else:
        path = request.getfixturevalue(kind)
    world = World(path, seed, shifts=shifts)
    done: Counter[str] = Counter()
    share = -(-OPERATIONS // len(KINDS))
    try:
        for _ in range(share):
            done[world.operate()] += 1
        world.leave_gap()
    except AssertionError as error:
        where = f"{kind}, seed {seed}, operation {done.total() + 1}"
        raise AssertionError(f"{where}: {error}") from error
    finally:
        counts, pool, compared = world.pool.counts, world.pool, world.compared
        idle = world.scheduler.queue.idle
        world.close()
    assert idle
    assert not any(sequence.busy for sequence in pool.sequences)
    assert done.keys() == world.operations.keys()
    assert compared > share
    assert min(counts.hits["memory"], counts.hits["host"], counts.swap_out) > 0
    assert (counts.gaps_closed > 0) is shifts
