"""Loading an engine, and what is left when a step of it fails."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shepherd.backends.base import Concurrency
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.llamacpp.native.bindings import bindings
from tests.backends.llamacpp.support import settings

ROOM = "shepherd.backends.llamacpp"
LATER_STEPS = [
    "native.vocab.Vocab",
    "engine.NativeAdapters",
    "engine.context_params",
    "engine.NativeContext",
    "native.context.Batch",
    "engine.NativeAdapters.apply",
    "cache.disk_cache.open_disk_cache",
    "cache.disk_cache.cache_capacity",
    "cache.sequence.HostCache",
    "engine.SequencePool",
    "engine.SequencePool.set_initial_count",
    "native.context.NativeContext.decode",
    "engine.open_speculator",
    "scheduling.speculator.locate_model",
    "scheduling.speculator.check_model_file",
    "scheduling.draft_model.check_same_vocabulary",
    "scheduling.speculator.context_params",
    "scheduling.speculator.NativeContext",
    "scheduling.draft_model.DraftModel.open",
    "scheduling.draft_model.DraftModel.__init__",
    "scheduling.speculator.Speculator",
    "engine.Scheduler",
]
"""Everything that `Engine.load` calls once the model is in memory."""

PAIRS = {
    "llama_model_load_from_file": "llama_model_free",
    "llama_init_from_model": "llama_free",
    "llama_sampler_init_greedy": "llama_sampler_free",
}


class StepFailedError(Exception):
    """What a step of loading raises in these tests."""


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many native objects of each kind are not freed, counted at llama.cpp's own functions."""
    lib = bindings()
    counts: Counter[str] = Counter()

    def counting(name: str, kind: str, change: int) -> None:
        function = getattr(lib, name)

        def count(*arguments: Any) -> Any:
            counts[kind] += change
            return function(*arguments)

        monkeypatch.setattr(lib, name, count)

    for make, free in PAIRS.items():
        counting(make, make, 1)
        counting(free, make, -1)
    return counts


def load(path: Path) -> Engine:
    return Engine.load(
        path, settings(draft_model=str(path)), Concurrency(2), lambda job, update: None
    )


@pytest.mark.parametrize("step", LATER_STEPS)
def test_a_failing_step_frees_all_that_was_made_before(
    step: str, llama: Path, in_memory: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StepFailedError(step)

    monkeypatch.setattr(f"{ROOM}.{step}", fail)
    with pytest.raises(StepFailedError):
        load(llama)
    assert not any(in_memory.values())


def test_a_loaded_engine_keeps_all_until_it_is_closed(llama: Path, in_memory: Counter[str]) -> None:
    engine = load(llama)
    assert in_memory == {
        "llama_model_load_from_file": 2,
        "llama_init_from_model": 2,
        "llama_sampler_init_greedy": 1,
    }
    engine.close()
    assert not any(in_memory.values())
