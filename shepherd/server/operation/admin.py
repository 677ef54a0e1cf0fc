"""How the server is: `/health`, `/ready`, `/metrics`; `/admin` and what `shepherd ctl` does."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends
from msgspec.structs import asdict
from prometheus_client.exposition import choose_encoder
from pydantic import Field
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from shepherd.errors import ShepherdError
from shepherd.messages import JsonObject
from shepherd.server import errors, guard, models, responses, settings
from shepherd.server.access.paths import ADMIN_PREFIX, METRICS_PATH, QUEUE_PATH
from shepherd.server.body import BodyReader, RequestModel
from shepherd.server.operation.lifecycle import LOADING_SECONDS
from shepherd.server.operation.metrics import Metrics, total
from shepherd.server.page import page_response
from shepherd.server.record import current_key
from shepherd.version import __version__

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

    seconds: Annotated[float | None, Field(ge=0, le=_DAY)] = None
    """Maximum wait for running requests; by default `server.shutdown_seconds`."""


def operation_router(context: settings.ServerContext) -> APIRouter:
    """The routes for those who run the server, and for programs that look if there is one."""
    router = APIRouter()
    _add_state(router, context)
    _add_metrics(router, context.monitor.metrics)
    _add_page(router)
    router.routes += _admin_router(context).routes  # flat, as `_app` has them
    return router


def _add_state(router: APIRouter, context: settings.ServerContext) -> None:
    """The routes that say whether there is a server, and whether it can answer."""

    @router.get("/", response_class=PlainTextResponse)
    async def root() -> PlainTextResponse:
        """A text: programs look here whether there is a server.

        It is the one by which Ollama's clients know theirs.
        """
        return PlainTextResponse("Ollama is running")

    @router.get("/health")
    async def health() -> responses.JsonResponse:
        """Whether the server can answer: 200 or 503.

        503 means that the first model still loads, or that the backend has failed permanently. It
        also means that its threads have made no progress for 30 seconds, or that its provider does
        not answer.

        `model_state` is `unloaded` while the default model has left memory; the next request loads
        it. Needs no key.
        """
        backend, is_loading = context.backend, context.lifecycle.loading
        is_connected = not is_loading and await backend.reachable()
        body: JsonObject = {
            "status": "ok" if is_connected else "error",
            "backend_connected": is_connected,
            "backend": backend.info.backend,
            "model": backend.info.id,
            "model_state": _default_state(context),
        }
        if is_loading:  # as llama.cpp's server has it
            body["status"] = "loading"
            body["error"] = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
        return responses.JsonResponse(body, 200 if is_connected else 503)

    @router.get("/ready")
    async def ready() -> responses.JsonResponse:
        """Whether the server should get new requests: 200 or 503.

        The status is `ready`, `loading` while the default model loads, `draining` or `stopping`. It
        is `database` if that of `server.database` does not answer. It is `error` if the default
        model can't answer, as for `/health`, which tells of `model_state`, too. `reason` is a
        sentence. Needs no key.
        """
        status = await server_status(context)
        state = _default_state(context)
        body = {"status": status, "model": context.backend.info.id, "model_state": state}
        if status == _READY:
            return responses.JsonResponse(body)
        headers = {"Retry-After": str(LOADING_SECONDS)} if status == _LOADING else None
        return responses.JsonResponse({**body, "reason": REASONS[status]}, 503, headers)


def _add_metrics(router: APIRouter, metrics: Metrics) -> None:
    """The route for Prometheus; llama.cpp's clients read the time of the start in a header."""
    started = str(int(time.time()))

    @router.get(METRICS_PATH, response_class=PlainTextResponse)
    async def read_metrics(request: Request) -> Response:
        """The measurements in the format of Prometheus.

        A key needs the scope `admin`, unless `server.metrics_open` is set.
        """
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        headers = {"content-type": media_type, "process-start-time-unix": started}
        return Response(encode(metrics.registry), headers=headers)


def _add_page(router: APIRouter) -> None:
    """The page of those who run the server."""

    @router.get(ADMIN_PREFIX, response_class=HTMLResponse)
    async def read_page() -> Response:
        """A page about the server. It needs no key, has no data, and asks for a key itself."""
        return page_response("operation/admin.html", "text.js", "client.js")


def _admin_router(context: settings.ServerContext) -> APIRouter:
    """What `shepherd ctl` does, with a key for `admin` or over the server's Unix socket."""
    router = APIRouter(dependencies=[Depends(check_access)])
    lifecycle, bodies = context.lifecycle, BodyReader(context.settings, _MAX_BODY)

    @router.get(f"{ADMIN_PREFIX}/status")
    async def read_status() -> responses.JsonResponse:
        """The state of the server: its models, requests and connections."""
        return responses.JsonResponse({"status": await server_status(context), **_state(context)})

    @router.get(f"{ADMIN_PREFIX}/log")
    async def read_log() -> responses.JsonResponse:
        """The last lines of the log, the newest last: `time`, `level`, `message`, `key`.

        Requests that only looked at the server are left out, and the middle of long texts.
        """
        return responses.JsonResponse({"lines": list(lifecycle.log)})

    @router.get(QUEUE_PATH)
    async def read_queue() -> responses.JsonResponse:
        """The requests that models of this process work on or have waiting, the latter in order.

        Each has the name of its key, its tokens so far, its seconds since it came, and its
        `position` with the seconds until it will probably begin, if it waits. `engine_seconds` are
        those that each key has used lately.
        """
        return responses.JsonResponse(_queue(context.models.loaded()))

    @router.post(f"{ADMIN_PREFIX}/drain")
    async def drain() -> responses.JsonResponse:
        """Refuse new requests with 503; those that run go on. `/ready` is 503 then."""
        lifecycle.drain()
        return responses.JsonResponse({"status": "draining", "running": _running(context)})

    @router.post(f"{ADMIN_PREFIX}/reload")
    async def reload() -> responses.JsonResponse:
        """Read settings, keys and aliases again, as SIGHUP does.

        `changed` names the settings that apply from now on, and `need_restart` those that only a
        restart changes. With an error, nothing has changed.
        """
        try:
            return responses.JsonResponse(asdict(await lifecycle.begin_reload()))
        except ShepherdError as error:
            raise errors.ApiError(
                400, f"Nothing was changed: {error}", "invalid_settings"
            ) from error

    @router.post(f"{ADMIN_PREFIX}/shutdown")
    async def shut_down(
        body: Annotated[ShutdownBody, bodies.of(ShutdownBody)],
    ) -> responses.JsonResponse:
        """End the server after the running requests, as SIGTERM does."""
        running = _running(context)
        lifecycle.begin_stop(body.seconds)
        return responses.JsonResponse({"status": "stopping", "running": running}, 202)

    return router


def check_access(request: Request) -> None:
    """Raise ApiError unless the request has a key, or came over the server's Unix socket.

    The scope of the key was checked before the route.
    """
    if current_key() is None and not guard.is_local_socket(request.scope):
        message = "This needs a key with the scope admin (--auth-mode json), or the Unix socket."
        raise errors.ApiError(403, message, "insufficient_scope")


async def server_status(context: settings.ServerContext) -> str:
    """`ready`, or why new requests should go elsewhere: a name of `REASONS`."""
    lifecycle = context.lifecycle
    if lifecycle.draining:
        return "stopping" if lifecycle.stopping else "draining"
    if lifecycle.loading or _default_state(context) is models.ModelState.LOADING:
        return _LOADING
    if not await lifecycle.database_answers(context.settings.keys_grace):
        return "database"
    return _READY if await context.backend.reachable() else "error"


def _default_state(context: settings.ServerContext) -> models.ModelState:
    """Whether the default model is in memory."""
    return context.models.every()[0].state


def _running(context: settings.ServerContext) -> int:
    """The requests that run, without this one."""
    return max(0, context.monitor.metrics.running - 1)


def _queue(loaded: Sequence[models.LoadedModel]) -> JsonObject:
    """The requests of models, and what each key has used."""
    statuses = [(model.name, model.backend.status) for model in loaded]
    used = Counter[str]()
    for _, status in statuses:
        used.update(status.seconds)
    rows = [
        {
            "key": state.tenant,
            "model": name,
            "state": "waits" if state.place else "runs",
            "position": state.place,
            "expected_seconds": round(state.expected, 1),
            "prompt_tokens": state.prompt_tokens,
            "cached_tokens": state.cached_tokens,
            "generated": state.generated,
            "seconds": round(state.seconds, 1),
        }
        for name, status in statuses
        for state in sorted(status.requests, key=lambda state: state.place)
    ]
    return {"requests": rows, "engine_seconds": used}


def _state(context: settings.ServerContext) -> JsonObject:
    """What `shepherd ctl status` tells about the process, its requests and its models."""
    lifecycle, metrics = context.lifecycle, context.monitor.metrics
    return {
        "version": __version__,
        "pid": os.getpid(),
        "uptime_seconds": round(time.monotonic() - lifecycle.started, 1),
        "addresses": list(lifecycle.addresses),
        "requests": {"running": _running(context), "ended": int(total(metrics.requests))},
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
