"""`GET /stats`: what the prefix cache holds and has saved."""

from dataclasses import asdict

from fastapi import APIRouter

from shepherd.server.context import ServerContext
from shepherd.server.json_response import JsonResponse

PATH = "/stats"


def stats_router(context: ServerContext) -> APIRouter:
    """The statistics route."""
    router = APIRouter()

    @router.get(PATH)
    async def stats() -> JsonResponse:
        """Where prompts are kept: per tier entries, bytes, hits, tokens saved, evictions.

        503 with the same body when `/health` is 503.
        """
        tiers = [asdict(tier) for tier in context.backend.cache_tiers]
        well = await context.backend.reachable()
        body = {"model": context.backend.info.id, "cache": tiers}
        return JsonResponse(body, 200 if well else 503)

    return router
