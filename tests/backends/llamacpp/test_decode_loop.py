"""A step of many batches gives the answers of many steps of one batch."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.backends.inprocess.answer import Finished, Text, Update
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.scheduling.answers import MAX_RUN_SECONDS
from shepherd.backends.llamacpp.scheduling.job import Job, Phase
from shepherd.backends.llamacpp.scheduling.scheduler import Scheduler
from shepherd.events import FinishReason
from shepherd.sampling import Sampling
from tests.backends.llamacpp.support import settings

EXACT = settings(flash_attention="off", cache_type_k="f32", cache_type_v="f32")
ENDLESS = Sampling(temperature=0.9, seed=3, ignore_eos=True)


class Engine:
    """A scheduler that is stepped by hand, and its updates.

    Its clock goes on by `tick` with each look at it, so that a slow machine changes nothing.
    """

    def __init__(self, path: Path) -> None:
        self.tick = self._now = 0.0
        self.model = NativeModel(path, model_params(EXACT, {}))
        params = context_params(EXACT, 3, self.model.traits)
        self.context = NativeContext(self.model, params, self._clock)
        self.pool = SequencePool(self.context, self.model.window)
        self.updates: list[tuple[Job, Update]] = []
        self.scheduler = Scheduler(self.context, self.pool, self._post)

    def begin(self, *requests: tuple[Sampling, int]) -> list[Job]:
        self.updates.clear()
        jobs: list[Job] = []
        for sampling, max_tokens in requests:
            prompt = [30, 40, 50]
            jobs.append(Job(len(prompt), prompt, sampling, lambda _: None))
            self.scheduler.queue.submit(jobs[-1])
            self.scheduler.start(jobs[-1], max_tokens)
        while any(job.phase is not Phase.GENERATING for job in jobs):
            self.scheduler.step()
        return jobs

    def answers(self, *requests: tuple[Sampling, int], is_quiet: bool) -> list[tuple[object, ...]]:
        """Text, tokens and end of each answer."""
        jobs = self.begin(*requests)
        while not self.scheduler.queue.idle:
            self.scheduler.step(lambda: is_quiet)
        return [(self.text(job), end.tokens, end.reason, end.stop_string)
                for job in jobs for end in [self.end(job)]]  # fmt: skip

    def _clock(self) -> float:
        self._now += self.tick
        return self._now

    def _post(self, job: Job, update: Update) -> None:
        self.updates.append((job, update))

    def text(self, job: Job) -> str:
        return "".join(u.text for j, u in self.updates if j is job and isinstance(u, Text))

    def texts(self, job: Job) -> int:
        return sum(j is job and isinstance(u, Text) for j, u in self.updates)

    def end(self, job: Job) -> Finished:
        (end,) = [u for j, u in self.updates if j is job and isinstance(u, Finished)]
        return end

    def close(self) -> None:
        self.context.close()
        self.model.close()


@pytest.fixture(scope="module")
def engine(llama: Path) -> Iterator[Engine]:
    opened = Engine(llama)
    yield opened
    opened.close()


def test_all_batches_of_a_step_give_the_answers_of_single_steps(engine: Engine) -> None:
    whole = engine.answers((ENDLESS, 60), is_quiet=False)[0][0]
    assert isinstance(whole, str)
    stop = Sampling(stop=(whole[30:34],)).over(ENDLESS)
    requests = [(ENDLESS, 60), (stop, 60), (Sampling(logprobs=2).over(ENDLESS), 25)]
    single = engine.answers(*requests, is_quiet=False)
    assert engine.answers(*requests, is_quiet=True) == single
    assert [answer[2] for answer in single] == [
        FinishReason.LENGTH, FinishReason.STOP, FinishReason.LENGTH,
    ]  # fmt: skip


def test_a_step_joins_the_text_of_its_batches(engine: Engine) -> None:
    job, measured = engine.begin((ENDLESS, 40), (Sampling(logprobs=0).over(ENDLESS), 40))
    engine.scheduler.step(lambda: True)
    assert engine.scheduler.queue.idle
    assert engine.texts(job) == 2  # that of the first token, and the rest
    assert engine.texts(measured) == 40


def test_a_step_ends_after_the_batch_in_which_something_else_arrives(engine: Engine) -> None:
    (job,) = engine.begin((ENDLESS, 100))
    before = job.generated
    quiet = iter([True, True, False])
    engine.scheduler.step(lambda: next(quiet))
    assert job.generated == before + 3
    assert job.sequence is not None
    assert len(job.sequence.tokens) == len(job.tokens) - 1
    job.cancelled = True
    engine.scheduler.step(lambda: True)
    assert engine.end(job).reason is FinishReason.CANCELLED
    assert len(engine.end(job).tokens) == before + 3


def test_text_that_nobody_reads_before_the_end_comes_with_it(engine: Engine) -> None:
    sampling = [ENDLESS, Sampling(logprobs=1).over(ENDLESS)]
    early = engine.answers(*((each, 30) for each in sampling), is_quiet=False)
    held, measured = engine.begin(*((each, 30) for each in sampling))
    held.holds_text = held.joins_text
    for number, job in enumerate((held, measured)):
        job.has_text = True
        assert job.holds_text == (number == 0)
    before = engine.texts(held)
    while held.phase is not Phase.DONE:
        assert engine.texts(held) == before
        engine.scheduler.step()
    while not engine.scheduler.queue.idle:
        engine.scheduler.step()
    assert engine.texts(held) == before + 1
    assert [engine.text(held), engine.text(measured)] == [answer[0] for answer in early]


def test_only_answers_that_nobody_reads_before_the_end_may_run_for_long(llama: Path) -> None:
    engine = Engine(llama)
    engine.tick = MAX_RUN_SECONDS
    held, read = engine.begin((ENDLESS, 40), (ENDLESS, 20))
    held.holds_text = held.has_text = True
    before = held.generated
    engine.scheduler.step(lambda: True)
    assert held.generated == before + 1
    read.cancelled = True
    engine.scheduler.step(lambda: True)
    assert held.generated > before + 3
    assert held.phase is not Phase.DONE, "it does not run for ever"
    engine.close()
