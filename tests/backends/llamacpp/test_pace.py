from pathlib import Path

import pytest

from shepherd.backends.llamacpp.cache.prefixes import Query, packed
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.native.devices import CPU_LIMITS, GPU_LIMITS, DeviceLimits
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.scheduling.accounts import Accounts
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.scheduling.planner import Part, Planner, PrefillPace
from shepherd.sampling import Sampling
from tests.backends.llamacpp.support import settings

BATCH = 512


def test_the_first_chunk_is_careful() -> None:
    assert PrefillPace(BATCH).limit(BATCH, is_shared=False) == CPU_LIMITS.initial_chunk
    assert PrefillPace(64).limit(64, is_shared=False) == 64


def test_a_fast_model_fills_the_batch_but_leaves_others_their_share() -> None:
    pace = PrefillPace(BATCH)
    pace.note(128, 0.01)
    assert pace.limit(BATCH, is_shared=False) == BATCH
    assert pace.limit(BATCH - 3, is_shared=False) == BATCH - 3
    assert pace.limit(BATCH - 3, is_shared=True) == BATCH // 4


def test_a_slow_model_gets_short_chunks() -> None:
    pace = PrefillPace(BATCH)
    pace.note(64, 0.128)
    assert pace.limit(BATCH, is_shared=False) == 60
    assert pace.limit(BATCH, is_shared=True) == 40
    assert pace.limit(BATCH, is_shared=False, prompts=2) == 40
    assert pace.limit(BATCH, is_shared=False, in_turn=True) == 500
    assert pace.limit(BATCH, is_shared=False, in_turn=True, prompts=2) == 500
    assert pace.limit(BATCH, is_shared=True, in_turn=True) == 40
    assert pace.limit(BATCH, is_shared=False, interruptible=True) == BATCH
    assert pace.limit(BATCH, is_shared=True, interruptible=True) == 40
    assert pace.limit(BATCH, is_shared=False, prompts=2, interruptible=True) == 40
    assert pace.limit(BATCH, is_shared=False, in_turn=True, interruptible=True) == BATCH
    assert pace.limit(BATCH, is_shared=False, in_turn=True, prompts=2, interruptible=True) == 500
    assert pace.limit(5, is_shared=True) == 5
    for _ in range(10):
        pace.note(64, 64.0)
    assert pace.limit(BATCH, is_shared=False) == CPU_LIMITS.min_chunk
    assert pace.limit(BATCH, is_shared=True) == CPU_LIMITS.min_shared_chunk


def test_small_steps_teach_nothing() -> None:
    pace = PrefillPace(BATCH)
    pace.note(4, 10.0)
    pace.note(64, 0.0)
    assert pace.limit(BATCH, is_shared=False) == CPU_LIMITS.initial_chunk


def test_there_is_always_some_progress() -> None:
    assert PrefillPace(1).limit(1, is_shared=True) == 1


@pytest.mark.parametrize(("limits", "learns"), [(CPU_LIMITS, True), (GPU_LIMITS, False)])
def test_answers_show_the_pace_of_prompts_only_on_a_cpu(
    llama: Path, limits: DeviceLimits, *, learns: bool
) -> None:
    """On a GPU a batch of many answers takes as long as one of a large prompt."""
    own = settings()
    model = NativeModel(llama, model_params(own, {}))
    context = NativeContext(model, context_params(own, 1, model.traits))
    context.limits = limits
    pool = SequencePool(context, 0)
    pace = PrefillPace(BATCH, limits)
    job = Job(1, [30], Sampling(), lambda update: None)
    job.prompt_done = True
    sequence = pool.acquire(Query(packed([30])))
    assert sequence is not None
    part = Part(job, sequence, [30], completes_job=True, reads_results=True)
    Planner(context, pool, pace, None, Accounts()).note([part] * 200, 0.01)
    assert bool(pace.speed) == learns
    job.prompt_done = False
    Planner(context, pool, pace, None, Accounts()).note([part] * 200, 0.01)
    assert pace.speed
    context.close()
    model.close()
