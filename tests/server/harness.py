"""A real server in a thread, and requests to it."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from shepherd.backends.base import Backend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.access.keys import Keys
from shepherd.server.agent.agent import Agent
from shepherd.server.api import Api
from shepherd.server.app import APIS, Offer, ServerApp, create_app
from shepherd.server.listen import bind
from shepherd.server.operation.traces import Traces
from shepherd.server.pool.pool import ModelPool
from shepherd.server.settings import ServerSettings
from shepherd.server.transport.tls import ServerTls
from shepherd.server.transport.uvicorn_server import DrainingServer
from shepherd.tools.runner import ToolRunner
from tests.patience import PATIENCE

T = TypeVar("T")
B = TypeVar("B", bound=Backend | ModelPool)

observers: list[Callable[[ServerApp], Any]] = []
"""Each gets the application of every server that starts, and returns the one to serve instead."""

HI: list[Any] = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"


def chat_request(body: dict[str, Any]) -> bytes:
    """The bytes of a chat request."""
    data = json.dumps(body).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


class RunningServer(Generic[B]):
    """Serves a backend on 127.0.0.1 for as long as the context is entered."""

    def __init__(
        self,
        backend: B,
        settings: ServerSettings | None = None,
        keys: Keys | None = None,
        tools: ToolRunner | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        apis: Sequence[Api] = APIS,
        agent: Agent | None = None,
        traces: Traces | None = None,
    ) -> None:
        """`loop` is the one that the backend was loaded on, if it matters."""
        self.backend = backend
        self._settings = settings or ServerSettings(port=0)
        self._sock = bind(self._settings)
        self.port: int = self._sock.getsockname()[1]
        offer = Offer(tools, agent, apis)
        self.app: ServerApp = create_app(backend, self._settings, keys, offer, traces=traces)
        for observed in observers:
            self.app = observed(self.app)
        tls = None if self._settings.tls is None else ServerTls(self._settings.tls)
        self._server = DrainingServer(self.app, settings=self._settings, tls=tls)
        self._loop = loop or asyncio.new_event_loop()
        self._started = threading.Event()
        self._serving: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        scheme = "http" if self._settings.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(PATIENCE)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._halt)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the server's loop."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(PATIENCE)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds on the server's loop; fails when it takes far too long."""

        async def wait() -> None:
            async with asyncio.timeout(PATIENCE - 1):
                while not condition():
                    await asyncio.sleep(0.005)

        self.do(wait())

    def client(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    def raw(self, sent: bytes) -> bytes:
        """Send bytes, and read until the server closes, be it before it has read them all."""
        received = bytearray()
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as sock:
            with suppress(ConnectionResetError, BrokenPipeError):
                sock.sendall(sent)
            with suppress(ConnectionResetError):
                while chunk := sock.recv(65_536):
                    received += chunk
        return bytes(received)

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._server.server_state.connections)

    @property
    def tasks(self) -> int:
        """Requests that are being answered."""
        return len(self._server.server_state.tasks)

    def connect(self) -> socket.socket:
        """A connection over which nothing was sent yet."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def connect_and_post(self, body: dict[str, Any]) -> socket.socket:
        """A connection over which a request was sent and nothing was read yet."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        sock.sendall(chat_request(body))
        return sock

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    def _halt(self) -> None:
        """End at once; uvicorn looks every tenth of a second, and then waits for another one."""
        self._server.end(force=True)
        if self._serving is not None:
            self._serving.cancel()

    async def _serve(self) -> None:
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._sock]))
        while not self._server.started:
            await asyncio.sleep(0.005)
        self._started.set()
        with suppress(asyncio.CancelledError):
            await self._serving
        for listener in self._server.servers:
            listener.close()
            await listener.wait_closed()
        await self._server.end_requests()
        await self.backend.aclose()


Scripted: TypeAlias = RunningServer[ScriptedBackend]


def scripted(script: str, settings: ServerSettings | None = None) -> Scripted:
    """A server of a scripted backend."""
    return RunningServer(ScriptedBackend(parse_script(script)), settings)


def ask(client: openai.OpenAI, **options: Any) -> ChatCompletion:
    """A whole answer; says hi if `options` has no messages."""
    given: Any = {"model": "gpt-4", "messages": HI} | options
    completions: Any = client.chat.completions
    answer: ChatCompletion = completions.create(**given)
    return answer


def stream(client: openai.OpenAI, **options: Any) -> list[ChatCompletionChunk]:
    """A streamed answer."""
    given: Any = {"model": "gpt-4", "messages": HI, "stream": True} | options
    completions: Any = client.chat.completions
    chunks: Iterable[ChatCompletionChunk] = completions.create(**given)
    return list(chunks)


def joined(chunks: list[ChatCompletionChunk]) -> str:
    """The content of a stream."""
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
