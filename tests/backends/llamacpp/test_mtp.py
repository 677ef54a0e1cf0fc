"""The layer of a model that drafts: it changes no answer, and reads what the model has read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shepherd.backends.base import Concurrency
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.native.sizes import MAX_ROLLBACK
from shepherd.backends.llamacpp.scheduling.draft_model import DraftRequest
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.scheduling.mtp import MtpHead, has_head
from shepherd.backends.llamacpp.scheduling.scheduler import Scheduler
from shepherd.backends.llamacpp.scheduling.speculator import Speculator
from shepherd.sampling import Sampling
from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.rooms import EXACT as EXACT_VALUES
from tests.backends.llamacpp.support import settings
from tests.backends.llamacpp.test_speculation import (
    ANYTHING,
    EXACT,
    GREEDY,
    SEQUENCES,
    STUCK,
    Bench,
    bench,
    job_for,
    nothing,
)
from tests.examples import examples


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_qwen35(tmp_path_factory.mktemp("mtp") / "mtp.gguf", mtp=True)


class Drafting:
    """A scheduler whose model drafts with a layer of its own, whether that pays or not."""

    def __init__(self, path: Path) -> None:
        params = model_params(EXACT, {})
        params.load_mtp = True
        model = NativeModel(path, params)
        own = context_params(EXACT, SEQUENCES, model.traits)
        own.n_rs_seq = MAX_ROLLBACK
        context = NativeContext(model, own)
        self.head = MtpHead(model, context, context_params(EXACT, SEQUENCES, model.traits))
        speculator = Speculator(context, lookup=False, model=self.head, always=True)
        pool = SequencePool(context, model.window, model.vocab.controls)
        updates: list[tuple[Job, object]] = []
        scheduler = Scheduler(context, pool, lambda job, u: updates.append((job, u)), speculator)
        self.bench = Bench(model, context, scheduler, speculator, updates)  # type: ignore[arg-type]

    def draft(self, job: Job, tokens: list[int]) -> list[int]:
        """A draft behind these tokens of a job that has ended, of which all but one were read."""
        sequences = self.bench.scheduler.pool.sequences
        sequence = next(s for s in sequences if s.tokens == tokens[:-1])
        return self.head.draft([DraftRequest(job, sequence.id, tokens, 5)])[0]


@pytest.fixture(scope="module")
def pair(path: Path) -> Iterator[tuple[Bench, Drafting]]:
    without, ahead = bench(path, nothing), Drafting(path)
    yield without, ahead
    without.close()
    ahead.bench.close()


TOKENS = st.lists(st.integers(20, 60), min_size=1, max_size=40)


@given(
    prompts=st.lists(TOKENS, min_size=1, max_size=SEQUENCES),
    sampling=st.sampled_from([GREEDY, ANYTHING, STUCK]),
    seed=st.integers(0, 1000),
    more=TOKENS,
)
@hypothesis_settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_answers_are_the_same_and_drafts_those_of_a_layer_that_read_all_at_once(
    pair: tuple[Bench, Drafting],
    path: Path,
    prompts: list[list[int]],
    sampling: Sampling,
    seed: int,
    more: list[int],
) -> None:
    """Two turns of several conversations at once, with drafts that are rejected."""
    sampling = Sampling(seed=seed).over(sampling)
    without, ahead = pair
    jobs: list[Job] = []
    for _turn in range(2):
        expected = without.answer(*(job_for(p, sampling) for p in prompts), max_tokens=20)
        jobs = [job_for(p, sampling) for p in prompts]
        assert ahead.bench.answer(*jobs, max_tokens=20) == expected
        assert all(job.drafted_tokens > 0 for job in jobs if job.generated > 2)
        prompts = [[*job.tokens, *more] for job in jobs]
    fresh = Drafting(path)
    for job in jobs:
        whole = job_for(job.tokens[:-1])
        fresh.bench.answer(whole, max_tokens=1)
        assert ahead.draft(job, job.tokens) == fresh.draft(whole, job.tokens)
    fresh.bench.close()


@pytest.mark.parametrize("speculation", ["auto", "lookup"])
def test_a_file_with_such_a_layer_answers_as_one_without(path: Path, speculation: str) -> None:
    engine = Engine.load(
        path, settings(speculation=speculation, **EXACT_VALUES), Concurrency(), lambda job, u: None
    )
    job = job_for([30, 31, 32] * 5)
    engine.scheduler.queue.submit(job)
    engine.scheduler.start(job, 40)
    while not engine.scheduler.queue.idle:
        engine.scheduler.step(lambda: True)
    engine.close()
    without = bench(path, nothing)
    assert tuple(job.tokens[job.prompt_length :]) == without.answer(job_for([30, 31, 32] * 5))[0]
    without.close()


def test_only_files_that_have_it_load_it(path: Path, tmp_path: Path, llama: Path) -> None:
    assert has_head(check_model_file(path))
    assert not has_head(check_model_file(tiny.write_qwen35(tmp_path / "plain.gguf")))
    assert not has_head(check_model_file(llama))
