"""Runs the server until a signal ends it."""

import gc
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from fastapi import FastAPI

from shepherd.backends.base import Backend
from shepherd.server.access.keys import Keys
from shepherd.server.agent.agent import Agent
from shepherd.server.app import create_app
from shepherd.server.listen import bound_sockets, start_listening, url_of
from shepherd.server.operation.draining import DrainingServer
from shepherd.server.operation.lifecycle import Lifecycle, Reloaded
from shepherd.server.operation.log import logging_to_stderr
from shepherd.server.operation.notify import Notifier
from shepherd.server.operation.traces import Traces
from shepherd.server.pool.pool import ModelPool
from shepherd.server.settings import ServerSettings
from shepherd.server.transport.tls import ServerTls
from shepherd.tools.runner import ToolRunner

logger = logging.getLogger("shepherd.server")

TOOLS_ARE_OPEN = (
    "Anybody who reaches this address may run tools: /v1/tools is open without a key; "
    "use --auth-mode json"
)

AGENT_IS_OPEN = (
    "Anybody who reaches this address may have the model run tools: no key is needed with "
    "--use-tools; use --auth-mode json"
)


def _nothing() -> None:
    """Do nothing at the first signal."""


@dataclass(frozen=True, slots=True)
class Service:
    """An application to serve, and the path of its base URL.

    `load` makes it ready while the port is open already, and returns the name to announce. `drain`
    is called at the first signal: it ends work that would never end by itself. `reload` reads the
    settings again, and replaces the certificate of the server.
    """

    app: FastAPI
    load: Callable[[], Awaitable[str]]
    path: str = "/v1"
    drain: Callable[[], None] = _nothing
    reload: Callable[[ServerTls | None], Awaitable[Reloaded]] | None = None


async def serve(
    open_models: Callable[[], Awaitable[Backend | ModelPool]],
    settings: ServerSettings,
    keys: Keys | None = None,
    tools: ToolRunner | None = None,
    agent: Agent | None = None,
    reload: Callable[[ModelPool, ServerTls | None], Awaitable[Reloaded]] | None = None,
) -> None:
    """Listen, load the default model, serve until SIGINT or SIGTERM, close the models.

    `open_models` loads no model of a pool. Requests are refused until the default one is loaded;
    the errors of that end the server and are raised. The first signal lets running requests finish,
    the second ends them. `reload` reads the settings of a server with a pool of models again.
    Raises ConfigError before the models are opened if the address is taken or not allowed, or if
    the key file can't be used.
    """
    dangers = [TOOLS_ARE_OPEN] if tools is not None else []
    if agent is not None:
        dangers.append(AGENT_IS_OPEN)
    danger = ". ".join(dangers)
    open_service = partial(models_service, open_models, settings, keys, tools, agent, reload)
    await serve_service(open_service, settings, keys, danger)


@asynccontextmanager
async def models_service(
    open_models: Callable[[], Awaitable[Backend | ModelPool]],
    settings: ServerSettings,
    keys: Keys | None = None,
    tools: ToolRunner | None = None,
    agent: Agent | None = None,
    reload: Callable[[ModelPool, ServerTls | None], Awaitable[Reloaded]] | None = None,
) -> AsyncGenerator[Service]:
    """The application of `serve`; opens the models, and closes them at the end."""
    models = await open_models()

    async def load() -> str:
        if not isinstance(models, Backend):
            await models.load_default()
        return (models if isinstance(models, Backend) else models.default).info.id

    try:
        app = create_app(models, settings, keys, tools, agent=agent)
        approvals = None if agent is None else agent.approvals
        drain = _nothing if approvals is None else approvals.close
        service = Service(app, load, drain=drain)
        if reload is not None and not isinstance(models, Backend):
            service = replace(service, reload=partial(reload, models))
        yield service
    finally:
        await models.aclose()


async def serve_service(
    open_service: Callable[[], AbstractAsyncContextManager[Service]],
    settings: ServerSettings,
    keys: Keys | None,
    danger: str = "",
) -> None:
    """`serve` for any application; `danger` is logged if it is served without keys."""
    tls = None if settings.tls is None else ServerTls(settings.tls)
    notifier = Notifier.from_env(os.environ)
    opening = bound_sockets(settings, authenticated=keys is not None)
    with opening as sockets, logging_to_stderr(as_json=settings.json_log):
        _warn_or_refuse(settings, keys, danger)
        async with open_service() as service:
            urls = " and ".join(url_of(settings, sock, service.path) for sock in sockets)
            with tracing() as traces:
                server = DrainingServer(
                    service.app,
                    drain=service.drain,
                    settings=settings,
                    tls=tls,
                    traces=traces,
                )
                server.load = partial(_load, service, urls)
                lifecycle = cast(Lifecycle, service.app.state.lifecycle)
                lifecycle.addresses = [url_of(settings, sock, "") for sock in sockets]
                lifecycle.reload = None if service.reload is None else partial(service.reload, tls)
                start_listening(sockets, settings)
                async with notifier.following(lifecycle):
                    await server.serve(sockets=sockets)
                await server.end_requests()


async def _load(service: Service, urls: str) -> str:
    """Make a service ready; returns the sentence that announces it."""
    name = await service.load()
    gc.freeze()  # later collections then skip the modules
    return f"Serving {name} at {urls}"


@contextmanager
def tracing() -> Generator[Traces | None]:
    """The traces that the environment asks for; the last ones are sent at the end."""
    traces = Traces.from_env(os.environ)
    try:
        yield traces
    finally:
        if traces is not None:
            traces.close()


def _warn_or_refuse(settings: ServerSettings, keys: Keys | None, danger: str) -> None:
    if keys is not None:
        if not keys.keys():
            logger.warning(
                "There are no API keys yet: nobody is let in until `shepherd apikey add`"
            )
        return
    if settings.insecure:
        logger.warning("Anyone who reaches this address may use the model: no key is needed")
    if danger:
        logger.warning("%s", danger)
