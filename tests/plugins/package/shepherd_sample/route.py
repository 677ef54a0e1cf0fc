"""A route of the HTTP server."""

from fastapi import APIRouter

from shepherd.server.responses import JsonResponse
from shepherd.server.settings import ServerContext
from shepherd.version import __version__


def version_router(context: ServerContext) -> APIRouter:
    """`GET /version`: the server's version and model."""
    router = APIRouter()

    @router.get("/version")
    async def version() -> JsonResponse:
        return JsonResponse({"version": __version__, "model": context.backend.info.id})

    return router
