"""`GET /`, `GET /health` and `GET /stats`: whether the server answers, what its caches saved."""

from dataclasses import asdict

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

from shepherd.messages import JsonObject
from shepherd.server.models import ModelState
from shepherd.server.responses import JsonResponse
from shepherd.server.settings import ServerContext

PATH = "/health"
STATS_PATH = "/stats"


def health_router(context: ServerContext) -> APIRouter:
    """The root and the health route."""
    router = APIRouter()

    @router.get("/")
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
        tiers = [asdict(tier) for tier in context.backend.cache_tiers]
        reachable = await context.backend.reachable()
        served = context.models.served()
        loaded = [model.info.id for model in served if model.state is ModelState.LOADED]
        body = {"model": context.backend.info.id, "cache": tiers, "loaded": loaded}
        return JsonResponse(body, 200 if reachable else 503)

    return router
