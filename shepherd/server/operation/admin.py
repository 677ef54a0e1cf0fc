"""How the server is: `/health`, `/ready`, `/stats`; below `/admin` what `shepherd ctl` does."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from shepherd.errors import ShepherdError
from shepherd.messages import JsonObject
from shepherd.server.access.paths import ADMIN_PREFIX
from shepherd.server.body import BodyReader, RequestModel
from shepherd.server.errors import ApiError
from shepherd.server.guard import is_local_socket
from shepherd.server.models import ModelState
from shepherd.server.operation.lifecycle import LOADING_SECONDS
from shepherd.server.operation.metrics import total
from shepherd.server.record import current_key
from shepherd.server.responses import JsonResponse
from shepherd.server.settings import ServerContext
from shepherd.version import __version__

READY_PATH = "/ready"
_READY, _LOADING = "ready", "loading"
REASONS = {
    _LOADING: "The model is loading.",
    "draining": "The server takes no new requests at the moment.",
    "stopping": "The server ends after the running requests.",
    "database": "The database does not answer.",
    "error": "The model can't answer; `/health` tells more.",
}
_MAX_BODY = 1024
_DAY = 86_400


class ShutdownBody(RequestModel):
    """The body of `POST /admin/shutdown`."""

    seconds: Annotated[
        float | None,
        Field(
            ge=0,
            le=_DAY,
            description="Maximum wait for running requests; by default `server.shutdown_seconds`.",
        ),
    ] = None


def ready_router(context: ServerContext) -> APIRouter:
    """The route that tells whether new requests should be sent here."""
    router = APIRouter()

    @router.get(READY_PATH)
    async def ready() -> JsonResponse:
        """Whether the server should get new requests: 200 or 503.

        The status is `ready`, `loading` while the default model loads, `draining` or `stopping`. It
        is `database` if that of `server.database` does not answer. It is `error` if the default
        model can't answer, as for `/health`. `reason` is a sentence. Needs no key.
        """
        status = await server_status(context)
        body = {"status": status, "model": context.backend.info.id}
        if status == _READY:
            return JsonResponse(body)
        headers = {"Retry-After": str(LOADING_SECONDS)} if status == _LOADING else None
        return JsonResponse({**body, "reason": REASONS[status]}, 503, headers)

    return router


def admin_router(context: ServerContext) -> APIRouter:
    """The routes that steer the server.

    They need a key with the scope `admin`, or the server's Unix socket.
    """
    router, lifecycle = APIRouter(prefix=ADMIN_PREFIX), context.lifecycle
    bodies = BodyReader(context.settings, _MAX_BODY)

    @router.get("/status")
    async def read_status(request: Request) -> JsonResponse:
        """The state of the server: its models, requests and connections."""
        _check_access(request)
        return JsonResponse({"status": await server_status(context), **_state(context)})

    @router.post("/drain")
    async def drain(request: Request) -> JsonResponse:
        """Refuse new requests with 503; those that run go on. `/ready` is 503 then."""
        _check_access(request)
        lifecycle.drain()
        return JsonResponse({"status": "draining", "running": _running(context)})

    @router.post("/reload")
    async def reload(request: Request) -> JsonResponse:
        """Read settings, keys and aliases again, as SIGHUP does.

        `changed` names the settings that apply from now on, and `need_restart` those that only a
        restart changes. With an error, nothing has changed.
        """
        _check_access(request)
        try:
            return JsonResponse(asdict(await lifecycle.begin_reload()))
        except ShepherdError as error:
            raise ApiError(400, f"Nothing was changed: {error}", "invalid_settings") from error

    @router.post("/shutdown")
    async def shut_down(
        request: Request, body: Annotated[ShutdownBody, bodies.of(ShutdownBody)]
    ) -> JsonResponse:
        """End the server after the running requests, as SIGTERM does."""
        _check_access(request)
        running = _running(context)
        lifecycle.begin_stop(body.seconds)
        return JsonResponse({"status": "stopping", "running": running}, 202)

    return router


def _check_access(request: Request) -> None:
    if current_key() is None and not is_local_socket(request.scope):
        message = "This needs a key with the scope admin (--auth-mode json), or the Unix socket."
        raise ApiError(403, message, "insufficient_scope")


async def server_status(context: ServerContext) -> str:
    """`ready`, or why new requests should go elsewhere: a name of `REASONS`."""
    lifecycle = context.lifecycle
    if lifecycle.draining:
        return "stopping" if lifecycle.stopping else "draining"
    served = context.models.every()
    if lifecycle.loading or (served and served[0].state is ModelState.LOADING):
        return _LOADING
    if not await lifecycle.database_answers():
        return "database"
    return _READY if await context.backend.reachable() else "error"


def _running(context: ServerContext) -> int:
    """The requests that run, without this one."""
    return max(0, context.monitor.metrics.running - 1)


def _state(context: ServerContext) -> JsonObject:
    lifecycle, metrics = context.lifecycle, context.monitor.metrics
    return {
        "version": __version__,
        "pid": lifecycle.pid,
        "uptime_seconds": round(lifecycle.uptime, 1),
        "addresses": list(lifecycle.addresses),
        "requests": {"running": _running(context), "ended": total(metrics.requests)},
        "connections": metrics.connections,
        "models": [
            {
                "name": model.name,
                "memory_bytes": model.memory.ram,
                "vram_bytes": model.memory.vram,
                "waiting": model.backend.status.waiting_requests,
                "context_size": model.backend.info.context_size,
                "upstreams": [asdict(state) for state in model.backend.status.upstreams],
            }
            for model in context.models.loaded()
        ],
    }


PATH = "/health"
STATS_PATH = "/stats"


def health_router(context: ServerContext) -> APIRouter:
    """The root and the health route."""
    router = APIRouter()

    @router.get("/", response_class=PlainTextResponse)
    async def root() -> PlainTextResponse:
        """A text: programs look here whether there is a server.

        It is the one by which Ollama's clients know theirs.
        """
        return PlainTextResponse("Ollama is running")

    @router.get(PATH)
    async def health() -> JsonResponse:
        """Whether the server can answer: 200 or 503.

        503 means that the first model still loads, or that the backend has failed permanently. It
        also means that its threads have made no progress for 30 seconds, or that its provider does
        not answer.

        Needs no key.
        """
        current, loading = context.backend, context.lifecycle.loading
        connected, info = not loading and await current.reachable(), current.info
        body: JsonObject = {
            "status": "loading" if loading else "ok" if connected else "error",
            "backend_connected": connected,
            "backend": info.backend,
            "model": info.id,
        }
        if loading:  # as llama.cpp's server has it
            body["error"] = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
        return JsonResponse(body, 200 if connected else 503)

    return router


def stats_router(context: ServerContext) -> APIRouter:
    """The statistics route."""
    router = APIRouter()

    @router.get(STATS_PATH)
    async def stats() -> JsonResponse:
        """The caches of prompts: per tier entries, bytes, hits, tokens saved, evictions.

        They are those of the default model. `loaded` names the models that are loaded. 503 with the
        same body if `/health` is 503.
        """
        tiers = [asdict(tier) for tier in context.backend.status.cache_tiers]
        reachable = await context.backend.reachable()
        served = context.models.served()
        loaded = [model.info.id for model in served if model.state is ModelState.LOADED]
        body = {"model": context.backend.info.id, "cache": tiers, "loaded": loaded}
        return JsonResponse(body, 200 if reachable else 503)

    return router
