"""`/v1/models/load` and `/v1/models/unload` for administrators, and `/stats`."""

import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter
from msgspec.structs import asdict
from pydantic import Field
from starlette.requests import Request

from shepherd.backends.llamacpp.native.bindings import native_log
from shepherd.messages import JsonObject
from shepherd.server import models, responses, settings
from shepherd.server.body import RequestModel
from shepherd.server.record import current_key
from shepherd.server.wire.fields import Seconds


class LoadRequest(RequestModel):
    """The model to load or unload."""

    model: Annotated[str, Field(min_length=1)]
    """Its name, as in other requests."""
    keep_alive: Seconds = None
    """How long it stays without requests, as in `server.keep_alive`."""


def pool_router(context: settings.ServerContext) -> APIRouter:
    """The routes about models in memory; those that load and unload also at llama.cpp's paths."""
    router = APIRouter()

    @router.get("/models/loading")
    async def loading() -> responses.JsonResponse:
        """What is on its way: models that are loaded into memory, and those that are downloaded.

        Each has `status`, and the bytes `completed` of `total`. Loads have the seconds so far, and
        downloads the `digest` of the file.
        """
        loads = _loads(context.models.served())
        key, downloads = current_key(), context.downloads.running.items()
        pulls = [
            {"model": name, **asdict(step)}
            for name, step in downloads
            if key is None or key.allows_model(name)
        ]
        return responses.JsonResponse({"loading": loads, "downloading": pulls})

    @router.post("/models/load")
    @router.post("/v1/models/load")
    async def load_model(
        request: Request, body: Annotated[LoadRequest, context.bodies.of(LoadRequest)]
    ) -> responses.JsonResponse:
        """Load a model, and answer once it is loaded. Needs a key with the scope `admin`."""

        async def load() -> None:
            async with context.models.lease(body.model, body.keep_alive):
                pass

        await responses.while_connected(request.receive, load())
        return responses.JsonResponse({"success": True})

    @router.post("/models/unload")
    @router.post("/v1/models/unload")
    async def unload_model(
        body: Annotated[LoadRequest, context.bodies.of(LoadRequest)],
    ) -> responses.JsonResponse:
        """Unload a model; 409 `model_in_use` while requests use it. Needs the scope `admin`."""
        await context.models.unload(body.model)
        return responses.JsonResponse({"success": True})

    @router.get("/stats")
    async def stats() -> responses.JsonResponse:
        """The caches of prompts: per tier entries, bytes, hits, tokens saved, evictions.

        They are those of the default model. `loaded` names the models that are loaded. 503 with the
        same body if `/health` is 503.
        """
        tiers = [asdict(tier) for tier in context.backend.status.cache_tiers]
        reachable = await context.backend.reachable()
        served = context.models.served()
        loaded = [model.info.id for model in served if model.state is models.ModelState.LOADED]
        body = {"model": context.backend.info.id, "cache": tiers, "loaded": loaded}
        return responses.JsonResponse(body, 200 if reachable else 503)

    return router


def _loads(served: Sequence[models.ServedModel]) -> list[JsonObject]:
    """The models that are loaded into memory now."""
    loading = [(model, model.since) for model in served if model.since is not None]
    first = min((since for _, since in loading), default=0.0)  # one loads after the other
    return [
        {
            "model": model.info.id,
            "status": "loading",
            "completed": round(model.size * native_log.progress) if since == first else 0,
            "total": model.size,
            "seconds": round(time.time() - since, 1),
        }
        for model, since in loading
    ]
