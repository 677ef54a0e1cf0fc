"""A client that hangs up stops the work, wherever it is, and the slot is free again."""

import asyncio
import socket
from collections.abc import Mapping, MutableMapping
from typing import Any

import httpx
import openai
import pytest

from shepherd.server.responses import while_connected
from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer, ask
from tests.server.held import HeldBackend

STREAM: dict[str, Any] = {"messages": HI, "stream": True}
WHOLE: dict[str, Any] = {"messages": HI}


@pytest.mark.parametrize("body", [STREAM, WHOLE])
@pytest.mark.parametrize("phase", ["prefill", "generation"])
def test_hanging_up_frees_the_slot(body: dict[str, Any], phase: str) -> None:
    backend = HeldBackend(hold_prefill=phase == "prefill", hold_generation=phase == "generation")
    with RunningServer(backend) as server:
        with server.connect_and_post(body) as connection:
            server.until(lambda: backend.working == 1)
            if phase == "generation" and body is STREAM:
                assert b"200 OK" in connection.recv(65_536)
            assert backend.stopped == 0
        server.until(lambda: backend.stopped == 1)
        server.until(lambda: backend.holding == backend.working == 0)
        backend.hold_prefill = backend.hold_generation = False
        with server.client() as client:
            assert ask(client).choices[0].message.content == "done"


def test_hanging_up_while_waiting_in_the_queue() -> None:
    backend = HeldBackend(hold_prefill=True)
    with RunningServer(backend) as server, server.connect_and_post(WHOLE) as first:
        server.until(lambda: backend.working == 1)
        for body in (STREAM, WHOLE):
            with server.connect_and_post(body):
                server.until(lambda: backend.queued == 1)
            server.until(lambda: backend.queued == 0)
        assert (backend.working, backend.stopped) == (1, 0)
        server.do(_set(backend))
        assert b"200 OK" in first.recv(65_536)


async def _set(backend: HeldBackend) -> None:
    backend.go.set()


async def test_a_client_that_leaves_as_the_work_ends_is_no_error() -> None:
    moment, problems = asyncio.Event(), list[Mapping[str, Any]]()

    async def receive() -> MutableMapping[str, Any]:
        await moment.wait()
        return {"type": "http.disconnect"}

    async def work() -> str:
        await moment.wait()
        await asyncio.sleep(0)  # it ends when the other task has ended, and nobody knows it yet
        return "done"

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: problems.append(context))
    answering = asyncio.create_task(while_connected(receive, work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    moment.set()
    assert await answering == "done"
    await asyncio.sleep(0)
    assert problems == []


def test_client_that_times_out_stops_the_work() -> None:
    backend = HeldBackend(hold_prefill=True)
    with RunningServer(backend) as server, server.client() as client:
        seconds = 0.3
        while not backend.begun:  # until the server came to it in time
            with pytest.raises(openai.APITimeoutError):
                ask(client, timeout=seconds)
            seconds *= 2
        server.until(lambda: backend.stopped == backend.begun)


def test_silence_is_filled_with_comments() -> None:
    backend = HeldBackend(hold_generation=True)
    with (
        RunningServer(backend, ServerSettings.model_construct(port=0, keepalive=0.02)) as server,
        httpx.stream("POST", server.url + CHAT, json=STREAM, timeout=PATIENCE) as response,
    ):
        lines = response.iter_lines()
        seen = [next(lines) for _ in range(8)]
        server.do(_set(backend))
        rest = list(lines)
    assert seen.count(": keep-alive") >= 2
    assert "data: [DONE]" in rest


def test_headers_come_when_the_first_text_takes_long() -> None:
    class Silent(HeldBackend):
        async def generate_from_prefilled(self, *args: Any, **options: Any) -> Any:
            await self._work(held=True)
            return await super().generate_from_prefilled(*args, **options)

    backend = Silent()
    with (
        RunningServer(backend, ServerSettings.model_construct(port=0, keepalive=0.02)) as server,
        httpx.stream("POST", server.url + CHAT, json=STREAM, timeout=PATIENCE) as response,
    ):
        lines = response.iter_lines()
        assert response.status_code == 200
        assert next(lines) == ": keep-alive"
        server.do(_set(backend))
        text = [line for line in lines if line.startswith("data: ")]
    assert '"role":"assistant"' in text[0]
    assert text[-1] == "data: [DONE]"


def test_body_that_breaks_off_leaves_the_server_well() -> None:
    backend = HeldBackend()
    with RunningServer(backend) as server:
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        head += "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as sock:
            sock.sendall(head.encode())
        with server.client() as client:
            assert ask(client).choices[0].message.content == "done"
    assert backend.closed
