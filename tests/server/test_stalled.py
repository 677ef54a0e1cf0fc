"""What a server says of itself while the model's thread is stuck."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest

from shepherd.backends.inprocess.threads import Heartbeat
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.models import builtin_model
from tests.patience import PATIENCE
from tests.server.harness import RunningServer, ask

Engine = RunningServer[LlamaCppBackend]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    async def load() -> LlamaCppBackend:
        return await LlamaCppBackend.load(builtin_model(), LlamaCppSection(threads=1))

    loop = asyncio.new_event_loop()
    backend = loop.run_until_complete(load())
    monkeypatch.setattr("shepherd.backends.inprocess.threads.STALLED_AFTER", 0.3)
    with RunningServer(backend, loop=loop) as running:
        yield running


def hold_worker(backend: LlamaCppBackend, go: threading.Event) -> None:
    worker = backend._worker  # pyright: ignore[reportPrivateUsage] - nothing else can hold it up
    worker._send(lambda _: _wait(go))  # pyright: ignore[reportPrivateUsage] - as above


def hold_text(backend: LlamaCppBackend, go: threading.Event) -> None:
    text = backend._text  # pyright: ignore[reportPrivateUsage] - nothing else can hold it up
    text.post(_wait, go)


def _wait(go: threading.Event) -> None:
    go.wait(PATIENCE)


@pytest.mark.parametrize("hold", [hold_worker, hold_text])
def test_a_thread_that_gets_nowhere_is_unhealthy_until_it_goes_on(
    server: Engine, hold: Callable[[LlamaCppBackend, threading.Event], None]
) -> None:
    go = threading.Event()

    def status(path: str) -> int:
        return httpx.get(f"{server.url}{path}", timeout=PATIENCE).status_code

    with server.client() as client:
        ask(client, max_tokens=2)
        assert (status("/health"), status("/stats")) == (200, 200)
        hold(server.backend, go)
        server.until(lambda: server.backend._worker.stalled or server.backend._text.stalled)  # pyright: ignore[reportPrivateUsage] - what the routes report
        assert (status("/health"), status("/stats")) == (503, 503)
        assert server.backend.alive
        go.set()
        assert ask(client, max_tokens=2).choices
    assert (status("/health"), status("/stats")) == (200, 200)


def test_long_texts_and_prompts_do_not_wait_for_each_other(server: Engine) -> None:
    text = "word " * 20_000

    def tokens() -> list[int]:
        answer = httpx.post(f"{server.url}/tokenize", json={"content": text}, timeout=PATIENCE)
        numbers: list[int] = answer.json()["tokens"]
        return numbers

    go = threading.Event()
    hold_text(server.backend, go)
    numbers = tokens()  # while the thread for prompts is held
    body = {"tokens": numbers}
    whole = httpx.post(f"{server.url}/detokenize", json=body, timeout=PATIENCE)
    assert whole.json()["content"] == text
    go.set()
    stop = threading.Event()
    server.backend._long_texts.post(_wait, stop)  # pyright: ignore[reportPrivateUsage] - as above
    with server.client() as client:
        assert ask(client, max_tokens=2).choices
    stop.set()
    assert tokens() == numbers


def test_only_time_with_work_counts() -> None:
    now = [0.0]
    heart = Heartbeat(lambda: now[0])
    now[0] = 1000.0
    assert heart.silent == 0.0  # there was no work
    heart.beat()
    now[0] = 1029.0
    assert not heart.stalled
    now[0] = 1031.0
    assert heart.stalled
    heart.beat()
    assert not heart.stalled
    heart.rest()
    now[0] = 9999.0
    assert (heart.silent, heart.stalled) == (0.0, False)
    with heart.working():
        now[0] += 31.0
        assert heart.stalled
    assert not heart.stalled
