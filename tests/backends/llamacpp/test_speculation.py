"""Computing ahead changes how many tokens come per step, and nothing else."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shepherd.backends.base import Concurrency
from shepherd.backends.inprocess.answer import Failed, Finished, Text, Update
from shepherd.backends.inprocess.constraint import CompiledConstraint
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.llamacpp.native.context import NativeContext, Span
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.native.sizes import MAX_ROLLBACK
from shepherd.backends.llamacpp.scheduling.draft_model import DraftModel
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.scheduling.scheduler import Scheduler
from shepherd.backends.llamacpp.scheduling.speculator import Speculator
from shepherd.errors import ModelLoadError
from shepherd.sampling import Sampling
from tests.backends.llamacpp.rooms import TOLERANCE, difference, opened
from tests.backends.llamacpp.support import (
    PUP,
    Recorder,
    ask,
    conversation,
    held_to,
    loaded,
    settings,
)
from tests.backends.llamacpp.tiny import write_llama
from tests.examples import examples

EXACT = settings(flash_attention="off", cache_type_k="f32", cache_type_v="f32")
"""Numbers in full width, so that batches of any shape agree."""

SEQUENCES = 3
WORDS = [30, 31, 32, 40, 300, 301, 310]
GREEDY = Sampling(temperature=0.0)
ANYTHING = Sampling(temperature=1.2, top_k=0, top_p=1.0, penalty_repeat=1.1)
STUCK = Sampling(temperature=0.0, top_k=0, top_p=1.0, penalty_freq=-10.0, penalty_last_n=-1)
"""What was said before is likelier, so that a random model repeats itself."""


@dataclass
class Bench:
    """A scheduler that is stepped by hand."""

    model: NativeModel
    context: NativeContext
    scheduler: Scheduler
    speculator: Speculator | None
    updates: list[tuple[Job, Update]]

    def answer(self, *jobs: Job, max_tokens: int = 40) -> list[tuple[int, ...]]:
        """What each of these jobs says when all run at once."""
        self.updates.clear()
        for job in jobs:
            self.scheduler.queue.submit(job)
            self.scheduler.start(job, max_tokens)
        while not self.scheduler.queue.idle:
            self.scheduler.step(lambda: self.speculator is not None)
        ended = {job: u for job, u in self.updates if isinstance(u, Finished)}
        assert not [u for _, u in self.updates if isinstance(u, Failed)]
        return [ended[job].tokens for job in jobs]

    def text(self, job: Job) -> str:
        return "".join(u.text for j, u in self.updates if j is job and isinstance(u, Text))

    def close(self) -> None:
        if self.speculator is not None:
            self.speculator.close()
        self.context.close()
        self.model.close()


Drafts = Callable[[NativeContext], Speculator | None]


def nothing(_context: NativeContext) -> None:
    """No drafts."""


def lookup(context: NativeContext) -> Speculator:
    """Drafts from the conversation, whether they pay or not."""
    return Speculator(context, always=True)


@dataclass
class Asking:
    """Drafts from a model, whether they pay or not."""

    path: Path
    sequences: int = SEQUENCES
    opened: list[DraftModel] = field(default_factory=list[DraftModel])

    def __call__(self, target: NativeContext) -> Speculator:
        draft = NativeModel(self.path, model_params(EXACT, {}))
        context = NativeContext(draft, context_params(EXACT, self.sequences, draft.traits))
        self.opened.append(DraftModel.open(draft, context))
        return Speculator(target, lookup=False, model=self.opened[-1], always=True)


def bench(path: Path, drafts: Drafts) -> Bench:
    model = NativeModel(path, model_params(EXACT, {}))
    params = context_params(EXACT, SEQUENCES, model.traits)
    params.n_rs_seq = MAX_ROLLBACK
    context = NativeContext(model, params)
    pool = SequencePool(context, model.window, model.vocab.controls)
    updates: list[tuple[Job, Update]] = []
    speculator = drafts(context)
    scheduler = Scheduler(
        context, pool, lambda job, update: updates.append((job, update)), speculator
    )
    return Bench(model, context, scheduler, speculator, updates)


def job_for(
    prompt: list[int], sampling: Sampling = GREEDY, constraint: CompiledConstraint | None = None
) -> Job:
    return Job(len(prompt), list(prompt), sampling, lambda update: None, constraint)


@pytest.fixture(scope="module", params=["llama", "moe", "gemma", "lfm2", "qwen35"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Bench, Bench]]:
    """One that drafts nothing and one that drafts from the conversation, on one model."""
    path: Path = request.getfixturevalue(request.param)
    benches = bench(path, nothing), bench(path, lookup)
    yield benches
    for one in benches:
        one.close()


@pytest.fixture(scope="module")
def plain(llama: Path) -> Iterator[Bench]:
    opened = bench(llama, nothing)
    yield opened
    opened.close()


prompts = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).flatmap(
        lambda words: st.integers(1, 6).map(lambda times: words * times)
    ),
    min_size=1,
    max_size=4,
).map(lambda parts: [word for part in parts for word in part])


@given(
    prompts=st.lists(prompts, min_size=1, max_size=SEQUENCES),
    sampling=st.sampled_from([GREEDY, ANYTHING, STUCK]),
    seed=st.integers(0, 1000),
    max_tokens=st.integers(1, 40),
)
@hypothesis_settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_answers_are_the_same_with_and_without(
    pair: tuple[Bench, Bench],
    prompts: list[list[int]],
    sampling: Sampling,
    seed: int,
    max_tokens: int,
) -> None:
    """Drafts of different lengths for several requests at once, greedy and with a seed."""
    sampling = Sampling(seed=seed).over(sampling)
    without, ahead = pair
    expected = without.answer(*(job_for(p, sampling) for p in prompts), max_tokens=max_tokens)
    jobs = [job_for(p, sampling) for p in prompts]
    assert ahead.answer(*jobs, max_tokens=max_tokens) == expected
    assert all(job.accepted_tokens <= job.drafted_tokens for job in jobs)


def test_each_token_has_its_own_log_probability(pair: tuple[Bench, Bench]) -> None:
    without, ahead = pair
    told: list[list[float]] = []
    for one in (without, ahead):
        job = job_for([30, 31, 32] * 4, Sampling(logprobs=1).over(STUCK))
        tokens = one.answer(job)[0]
        texts = [u for j, u in one.updates if j is job and isinstance(u, Text)]
        logprobs = [u.logprob for u in texts if u.logprob is not None]
        assert [p.piece for p in logprobs] == [one.model.vocab.piece(t) for t in tokens]
        told.append([p.logprob for p in logprobs])
    assert job.accepted_tokens > 0
    assert told[0] == pytest.approx(told[1], abs=1e-4)


def test_a_repetition_is_drafted_and_takes_fewer_steps(pair: tuple[Bench, Bench]) -> None:
    without, ahead = pair
    steps: list[int] = []
    for one in (without, ahead):
        job = job_for([30, 31, 32], STUCK)
        before = one.context.decoded_batches
        one.answer(job, max_tokens=200)
        steps.append(one.context.decoded_batches - before)
    assert job.accepted_tokens > 100
    assert steps[1] < steps[0] / 2
    stats = job.stats(1)
    assert (stats.drafted_tokens, stats.accepted_tokens) == (
        job.drafted_tokens,
        job.accepted_tokens,
    )


def test_what_was_rejected_is_forgotten(pair: tuple[Bench, Bench]) -> None:
    """The next request starts from exactly what was said."""
    without, ahead = pair
    answers: list[tuple[int, ...]] = []
    for one in (without, ahead):
        first = job_for([31, 40, 31, 40, 31, 40, 31])
        one.answer(first, max_tokens=25)
        second = job_for([*first.tokens, 30, 32])
        answers += one.answer(second)
        assert second.cached_tokens == len(first.tokens) - 1
    assert answers[0] == answers[1]


def test_stop_strings_and_grammars_hold(pair: tuple[Bench, Bench]) -> None:
    without, ahead = pair
    whole = job_for([30, 31, 32, 30, 31, 32])
    without.answer(whole, max_tokens=60)
    said = without.text(whole)
    stopping = Sampling(temperature=0.0, stop=(said[30:34],))
    listing = held_to("root ::= [ab]{200}", without.model.vocab)
    for sampling, constraint in ((stopping, None), (GREEDY, listing)):
        jobs = [job_for([30, 31, 32, 30, 31, 32], sampling, constraint) for _ in range(2)]
        (expected,), (found,) = without.answer(jobs[0]), ahead.answer(jobs[1])
        assert found == expected
        assert ahead.text(jobs[1]) == without.text(jobs[0])
    assert jobs[1].drafted_tokens > 0


@pytest.mark.parametrize("seed", [0, 1])
def test_a_draft_model_changes_nothing_either(plain: Bench, tmp_path: Path, seed: int) -> None:
    """The model's own twin is always right, another one nearly never."""
    asking = Asking(write_llama(tmp_path / "draft.gguf", seed=seed))
    path = write_llama(tmp_path / "target.gguf")
    ahead = bench(path, asking)
    for length in (1, 5, 200):  # more than the draft model may be behind
        prompts = [[30 + number] * length + [40, 41 + number] for number in range(SEQUENCES)]
        expected = plain.answer(*map(job_for, prompts))
        jobs = [job_for(prompt) for prompt in prompts]
        assert ahead.answer(*jobs) == expected
        drafted, accepted = (
            sum(job.drafted_tokens for job in jobs),
            sum(job.accepted_tokens for job in jobs),
        )
        assert drafted > 0
        assert accepted == drafted if seed == 0 else accepted < drafted / 2
    ahead.close()


def test_a_draft_model_whose_memory_is_full_starts_again(plain: Bench, llama: Path) -> None:
    asking = Asking(llama)
    ahead = bench(llama, asking)
    prompts = [[30 + number] * 150 for number in range(SEQUENCES)]  # 512 cells for 3 * 190
    expected = plain.answer(*map(job_for, prompts))
    assert ahead.answer(*map(job_for, prompts)) == expected
    ahead.close()


@pytest.mark.parametrize("kind", ["mamba", "hybrid"])
def test_memory_that_cannot_forget_is_left_alone(kind: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(kind)
    one = bench(path, lookup)
    job = job_for([30, 31, 32] * 5)
    one.answer(job, max_tokens=60)
    assert job.drafted_tokens == 0
    one.close()
    engine = Engine.load(path, EXACT, Concurrency(), lambda job, update: None)
    assert engine.speculator is None
    engine.close()
    with pytest.raises(ModelLoadError, match="can't draft"):
        Asking(path)(one.context)


@pytest.mark.parametrize("kind", ["lfm2", "qwen35"])
def test_states_that_forget_take_part_of_the_weights(
    kind: str, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(kind)
    rollbacks: list[int] = []
    for sequences in (1, 100):
        engine = Engine.load(path, EXACT, Concurrency(sequences), lambda job, update: None)
        rollbacks.append(engine.context.rollback)
        assert (engine.speculator is not None) == (rollbacks[-1] > 0)
        engine.close()
    off = settings(speculation="off")
    engine = Engine.load(path, off, Concurrency(), lambda job, update: None)
    assert engine.context.rollback == 0
    engine.close()
    assert rollbacks[0] > 0
    assert rollbacks[1] == 0


@pytest.mark.parametrize("kind", ["lfm2", "qwen35"])
def test_a_state_that_was_rolled_back_is_shared(kind: str, request: pytest.FixtureRequest) -> None:
    with opened(request.getfixturevalue(kind)) as room:
        prompt = [30, 31, 32, 40] * 5
        sequence, _, _ = room.run(prompt)
        drafted = [50, 51, 52]
        room.context.decode([Span(sequence.id, len(prompt), drafted, wants_logits=True)])
        room.pool.mirror.extend(sequence, drafted, len(drafted) - 1)
        room.pool.mirror.trim(sequence, len(prompt) + 1)
        longer = [*prompt, 50, 60]
        logits, cached = room.finish(longer)
        assert cached == len(prompt) + 1
        room.context.decode([Span(sequence.id, cached, [60], wants_logits=True)])
        own_logits = room.context.logits(0, room.model.vocab.size)
        expected = room.fresh(longer)
        assert difference(logits, expected) < TOLERANCE
        assert difference(own_logits, expected) < TOLERANCE


async def test_another_vocabulary_is_refused_by_name(llama: Path) -> None:
    with pytest.raises(ModelLoadError, match="vocabulary is not the model's"):
        async with loaded(PUP, draft_model=str(llama)):
            raise AssertionError
    with pytest.raises(ModelLoadError, match="nowhere"):
        async with loaded(PUP, draft_model="nowhere"):
            raise AssertionError
    with pytest.raises(ModelLoadError, match="draft_model"):
        async with loaded(PUP, speculation="draft"):
            raise AssertionError


QUESTIONS = ["Hello", "What is in src?", "Hello", "Who are you?", "Who are you?"]


async def talk(**values: Any) -> tuple[list[str], str]:
    """Pup's answers to the questions, and all that was shown of them."""
    recorder = Recorder()
    async with loaded(PUP, parallel=1, **values) as backend:
        session = conversation(tools=True)
        return [await ask(backend, session, q, recorder) for q in QUESTIONS], recorder.text


@pytest.fixture(scope="module")
def without() -> tuple[list[str], str]:
    """What Pup says without drafts."""
    with ThreadPoolExecutor(1) as thread:  # this one's loop may be running
        return thread.submit(asyncio.run, talk(speculation="off")).result()


@pytest.mark.parametrize(
    "values",
    [{"speculation": "lookup"}, {"speculation": "draft", "draft_model": str(PUP)}, {}],
)
async def test_pup_says_the_same_by_every_setting(
    values: dict[str, str], without: tuple[list[str], str]
) -> None:
    assert await talk(**values) == without
