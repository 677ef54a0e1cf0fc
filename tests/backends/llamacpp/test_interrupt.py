"""A long step of a prompt ends when a request comes, and nothing is lost but its time."""

import asyncio
import time
from collections.abc import Iterator, Sequence

import pytest

from shepherd.backends.inprocess.answer import Finished
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.llamacpp.native.context import (
    ABORTED,
    DECODED,
    Interrupt,
    NativeContext,
    Span,
)
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.sampling.candidates import logits_row
from shepherd.backends.llamacpp.scheduling.job import Account, Post
from shepherd.backends.llamacpp.worker import Worker
from shepherd.backends.tenant import Tenant, TenantKind
from tests.backends.llamacpp.support import EXACT, PUP, settings
from tests.backends.llamacpp.test_worker import engine_with, job_for, last
from tests.patience import PATIENCE

LONG = [30 + number % 900 for number in range(300)]
SHORT = LONG[:20]


@pytest.fixture(scope="module")
def model() -> Iterator[NativeModel]:
    model = NativeModel(PUP, model_params(settings(), {}))
    yield model
    model.close()


@pytest.fixture
def context(model: NativeModel) -> Iterator[NativeContext]:
    own = settings(**EXACT, context_size=512)
    context = NativeContext(model, context_params(own, 1, model.traits))
    yield context
    context.close()


def rest() -> list[Span]:
    """The long prompt behind the short one."""
    return [Span(0, len(SHORT), LONG[len(SHORT) :], True)]


def logits(context: NativeContext, model: NativeModel) -> bytes:
    assert context.decode([Span(0, 0, SHORT, False)]) == DECODED
    assert context.decode(rest(), context.interrupt) == DECODED
    return logits_row(context, len(LONG) - len(SHORT) - 1, model.vocab.size).tobytes()


def test_the_memory_is_as_before_an_interrupted_batch(
    context: NativeContext, model: NativeModel
) -> None:
    expected = logits(context, model)
    context.remove(0, 0)
    assert context.decode([Span(0, 0, SHORT, False)]) == DECODED
    context.interrupt.set()
    assert context.decode(rest(), context.interrupt) == ABORTED
    assert context.last_position(0) == len(SHORT) - 1
    context.interrupt.clear()
    assert context.decode(rest(), context.interrupt) == DECODED
    row = logits_row(context, len(LONG) - len(SHORT) - 1, model.vocab.size)
    assert row.tobytes() == expected


def test_other_batches_are_not_interrupted(context: NativeContext) -> None:
    context.interrupt.set()
    assert context.decode([Span(0, 0, SHORT, False)]) == DECODED
    assert context.decode(rest(), context.interrupt) == ABORTED
    assert context.decode(rest()) == DECODED


class PatientContext(NativeContext):
    """A real context whose first long step waits until it is interrupted."""

    begun = 0
    codes: list[int]

    def decode(self, spans: Sequence[Span], interrupt: Interrupt | None = None) -> int:
        waits = interrupt is not None and not self.begun and len(spans[0].tokens) > len(SHORT)
        if waits:
            self.begun += 1
            end = time.monotonic() + PATIENCE
            while not self.interrupt.is_set:
                assert time.monotonic() < end, "nothing has interrupted the step"
                time.sleep(0.001)
        code = super().decode(spans, interrupt)
        if waits:
            self.codes = [code]
        return code


async def answer_of(worker: Worker, tokens: list[int]) -> tuple[int, ...]:
    job, mailbox = job_for(tokens)
    worker.submit(job)
    worker.start(job, 4)
    update = await last(mailbox)
    assert isinstance(update, Finished)
    return update.tokens


@pytest.mark.parametrize("by", ["request", "cancel", "release"])
async def test_what_comes_during_a_step_does_not_wait_for_it(by: str) -> None:
    def load(post: Post, _wake: object) -> Engine:
        return engine_with(PatientContext, PUP, post)

    worker = Worker(load)
    engine = await asyncio.wrap_future(worker.loaded)
    context = engine.context
    assert isinstance(context, PatientContext)
    job, mailbox = job_for(LONG)
    worker.submit(job)
    worker.start(job, 4)
    async with asyncio.timeout(PATIENCE):
        while not context.begun:
            await asyncio.sleep(0.001)
    if by == "cancel":
        worker.cancel(job)
    elif by == "release":
        worker.release(job)
    assert await answer_of(worker, SHORT)
    assert context.codes == [ABORTED]
    if by == "request":
        first = await last(mailbox)
        assert isinstance(first, Finished)
        assert first.tokens == await answer_of(worker, LONG)
    await asyncio.to_thread(worker.stop)


class SharedContext(NativeContext):
    """A real context whose first step of two prompts waits until a command has come."""

    commands = 0
    codes: list[int]

    def decode(self, spans: Sequence[Span], interrupt: Interrupt | None = None) -> int:
        waits = not self.commands and len(spans) > 1
        if waits:
            self.interrupt.clear()  # that of the second prompt
            self.commands = 1
            end = time.monotonic() + PATIENCE
            while not self.interrupt.is_set:
                assert time.monotonic() < end, "no command has come"
                time.sleep(0.001)
            time.sleep(0.01)  # `urgent` is set after it
        code = super().decode(spans, interrupt)
        if waits:
            self.codes = [code]
        return code


@pytest.mark.parametrize("kind", [TenantKind.INTERACTIVE, TenantKind.AGENT, TenantKind.BATCH])
async def test_only_a_person_waits_for_no_step_of_others(kind: TenantKind) -> None:
    worker = Worker(lambda post, _: engine_with(SharedContext, PUP, post))
    engine = await asyncio.wrap_future(worker.loaded)
    assert isinstance(engine.context, SharedContext)
    longs = LONG, LONG[::-1]
    answers = [asyncio.create_task(answer_of(worker, tokens)) for tokens in longs]
    async with asyncio.timeout(PATIENCE):
        while not engine.context.commands:
            await asyncio.sleep(0.001)
    job, mailbox = job_for(SHORT)
    job.account = Account(Tenant("someone", kind=kind))
    worker.submit(job)
    worker.start(job, 4)
    assert isinstance(await last(mailbox), Finished)
    assert engine.context.codes == [ABORTED if kind is TenantKind.INTERACTIVE else DECODED]
    for answer, tokens in zip(answers, longs, strict=True):  # nothing of the others is lost
        assert await answer == await answer_of(worker, tokens)
    await asyncio.to_thread(worker.stop)


async def test_a_closed_engine_does_not_wait_for_a_step() -> None:
    worker = Worker(lambda post, _: engine_with(PatientContext, PUP, post))
    engine = await asyncio.wrap_future(worker.loaded)
    assert isinstance(engine.context, PatientContext)
    job, mailbox = job_for(LONG)
    worker.submit(job)
    async with asyncio.timeout(PATIENCE):
        while not engine.context.begun:
            await asyncio.sleep(0.001)
    await asyncio.to_thread(worker.stop)
    await last(mailbox)
    assert engine.context.codes == [ABORTED]


class WatchedContext(NativeContext):
    """A real context that keeps which of its batches could be interrupted, and their tokens."""

    def __init__(self, model: NativeModel, params: object) -> None:
        super().__init__(model, params)
        self.batches: list[tuple[bool, int]] = []

    def decode(self, spans: Sequence[Span], interrupt: Interrupt | None = None) -> int:
        self.batches.append((interrupt is not None, sum(len(span.tokens) for span in spans)))
        return super().decode(spans, interrupt)


@pytest.mark.parametrize("rows", [1, 2])
async def test_the_padded_steps_of_deterministic_answers_stay_short(rows: int) -> None:
    """A padded batch is not interrupted, so a request would wait for a long one."""
    worker = Worker(lambda post, _: engine_with(WatchedContext, PUP, post))
    engine = await asyncio.wrap_future(worker.loaded)
    assert isinstance(engine.context, WatchedContext)
    engine.context.pad_to(rows)
    assert await answer_of(worker, LONG)
    await asyncio.to_thread(worker.stop)
    prompt = [batch for batch in engine.context.batches if batch[1] > rows]
    assert any(interruptible for interruptible, _ in prompt) is (rows == 1)
