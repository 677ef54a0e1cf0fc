"""`GET /health`: whether the server can answer."""

from collections.abc import Callable

from fastapi import APIRouter

from shepherd.backends.base import Backend
from shepherd.server.json_response import JsonResponse

PATH = "/health"


def health_router(backend: Callable[[], Backend]) -> APIRouter:
    """The health route; `backend` gives the one that answers now."""
    router = APIRouter()

    @router.get(PATH)
    async def health() -> JsonResponse:
        """Whether the server can answer: 200, or 503 when the backend has failed for good, its
        threads have made no progress for 30 seconds, or the provider behind it does not answer.

        Needs no key.
        """
        current = backend()
        connected, info = await current.reachable(), current.info
        body = {
            "status": "ok" if connected else "error",
            "backend_connected": connected,
            "backend": info.backend,
            "model": info.id,
        }
        return JsonResponse(body, 200 if connected else 503)

    return router
