"""Builds the server from its parts; `APIS` lists the APIs that it serves."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from shepherd.backends.base import Backend
from shepherd.conversation.shared.protocol import CLIENT_HEADER, REQUEST_HEADER
from shepherd.conversation.shared.session import SharedSession
from shepherd.errors import ShepherdError
from shepherd.plugins import Group
from shepherd.server.access.audit import AuditLog
from shepherd.server.access.keys import Keys
from shepherd.server.access.limiter import HEADER_NAMES
from shepherd.server.access.meter import Meter
from shepherd.server.access.models import AllowedModels
from shepherd.server.access.paths import PathScopes
from shepherd.server.access.routes import usage_router
from shepherd.server.access.shared import meter_in, meter_in_files
from shepherd.server.access.usage import UsageStore
from shepherd.server.agent.agent import Agent
from shepherd.server.agent.approval_routes import approvals_router
from shepherd.server.agent.options import EVICTED_HEADER
from shepherd.server.anthropic.routes import ANTHROPIC
from shepherd.server.api import Api, ErrorShapes
from shepherd.server.body import BodyReader
from shepherd.server.completions.routes import COMPLETIONS
from shepherd.server.direct import DirectEndpoints, DirectRoutes, ErrorHandling, direct_endpoints
from shepherd.server.edge import JsonCors, UniformRequests
from shepherd.server.embeddings.routes import EMBEDDINGS, EMBEDDINGS_UNPREFIXED
from shepherd.server.errors import ApiError, log_failure, to_api_error
from shepherd.server.gemini.routes import GEMINI, GEMINI_MODELS
from shepherd.server.guard import Doors, Guard
from shepherd.server.llamacpp.routes import LLAMACPP
from shepherd.server.models import Models, OneModel
from shepherd.server.ollama.routes import OLLAMA
from shepherd.server.openai.routes import OPENAI, OPENAI_UNPREFIXED
from shepherd.server.openai_responses.routes import OPENAI_RESPONSES
from shepherd.server.operation.admin import admin_router, ready_router
from shepherd.server.operation.lifecycle import Lifecycle, WorkGate
from shepherd.server.operation.metrics import Metrics
from shepherd.server.operation.monitor import Monitor
from shepherd.server.operation.routes import metrics_router
from shepherd.server.pool.routes import loading_router
from shepherd.server.responses import ClientDisconnectedError, ErrorResponse
from shepherd.server.seal import Seal
from shepherd.server.settings import ServerContext, ServerSettings
from shepherd.server.shared.routes import SharedSessionErrors, cli_router
from shepherd.server.status import health_router, stats_router
from shepherd.server.tools import tools_router
from shepherd.tools.runner import ToolRunner
from shepherd.version import __version__

APIS: Sequence[Api] = (
    ANTHROPIC,
    EMBEDDINGS,
    EMBEDDINGS_UNPREFIXED,
    GEMINI,
    GEMINI_MODELS,
    OLLAMA,
    OPENAI,
    OPENAI_UNPREFIXED,
    OPENAI_RESPONSES,
    COMPLETIONS,
    LLAMACPP,
)

EXPOSED_HEADERS = (*HEADER_NAMES, "x-request-id", "request-id", "x-should-retry")
"""Headers of responses that web pages may read."""

ANY_ORIGIN = "*"
"""In `cors_origins`: the answer names the origin that the page has, as llama.cpp's server does."""

LOCAL_ORIGINS = "localhost"
"""In `cors_origins`: pages of this machine, on any port."""

_ORIGIN_PATTERNS = {
    ANY_ORIGIN: ".*",
    LOCAL_ORIGINS: r"https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?",
}

MIB = 1024 * 1024

logger = logging.getLogger(__name__)


def create_app(
    models: Backend | Models,
    settings: ServerSettings | None = None,
    keys: Keys | None = None,
    tools: ToolRunner | None = None,
    apis: Sequence[Api] = APIS,
    agent: Agent | None = None,
) -> FastAPI:
    """The HTTP API over `models`, or one model for all names; the caller closes it.

    Without `keys`, anyone who can reach the server may use it. Without `tools` there are no tool
    endpoints; the approver of `tools` must never ask. With an `agent`, it answers.
    """
    settings = settings or ServerSettings()
    served = OneModel(lambda: models) if isinstance(models, Backend) else models
    meter = None if keys is None else _meter(settings)
    audit = AuditLog(settings.audit_file, settings.audit_mib * MIB, settings.audit_required)
    agent = None if agent is None else replace(agent, audit=audit)
    context = replace(_context(served, settings), agent=agent, meter=meter)
    app = _bare_app()
    app.include_router(health_router(context.current_backend, app.state.lifecycle))
    _include_operation(app, served, context)
    routers = [router for api in apis for router in api.routers(context)]
    for router in routers:
        app.include_router(router)
    app.include_router(stats_router(context))
    app.include_router(loading_router(context))
    if tools is not None:
        app.include_router(tools_router(tools, settings, audit))
    if agent is not None and agent.approvals is not None and keys is not None:
        app.include_router(approvals_router(agent.approvals, settings))
    if meter is not None and meter.store is not None:
        app.include_router(usage_router(meter.store))
    _include_plugins(app, context)
    doors = Doors(settings, keys, meter)
    _finish(app, context, ErrorShapes(OPENAI.errors, apis), doors, direct_endpoints(routers))
    return app


def create_conversation_app(
    conversation: SharedSession,
    settings: ServerSettings | None = None,
    keys: Keys | None = None,
    audit: AuditLog | None = None,
) -> FastAPI:
    """The HTTP API of one shared session, which the caller enters; `keys` as in `create_app`.

    `audit` gets a line for each command of a client.
    """
    settings = settings or ServerSettings()
    app = _bare_app()
    app.include_router(cli_router(conversation, settings, audit or AuditLog()))  # has the page at /
    app.include_router(health_router(lambda: conversation.backend, app.state.lifecycle))
    models = OneModel(lambda: conversation.backend)
    context = _context(models, settings)
    _include_operation(app, models, context)
    _include_plugins(app, context)
    errors = ErrorShapes(SharedSessionErrors())
    _finish(app, context, errors, Doors(settings, keys, pages=frozenset({"/"})))
    return app


def _context(models: Models, settings: ServerSettings) -> ServerContext:
    bodies, seal = BodyReader(settings.max_body_bytes), Seal(settings.signing_key)
    allowed = AllowedModels(models)
    metrics = Metrics(lambda: [info.id for info in models.listed()])
    metrics.models = models.loaded
    monitor = Monitor(metrics)
    return ServerContext(
        lambda: models.default, allowed, settings, bodies, int(time.time()), seal, monitor
    )


def _include_operation(app: FastAPI, models: Models, context: ServerContext) -> None:
    """Add the routes for those who run the server."""
    lifecycle, metrics = cast(Lifecycle, app.state.lifecycle), context.monitor.metrics
    lifecycle.database = context.settings.database
    app.include_router(ready_router(lifecycle, context.current_backend, models))
    app.include_router(admin_router(lifecycle, metrics, models))
    app.include_router(metrics_router(metrics))


def _meter(settings: ServerSettings) -> Meter:
    if settings.database is not None:
        return meter_in(settings.database, settings.usage_days)
    if settings.usage_file is None:
        return Meter()
    if settings.limits_file is not None:
        return meter_in_files(settings.usage_file, settings.limits_file, settings.usage_days)
    return Meter(UsageStore(settings.usage_file, settings.usage_days))


def _include_plugins(app: FastAPI, context: ServerContext) -> None:
    """Add the routes of plugins after all others, so that they can't replace existing paths."""
    paths: list[str] = app.state.plugin_paths

    def include(make_router: Callable[[ServerContext], APIRouter]) -> None:
        router = make_router(context)
        app.include_router(router)
        paths.extend(getattr(route, "path", "") for route in router.routes)

    if context.settings.plugins is not None:
        context.settings.plugins.use(Group.ROUTES, include, logger.warning)


def _bare_app() -> FastAPI:
    app = FastAPI(
        title="Shepherd",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.plugin_paths = []
    app.state.lifecycle = Lifecycle()
    return app


def _finish(
    app: FastAPI,
    context: ServerContext,
    errors: ErrorShapes,
    doors: Doors,
    endpoints: DirectEndpoints | None = None,
) -> None:
    """Add the parts that all APIs share: errors, the guard, CORS; `endpoints` skip the router."""
    app.state.errors = errors
    app.state.metrics = context.monitor.metrics
    handling = _handle_errors(app, context.current_backend)
    endpoints = endpoints or DirectEndpoints()
    app.add_middleware(DirectRoutes, endpoints=endpoints, handling=handling)
    app.add_middleware(WorkGate, lifecycle=app.state.lifecycle)
    scopes = PathScopes(app.state.plugin_paths)
    app.add_middleware(Guard, doors=doors, scopes=scopes)
    settings = doors.settings
    if settings.cors_origins:
        app.add_middleware(
            JsonCors,
            allow_origins=[o for o in settings.cors_origins if o not in _ORIGIN_PATTERNS],
            allow_origin_regex=_origin_pattern(settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE", "OPTIONS"],
            allow_headers=["*"],
            expose_headers=[CLIENT_HEADER, REQUEST_HEADER, EVICTED_HEADER, *EXPOSED_HEADERS],
        )
    app.add_middleware(UniformRequests, errors=errors)


def _origin_pattern(origins: Sequence[str]) -> str | None:
    """The pattern of the origins that are named by a word."""
    patterns = [_ORIGIN_PATTERNS[origin] for origin in origins if origin in _ORIGIN_PATTERNS]
    return "|".join(f"(?:{pattern})" for pattern in patterns) or None


def _handle_errors(app: FastAPI, backend: Callable[[], Backend]) -> ErrorHandling:
    async def answer(_request: Request, error: Exception) -> Response:
        reported = to_api_error(error, backend().info.context_size)
        if isinstance(error, ShepherdError):  # uvicorn logs defects
            log_failure(error, reported)
        return ErrorResponse(reported)

    async def forget(_request: Request, _error: Exception) -> Response:
        return Response(status_code=499)

    for kind in (ApiError, ShepherdError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)
    for kind in (ClientDisconnect, ClientDisconnectedError):
        app.add_exception_handler(kind, forget)
    errors = (ApiError, ShepherdError, HTTPException, ClientDisconnect, ClientDisconnectedError)

    async def respond(request: Request, error: Exception) -> Response:
        if isinstance(error, ClientDisconnect | ClientDisconnectedError):
            return await forget(request, error)
        return await answer(request, error)

    return ErrorHandling(errors, respond)
