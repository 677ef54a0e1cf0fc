"""One replica: the server's application over models of its own."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import cast

from starlette.types import ASGIApp, Message

from shepherd.affinity import Prefix
from shepherd.cli.deploy.arguments import DeployArguments
from shepherd.cli.deploy.request import ReplicaReply, ReplicaRequest, run_app, whole_reply
from shepherd.cli.request import load_settings
from shepherd.cli.serve.http import server_parts
from shepherd.config.providers.book import ProviderBook
from shepherd.config.settings import Config
from shepherd.conversation.model_choice import model_of_flags
from shepherd.errors import BackendError
from shepherd.server.operation.admin import READY_PATH
from shepherd.server.operation.lifecycle import Lifecycle
from shepherd.server.operation.log import logging_to_stderr
from shepherd.server.operation.metrics import Metrics
from shepherd.server.operation.request_log import RequestLog
from shepherd.server.run import models_service, tracing

STOP_ADVICE = "end `shepherd deploy ray` with Ctrl-C, or run `serve shutdown` in the cluster."
LIMITS_NAME = "limits.sqlite"
"""The file in which the replicas of one machine count against limits, beside the usage."""

_LIVE_STATES = (b'"ready"', b'"draining"', b'"stopping"')
_READY = ReplicaRequest(
    "GET", READY_PATH, READY_PATH.encode(), b"", [], None, "http", b"", Prefix()
)


def read_settings(arguments: DeployArguments) -> Config:
    """The settings of this machine, with those of the deployment on top; raises ConfigError."""
    directory = Path(arguments.directory) if arguments.directory else Path.cwd()
    return model_of_flags(load_settings(directory, os.environ, dict(arguments.settings)))


class Replica:
    """Serves requests once `check_health` has opened the models; `close` closes them."""

    def __init__(self, arguments: DeployArguments, name: str = "") -> None:
        self._arguments = arguments
        self._name = name
        self._app: ASGIApp | None = None
        self.unlogged: ASGIApp
        self._parts = AsyncExitStack()
        self._opening = asyncio.Lock()

    async def serve(self, request: ReplicaRequest) -> AsyncGenerator[list[Message]]:
        """The messages of an answer."""
        async for messages in run_app(await self._opened(), request):
            yield messages

    async def answer(self, request: ReplicaRequest) -> ReplicaReply:
        """The whole answer."""
        return await whole_reply(await self._opened(), request, self._name)

    async def check_health(self) -> None:
        """Raise BackendError if `/ready` says that the models can't answer.

        A replica that drains is healthy: another one in its place would take requests.
        """
        await self._opened()
        reply = await whole_reply(self.unlogged, _READY, self._name)
        if reply.status != 200 and not any(state in reply.body for state in _LIVE_STATES):
            raise BackendError(f"The replica is not ready: {reply.body.decode()[:200]}")

    async def close(self) -> None:
        """End the models."""
        await self._parts.aclose()

    async def _opened(self) -> ASGIApp:
        if self._app is None:
            async with self._opening:
                if self._app is None:
                    self._app = await self._open()
        return self._app

    async def _open(self) -> ASGIApp:
        read = partial(read_settings, self._arguments)
        config = read()
        cwd = Path(self._arguments.directory) if self._arguments.directory else Path.cwd()
        providers = ProviderBook.from_env(os.environ, None)
        enter = self._parts.enter_async_context
        insecure = self._arguments.insecure
        parts = await enter(server_parts(config, cwd, providers, read, insecure=insecure))
        if parts.settings.usage_file is not None:
            parts.settings.limits_file = parts.settings.usage_file.with_name(LIMITS_NAME)
        self._parts.enter_context(logging_to_stderr(as_json=parts.settings.json_log))
        service = await enter(
            models_service(
                parts.open_models,
                parts.settings,
                parts.keys,
                parts.tools,
                parts.agent,
                parts.reload,
            )
        )
        self.unlogged = service.app
        metrics = cast(Metrics, service.app.state.metrics)
        lifecycle = cast(Lifecycle, service.app.state.lifecycle)
        lifecycle.running = lambda: metrics.running
        lifecycle.stop_advice = STOP_ADVICE
        lifecycle.reload = None if service.reload is None else partial(service.reload, None)
        return RequestLog(service.app, metrics, self._parts.enter_context(tracing()))
