"""One replica: the server's application over models of its own."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, suppress
from functools import partial
from pathlib import Path

from starlette.types import ASGIApp, Message

from shepherd.cli.deploy.arguments import DeployArguments
from shepherd.cli.deploy.request import ReplicaReply, ReplicaRequest
from shepherd.cli.request import load_settings
from shepherd.cli.serve.http import server_parts
from shepherd.config import provider_book, settings
from shepherd.conversation.model_choice import model_of_flags
from shepherd.errors import BackendError
from shepherd.server.app import ServerApp
from shepherd.server.operation.admin import REASONS, server_status
from shepherd.server.operation.log import logging_to_stderr
from shepherd.server.run import Host, models_service, tracing
from shepherd.tasks import end_tasks

STOP_ADVICE = "end `shepherd deploy ray` with Ctrl-C, or run `serve shutdown` in the cluster."

HANG_UP_SECONDS = 5.0
"""The time that an application gets to end by itself after its client has left."""

BEAT_SECONDS = 3.0
"""A replica whose application is silent says after this time that it is there."""

_LIVE_STATES = ("ready", "loading", "draining", "stopping")


def read_settings(arguments: DeployArguments) -> settings.Config:
    """The settings of this machine, with those of the deployment on top; raises ConfigError."""
    directory = Path(arguments.directory or Path.cwd())
    return model_of_flags(load_settings(directory, os.environ, dict(arguments.settings)))


class Replica:
    """Serves requests once `check_health` has loaded the default model; `close` closes all."""

    def __init__(self, arguments: DeployArguments, name: str = "") -> None:
        self._arguments = arguments
        self._name = name
        self.app: ServerApp | None = None  # once its models are open
        self._parts = AsyncExitStack()  # what `close` closes
        self._one_opens = asyncio.Lock()

    async def serve(self, request: ReplicaRequest) -> AsyncGenerator[list[Message]]:
        """The messages of an answer."""
        async with aclosing(run_app(await self._opened(), request)) as batches:
            async for messages in batches:
                yield messages

    async def answer(self, request: ReplicaRequest) -> ReplicaReply:
        """The whole answer."""
        return await whole_reply(await self._opened(), request, self._name)

    async def check_health(self) -> None:
        """Raise BackendError if `/ready` says that the models can't answer.

        A replica that drains is healthy: another one in its place would take requests.
        """
        app = await self._opened()
        status = await server_status(app.context)
        if status not in _LIVE_STATES:
            raise BackendError(f"The replica is not ready: {REASONS[status]}")

    async def close(self) -> None:
        """End the models."""
        await self._parts.aclose()

    async def _opened(self) -> ServerApp:
        """The application, which the first use opens."""
        async with self._one_opens:  # the first request and Ray's health check may come together
            if self.app is None:
                self.app = await self._open()
            return self.app

    async def _open(self) -> ServerApp:
        """Open the models of this machine's settings, and load the default one.

        Ray waits for a replica's first health check before it sends requests, however long it
        takes; a model that loads later would fail the checks that follow.
        """
        read = partial(read_settings, self._arguments)  # again with each reload
        config = read()
        cwd = Path(self._arguments.directory or Path.cwd())
        providers = provider_book.ProviderBook.from_env(os.environ, None)
        enter = self._parts.enter_async_context
        insecure = self._arguments.insecure
        parts = await enter(server_parts(config, cwd, providers, read, insecure=insecure))
        log = self._parts.enter_context(logging_to_stderr(as_json=parts.settings.json_log))
        traces = self._parts.enter_context(tracing())
        host = Host(traces=traces, stop_advice=STOP_ADVICE, log=log)
        service = await enter(models_service(*parts, host))
        await service.load()
        return service.app


async def run_app(app: ASGIApp, request: ReplicaRequest) -> AsyncGenerator[list[Message]]:
    """The messages of an application's answer, those that are ready together; none as a beat.

    If the generator is closed or cancelled, the application sees that its client has left.
    """
    exchange = _Exchange(request.body)
    work = asyncio.ensure_future(app(request.scope(), exchange.receive, exchange.send))
    work.add_done_callback(lambda _: exchange.news.set())  # it may end without a last message
    try:
        while not work.done() or exchange.messages:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await exchange.news.wait()
            exchange.news.clear()
            messages, exchange.messages = exchange.messages, []
            yield messages
        await work
    finally:
        exchange.client_left.set()
        if not work.done():  # it ends by itself, or is cancelled
            await asyncio.wait({work}, timeout=HANG_UP_SECONDS)
            await end_tasks(work)


async def whole_reply(app: ASGIApp, request: ReplicaRequest, replica: str) -> ReplicaReply:
    """The answer of an application that ends by itself."""
    status, headers, body = 500, list[tuple[bytes, bytes]](), bytearray()
    async for messages in run_app(app, request):
        for message in messages:
            if message["type"] == "http.response.start":
                status, headers = message["status"], list(message.get("headers", ()))
            else:
                body += message.get("body", b"")
    return ReplicaReply(replica, status, headers, bytes(body))


class _Exchange:
    """The two ends of an application: its request, and the messages that it has sent."""

    def __init__(self, body: bytes) -> None:
        self.messages: list[Message] = []
        self.news = asyncio.Event()
        self.client_left = asyncio.Event()
        self._unread_body: bytes | None = body

    async def receive(self) -> Message:
        """The body at once, then nothing until the client leaves."""
        if self._unread_body is not None:
            body, self._unread_body = self._unread_body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.client_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Keep a message for `run_app`."""
        self.messages.append(message)
        self.news.set()
