"""The ends of an engine: closed while it works, broken, left behind."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from shepherd.backends.inprocess.answer import Failed, Finished, Ready, Update
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.llamacpp.native.context import NO_ROOM, Interrupt, NativeContext, Span
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.scheduling.job import Job, Mailbox, Post
from shepherd.backends.llamacpp.scheduling.scheduler import Scheduler
from shepherd.backends.llamacpp.worker import Worker
from shepherd.errors import BackendError, BusyError, ModelLoadError
from shepherd.events import FinishReason
from shepherd.sampling import Sampling
from tests.backends.llamacpp.support import PUP, Recorder, ask, conversation, loaded, settings
from tests.patience import PATIENCE

PROMPT = [30, 40, 50, 60]
ENDLESS = Sampling(temperature=0.0, ignore_eos=True)


class BrokenError(Exception):
    """What a broken library might raise."""


class BreakingContext(NativeContext):
    """A real context that fails, once, at the decode number `breaks_at`."""

    breaks_at = -1
    fault: Exception = BrokenError("broken")

    def warm_up(self) -> None:
        """Would be a decode, or not, as there was time for it."""

    def decode(self, spans: Sequence[Span], interrupt: Interrupt | None = None) -> int:
        self.breaks_at -= 1
        if self.breaks_at == 0:
            raise self.fault
        return super().decode(spans, interrupt)


class CrowdedContext(NativeContext):
    """A real context that has no room for more than `most` tokens in memory."""

    most = 10**9

    def decode(self, spans: Sequence[Span], interrupt: Interrupt | None = None) -> int:
        used = sum(self.last_position(i) + 1 for i in range(self.sequences))
        if used + sum(len(span.tokens) for span in spans) > self.most:
            return NO_ROOM
        return super().decode(spans, interrupt)


def engine_with(kind: type[NativeContext], path: Path, post: Post, parallel: int = 2) -> Engine:
    model = NativeModel(path, model_params(settings(), {}))
    context = kind(model, context_params(settings(), parallel, model.traits))
    pool = SequencePool(context, model.window)
    return Engine(model, context, Scheduler(context, pool, post), settings())


def job_for(prompt: list[int]) -> tuple[Job, Mailbox]:
    mailbox = Mailbox()
    job = Job(len(prompt), list(prompt), Sampling(temperature=0.0), receive=mailbox.put)
    return job, mailbox


async def last(mailbox: Mailbox) -> Update:
    """The update that ends a job."""
    while True:
        for update in await mailbox.take():
            if isinstance(update, Finished | Failed):
                return update


async def test_closing_ends_running_and_waiting_requests_with_an_error() -> None:
    backend = await LlamaCppBackend.load(PUP, settings(), ENDLESS, parallel=1)
    first = Recorder()
    tasks = [
        asyncio.ensure_future(ask(backend, conversation(), "Hello", recorder))
        for recorder in (first, *(Recorder() for _ in range(4)))
    ]
    while not first.text:
        await asyncio.sleep(0.001)
    await backend.aclose()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert any(isinstance(result, BackendError) for result in results)
    assert all(isinstance(result, BackendError | str) for result in results)
    assert not backend.alive
    await backend.aclose()


async def test_a_closed_backend_says_so() -> None:
    async with loaded() as backend:
        session = conversation("Hello")
        prefilled = await backend.prefill_session(session, Recorder())
    for attempt in (
        backend.prefill_session(session, Recorder()),
        backend.generate_from_prefilled(prefilled, Recorder()),
        backend.count_message_tokens(session, session.messages[0]),
        backend.count_session_tokens(session),
    ):
        with pytest.raises(BackendError, match="closed"):
            await attempt


async def test_the_queue_has_an_end() -> None:
    async with loaded(max_queue=5) as backend:
        session = conversation("Hello")
        first = await backend.prefill_session(session, Recorder())
        waiting = [
            asyncio.ensure_future(backend.prefill_session(session, Recorder())) for _ in range(5)
        ]
        while backend.running < 6:
            await asyncio.sleep(0.001)
        with pytest.raises(BusyError):
            await backend.prefill_session(session, Recorder())
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        async with first:
            await backend.generate_from_prefilled(first, Recorder())
        assert backend.running == 0


async def test_requests_are_served_in_order() -> None:
    async with loaded() as backend:
        order: list[int] = []

        async def one(number: int) -> None:
            await ask(backend, conversation(), f"Hello {number}")
            order.append(number)

        await asyncio.gather(*(one(number) for number in range(4)))
        assert order == [0, 1, 2, 3]


@contextmanager
def held(worker: Worker) -> Generator[None]:
    """The thread takes note of what it is told, and begins with it behind the block."""
    go = threading.Event()
    worker._send(lambda _: _wait(go))  # pyright: ignore[reportPrivateUsage] - nothing else stops it
    try:
        yield
    finally:
        go.set()


def _wait(go: threading.Event) -> None:
    go.wait()


@pytest.mark.parametrize("breaks_at", [2, 3, 10])
async def test_a_thread_that_dies_tells_everyone(breaks_at: int, llama: Path) -> None:
    def load(post: Post, _wake: object) -> Engine:
        engine = engine_with(BreakingContext, llama, post)
        assert isinstance(engine.context, BreakingContext)
        engine.context.breaks_at = breaks_at
        return engine

    worker = Worker(load)
    await asyncio.wrap_future(worker.loaded)
    jobs = [job_for([*PROMPT, number]) for number in range(30, 34)]
    with held(worker):
        for job, _ in jobs:
            worker.submit(job)
            worker.start(job, 50)
    for _, mailbox in jobs:
        update = await last(mailbox)
        assert isinstance(update, Failed)
        assert "broken" in str(update.error)
    assert not worker.alive
    with pytest.raises(BackendError, match="broken"):
        worker.submit(job_for(PROMPT)[0])
    await asyncio.to_thread(worker.stop)


async def test_a_load_that_breaks_is_told(llama: Path) -> None:
    def load(post: Post, _wake: object) -> Engine:
        raise BrokenError("broken")

    worker = Worker(load)
    with pytest.raises(ModelLoadError, match="broken"):
        await asyncio.wrap_future(worker.loaded)
    await asyncio.to_thread(worker.stop)


async def test_a_load_that_is_cancelled_frees_what_it_loaded() -> None:
    before = threading.active_count()
    task = asyncio.ensure_future(LlamaCppBackend.load(PUP, settings()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert threading.active_count() <= before + 1


async def test_a_failed_batch_ends_only_its_requests(llama: Path) -> None:
    def load(post: Post, _wake: object) -> Engine:
        engine = engine_with(BreakingContext, llama, post)
        assert isinstance(engine.context, BreakingContext)
        engine.context.fault = BackendError("llama.cpp could not compute a batch (-3)")
        engine.context.breaks_at = 5
        return engine

    worker = Worker(load)
    engine = await asyncio.wrap_future(worker.loaded)
    job, mailbox = job_for(PROMPT)
    worker.submit(job)
    worker.start(job, 50)
    update = await last(mailbox)
    assert isinstance(update, Failed)
    assert "(-3)" in str(update.error)
    again, mailbox = job_for(PROMPT)
    worker.submit(again)
    worker.start(again, 8)
    finished = await last(mailbox)
    assert isinstance(finished, Finished)
    assert finished.reason in (FinishReason.LENGTH, FinishReason.STOP)
    assert finished.stats.cached_tokens == len(PROMPT) - 1
    await asyncio.to_thread(worker.stop)
    assert engine.scheduler.queue.jobs == []


async def test_when_memory_is_full_the_youngest_waits_and_says_the_same(llama: Path) -> None:
    prompts = [[number, *range(30, 60)] for number in range(30, 34)]
    alone = await _answers(CrowdedContext, llama, prompts, 10**9, together=False)
    crowded = await _answers(CrowdedContext, llama, prompts, 90, together=True)
    assert crowded == alone


async def _answers(
    kind: type[NativeContext], path: Path, prompts: list[list[int]], most: int, *, together: bool
) -> list[tuple[int, ...]]:
    def load(post: Post, _wake: object) -> Engine:
        engine = engine_with(kind, path, post, parallel=4 if together else 1)
        assert isinstance(engine.context, CrowdedContext)
        engine.context.most = most
        return engine

    worker = Worker(load)
    await asyncio.wrap_future(worker.loaded)
    jobs = [job_for(prompt) for prompt in prompts]
    for job, _ in jobs:
        worker.submit(job)
        worker.start(job, 40)
    answers: list[tuple[int, ...]] = []
    for _, mailbox in jobs:
        update = await last(mailbox)
        assert isinstance(update, Finished)
        answers.append(update.tokens)
    await asyncio.to_thread(worker.stop)
    return answers


async def test_a_parked_prompt_that_had_to_wait_goes_on(llama: Path) -> None:
    """The second job is put back while it is parked, and decoded again when there is room."""

    def load(post: Post, _wake: object) -> Engine:
        engine = engine_with(CrowdedContext, llama, post)
        assert isinstance(engine.context, CrowdedContext)
        engine.context.most = 90
        return engine

    worker = Worker(load)
    await asyncio.wrap_future(worker.loaded)
    first, first_mail = job_for(list(range(30, 60)))
    second, second_mail = job_for(list(range(40, 70)))
    for job, mailbox in ((first, first_mail), (second, second_mail)):
        worker.submit(job)
        assert Ready(0) in await mailbox.take()
    worker.start(first, 45)
    assert isinstance(await last(first_mail), Finished)
    worker.start(second, 5)
    finished = await last(second_mail)
    assert isinstance(finished, Finished)
    assert finished.stats.completion_tokens == len(finished.tokens) > 0
    await asyncio.to_thread(worker.stop)


async def test_a_backend_left_behind_ends_its_thread() -> None:
    before = set(threading.enumerate())
    backend = await LlamaCppBackend.load(PUP, settings())
    own = set(threading.enumerate()) - before
    assert own
    del backend
    gc.collect()
    async with asyncio.timeout(PATIENCE):
        while any(thread.is_alive() for thread in own):
            await asyncio.sleep(0.02)


def test_a_program_that_forgets_to_close_still_ends() -> None:
    program = (
        "import asyncio\n"
        "from shepherd.backends.llamacpp import LlamaCppBackend\n"
        "from tests.backends.llamacpp.support import *\n"
        "async def main():\n"
        "    global backend\n"
        "    backend = await LlamaCppBackend.load(PUP, settings())\n"
        "    await ask(backend, conversation(), 'Hello')\n"
        "    asyncio.ensure_future(ask(backend, conversation(), 'Hello'))\n"
        "    await asyncio.sleep(0.01)\n"
        "asyncio.run(main())\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        capture_output=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_importing_loads_no_native_library() -> None:
    program = "import sys, shepherd.backends.llamacpp; print('llama_cpp.llama_cpp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"False"


def test_the_short_import_leaves_the_package_as_it_is() -> None:
    program = (
        "from shepherd.backends.llamacpp.native.bindings import bindings\n"
        "lib = bindings()\n"
        "import llama_cpp\n"
        "assert llama_cpp.Llama and llama_cpp.llama_cpp is lib\n"
    )
    subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=2 * PATIENCE
    )
