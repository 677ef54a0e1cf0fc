"""Builds the server from its parts; `APIS` lists the APIs that it serves."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence

from fastapi import APIRouter, FastAPI
from msgspec import Struct
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shepherd.backends.base import Backend
from shepherd.conversation.shared.session import SharedSession
from shepherd.errors import ShepherdError
from shepherd.plugins import Group
from shepherd.server.access import shared
from shepherd.server.access.audit import AuditLog
from shepherd.server.access.keys import Keys
from shepherd.server.access.meter import Meter
from shepherd.server.access.paths import PathScopes
from shepherd.server.access.usage import UsageStore, usage_router
from shepherd.server.agent.agent import Agent
from shepherd.server.anthropic.routes import ANTHROPIC
from shepherd.server.api import Api, ErrorShapes
from shepherd.server.body import BodyReader
from shepherd.server.embeddings import EMBEDDINGS, EMBEDDINGS_UNPREFIXED
from shepherd.server.errors import ApiError, log_failure, not_served, to_api_error
from shepherd.server.front import Front
from shepherd.server.gemini.routes import GEMINI, GEMINI_MODELS
from shepherd.server.guard import Doors, Guard, OpenCors, cors_options
from shepherd.server.models import Models, OneModel
from shepherd.server.ollama.routes import OLLAMA
from shepherd.server.openai.routes import OPENAI, OPENAI_UNPREFIXED
from shepherd.server.openai_responses.routes import OPENAI_RESPONSES
from shepherd.server.openapi import add_openapi
from shepherd.server.operation.admin import operation_router
from shepherd.server.operation.keys import keys_router
from shepherd.server.operation.lifecycle import Lifecycle
from shepherd.server.operation.metrics import Metrics
from shepherd.server.operation.monitor import Monitor
from shepherd.server.operation.traces import Traces
from shepherd.server.pool.routes import pool_router
from shepherd.server.raw.routes import COMPLETIONS, LLAMACPP
from shepherd.server.record import HUNG_UP
from shepherd.server.responses import ClientDisconnectedError, ErrorResponse
from shepherd.server.seal import Seal
from shepherd.server.settings import ServerContext, ServerSettings
from shepherd.server.shared.routes import SharedSessionErrors, cli_router
from shepherd.server.tools import approvals_router, llama_tools_router, tools_router
from shepherd.server.wire.slots import Slots
from shepherd.tools.runner import ToolRunner
from shepherd.version import __version__

APIS: Sequence[Api] = (
    ANTHROPIC,
    GEMINI,
    GEMINI_MODELS,
    OPENAI,
    OPENAI_UNPREFIXED,
    OPENAI_RESPONSES,
    COMPLETIONS,
    EMBEDDINGS,
    EMBEDDINGS_UNPREFIXED,
    OLLAMA,
    LLAMACPP,
)
"""In the order in which paths are searched, so what is asked for most stands near the front.

Routes that need a header stand before OpenAI's, which has the same paths without one.
"""

MIB = 1024 * 1024

logger = logging.getLogger(__name__)


class Offer(Struct, frozen=True):
    """What a server offers beside plain answers of its models.

    With `tools` it has endpoints that run them; their approver must never ask. With an `agent`,
    that one answers.
    """

    tools: ToolRunner | None = None
    agent: Agent | None = None
    apis: Sequence[Api] = APIS


class ServerApp(Struct, frozen=True):
    """An ASGI application, and what the process around it needs of it."""

    api: FastAPI
    front: Front
    context: ServerContext

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.front(scope, receive, send)


def create_app(
    models: Backend | Models,
    settings: ServerSettings | None = None,
    keys: Keys | None = None,
    offer: Offer | None = None,
    lifecycle: Lifecycle | None = None,
    traces: Traces | None = None,
) -> ServerApp:
    """The HTTP API over `models`, or one model for all names; the caller closes it.

    Without `keys`, anyone who can reach the server may use it.
    """
    settings, offer = settings or ServerSettings(), offer or Offer()
    served = OneModel(lambda: models) if isinstance(models, Backend) else models
    meter = Meter() if keys is None else _meter(settings)
    audit = AuditLog(settings.audit_file, settings.audit_mib * MIB, settings.audit_required)
    agent = None if offer.agent is None else replace(offer.agent, audit=audit)
    lifecycle = lifecycle or Lifecycle(database=settings.postgres)
    context = replace(_context(served, settings, lifecycle), agent=agent, meter=meter)
    routers = [
        pool_router(context),  # /models/loading is no model
        *(router for api in offer.apis for router in api.routers(context)),
        operation_router(context),
    ]
    if offer.tools is not None:
        routers += [r(offer.tools, context, audit) for r in (tools_router, llama_tools_router)]
    if agent is not None and agent.approvals is not None and keys is not None:
        routers.append(approvals_router(agent.approvals, context))
    if meter.store is not None:
        routers.append(usage_router(meter.store))
    if keys is not None:
        routers.append(keys_router(keys, context.bodies))
    errors = ErrorShapes(OPENAI.errors, offer.apis)
    return _app(context, routers, errors, Doors(settings, meter, keys), traces)


def create_conversation_app(
    conversation: SharedSession,
    settings: ServerSettings | None = None,
    keys: Keys | None = None,
    audit: AuditLog | None = None,
    lifecycle: Lifecycle | None = None,
    traces: Traces | None = None,
) -> ServerApp:
    """The HTTP API of one shared session, which the caller enters; `keys` as in `create_app`.

    `audit` gets a line for each command of a client.
    """
    settings, audit = settings or ServerSettings(), audit or AuditLog()
    models = OneModel(lambda: conversation.backend)
    context = _context(models, settings, lifecycle or Lifecycle(database=settings.postgres))
    routers = [
        cli_router(conversation, context, audit),  # has the page at /
        operation_router(context),
    ]
    if keys is not None:
        routers.append(keys_router(keys, context.bodies))
    pages = frozenset({"/"})
    doors = Doors(settings, context.meter, keys, counts_tokens=False, pages=pages)
    return _app(context, routers, ErrorShapes(SharedSessionErrors()), doors, traces)


def _context(models: Models, settings: ServerSettings, lifecycle: Lifecycle) -> ServerContext:
    """The parts that all requests need, without an agent and without a meter of keys."""
    metrics = Metrics(lambda: [model.info.id for model in models.every()], models.loaded)
    return ServerContext(
        models=models,
        settings=settings,
        bodies=BodyReader(settings),
        started=int(time.time()),
        seal=Seal(settings.signing_key),
        monitor=Monitor(metrics),
        lifecycle=lifecycle,
        slots=Slots(settings.slots_folder),
    )


def _meter(settings: ServerSettings) -> Meter:
    """The meter of keys, for all servers that share a database or the files of a user.

    Without either, what keys use is forgotten at the end.
    """
    if settings.postgres is not None:
        store = UsageStore(shared.usage_in(settings.postgres))
        limits = shared.SharedLimits(shared.limits_in(settings.postgres), store, clock=None)
    elif settings.usage_file is not None:
        store = UsageStore(settings.usage_file)
        limits = shared.SharedLimits(shared.open_limits(settings.usage_file), store, threads=1)
    else:
        return Meter()
    store.delete_older(settings.usage_days)
    return Meter(store, limits)


def _app(
    context: ServerContext,
    routers: Iterable[APIRouter],
    errors: ErrorShapes,
    doors: Doors,
    traces: Traces | None,
) -> ServerApp:
    """The application of these routes, with the parts that all APIs share."""
    api = FastAPI(
        title="Shepherd",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    for router in routers:
        # one flat list, because FastAPI searches an included router twice: 0.2 ms for a request
        api.router.routes += router.routes
    scopes = PathScopes(_include_plugins(api, context))
    add_openapi(api, context, errors, needs_keys=doors.keys is not None)
    _handle_errors(api, context)
    api.add_middleware(Guard, doors=replace(doors, scopes=scopes), lifecycle=context.lifecycle)
    if context.settings.cors_origins:
        api.add_middleware(OpenCors, **cors_options(context.settings))
    metrics = context.monitor.metrics
    front = Front(api, context.settings, errors, metrics, context.meter, traces)
    return ServerApp(api, front, context)


def _include_plugins(api: FastAPI, context: ServerContext) -> list[str]:
    """Add the routes of plugins after all others, so that they can't replace existing paths.

    Returns their paths.
    """
    paths: list[str] = []

    def include(make_router: Callable[[ServerContext], APIRouter]) -> None:
        router = make_router(context)
        api.include_router(router)
        paths.extend(getattr(route, "path", "") for route in router.routes)

    if context.settings.plugins is not None:
        context.settings.plugins.use(Group.ROUTES, include, logger.warning)
    return paths


def _handle_errors(api: FastAPI, context: ServerContext) -> None:
    """Answer with what went wrong; a client that has left gets nothing."""

    async def answer(request: Request, error: Exception) -> Response:
        """The response for a failure before anything was sent."""
        reported = to_api_error(error, context.backend.info.context_size)
        advice = "" if "endpoint" in request.scope else not_served(request.url.path)
        if advice and isinstance(error, HTTPException):
            reported = ApiError(404, advice, "not_found")
        if isinstance(error, ShepherdError):  # uvicorn logs defects
            log_failure(error, reported)
        return ErrorResponse(reported)

    async def forget(_request: Request, _error: Exception) -> Response:
        """The end of a request whose client has left; nobody gets it."""
        return Response(status_code=HUNG_UP)

    for kind in (ApiError, ShepherdError, HTTPException, Exception):
        api.add_exception_handler(kind, answer)
    for kind in (ClientDisconnect, ClientDisconnectedError):
        api.add_exception_handler(kind, forget)
