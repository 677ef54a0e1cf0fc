"""Runs the server until a signal ends it."""

import gc
import logging
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
    nullcontext,
)
from functools import partial
from typing import TypeAlias

from msgspec import Struct, structs

from shepherd.backends.base import Backend
from shepherd.messages import JsonObject
from shepherd.server.access.keys import Keys
from shepherd.server.app import Offer, ServerApp, create_app
from shepherd.server.listen import bound_sockets, start_listening, url_of
from shepherd.server.operation.lifecycle import Lifecycle, Notifier, Reloaded
from shepherd.server.operation.log import logging_to_stderr
from shepherd.server.operation.traces import Traces
from shepherd.server.pool.pool import ModelPool
from shepherd.server.settings import ServerSettings
from shepherd.server.transport.tls import ServerTls
from shepherd.server.transport.uvicorn_server import DrainingServer

logger = logging.getLogger("shepherd.server")

CLOSE_SECONDS = 30.0
"""The time to save conversations and to free the models, once nothing runs any more."""

ReloadPool: TypeAlias = Callable[[ModelPool, ServerTls | None], Awaitable[Reloaded]]
"""Reads the settings of a server with this pool and this certificate again."""

TOOLS_ARE_OPEN = (
    "Anybody who reaches this address may run tools: /v1/tools is open without a key; "
    "use --auth-mode json"
)

AGENT_IS_OPEN = (
    "Anybody who reaches this address may have the model run tools: no key is needed with "
    "--use-tools; use --auth-mode json"
)


class Host(Struct, frozen=True):
    """The process around an application.

    `tell` hears of the states of the server, and `tls` is its certificate. `stop_advice` and `log`
    are those of `Lifecycle`.
    """

    tell: Callable[[str], None] = lambda _state: None
    tls: ServerTls | None = None
    traces: Traces | None = None
    stop_advice: str = ""
    log: Sequence[JsonObject] = ()


class Service(Struct, frozen=True):
    """An application to serve, and the path of its base URL.

    `load` makes it ready while the port is open already, and returns the name to announce. `drain`
    is called when the server begins to end: it ends work that would never end by itself.
    """

    app: ServerApp
    load: Callable[[], Awaitable[str]]
    path: str = "/v1"
    drain: Callable[[], None] = lambda: None


async def serve(
    open_models: Callable[[], Awaitable[Backend | ModelPool]],
    settings: ServerSettings,
    keys: Keys | None = None,
    offer: Offer | None = None,
    reload: ReloadPool | None = None,
) -> None:
    """Listen, load the default model, serve until SIGINT or SIGTERM, close the models.

    `open_models` loads no model of a pool. Requests are refused until the default one is loaded;
    the errors of that end the server and are raised. The first signal lets running requests finish,
    the second ends them. `reload` reads the settings of a server with a pool of models again, and
    replaces its certificate. Raises ConfigError before the models are opened if the address is
    taken or not allowed, or if the key file can't be used.
    """
    offer = offer or Offer()
    dangers = [TOOLS_ARE_OPEN] if offer.tools is not None else []
    if offer.agent is not None:
        dangers.append(AGENT_IS_OPEN)
    open_service = partial(models_service, open_models, settings, keys, offer, reload)
    await serve_service(open_service, settings, keys, ". ".join(dangers))


@asynccontextmanager
async def models_service(
    open_models: Callable[[], Awaitable[Backend | ModelPool]],
    settings: ServerSettings,
    keys: Keys | None,
    offer: Offer,
    reload: ReloadPool | None,
    host: Host,
) -> AsyncGenerator[Service]:
    """The application of `serve`; opens the models, and closes them at the end."""
    models = await open_models()

    async def load() -> str:
        if isinstance(models, Backend):
            return models.info.id
        await models.load_default()
        return models.default.info.id

    try:
        lifecycle = Lifecycle(host.tell, None, settings.postgres, host.stop_advice, host.log)
        if reload is not None and not isinstance(models, Backend):
            lifecycle = structs.replace(lifecycle, reload=partial(reload, models, host.tls))
        app = create_app(models, settings, keys, offer, lifecycle, host.traces)
        service = Service(app, load)
        if offer.agent is not None and offer.agent.approvals is not None:
            # turns that wait for an approval would hold up the end
            service = structs.replace(service, drain=offer.agent.approvals.close)
        yield service
    finally:
        await models.aclose()


async def serve_service(
    open_service: Callable[[Host], AbstractAsyncContextManager[Service]],
    settings: ServerSettings,
    keys: Keys | None,
    danger: str = "",
) -> None:
    """`serve` for any application; `danger` is logged if it is served without keys."""
    tls = None if settings.tls is None else ServerTls(settings.tls)
    notifier = Notifier.from_env(os.environ)
    # an address that is taken or not allowed is told before anything is loaded, which takes long
    opening = bound_sockets(settings, authenticated=keys is not None)
    with (
        opening as sockets,
        logging_to_stderr(as_json=settings.json_log) as log,
        tracing() as traces,
        closing_in_time() as served,
    ):
        _warn_about_keys(settings, keys, danger)
        async with open_service(Host(notifier.send_state, tls, traces, log=log)) as service:
            lifecycle = service.app.context.lifecycle
            lifecycle.addresses = [url_of(settings, sock, "") for sock in sockets]
            urls = " and ".join(url_of(settings, sock, service.path) for sock in sockets)

            async def load() -> None:
                name = await service.load()
                gc.freeze()  # later collections then skip the modules
                lifecycle.finish_load()
                logger.info("Serving %s at %s", name, urls)

            server = DrainingServer(
                service.app, service.drain, settings=settings, tls=tls, served=served
            )
            start_listening(sockets, settings)
            async with notifier.beating():
                await server.run_while_loading(sockets, load)


@contextmanager
def closing_in_time() -> Generator[Callable[[], None]]:
    """Yields what to call after the last request: the block then ends in time, or the process does.

    A thread that computes can't be ended, and Python waits for it: a library's fault would keep a
    server that was told to end.
    """

    def give_up() -> None:
        logger.error("The models were not closed in %g seconds: the server ends", CLOSE_SECONDS)
        os._exit(1)  # the handler has flushed the log

    timer = threading.Timer(CLOSE_SECONDS, give_up)
    timer.daemon = True
    try:
        yield timer.start
    finally:
        timer.cancel()


def tracing() -> AbstractContextManager[Traces | None]:
    """The traces that the environment asks for; the last ones are sent at the end."""
    traces = Traces.from_env(os.environ)
    return nullcontext() if traces is None else closing(traces)


def _warn_about_keys(settings: ServerSettings, keys: Keys | None, danger: str) -> None:
    """Log who may come in, if that is nobody or anybody; raises ConfigError for unusable keys."""
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
