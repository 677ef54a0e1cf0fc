"""`GET /health`: whether the server can answer."""

from fastapi import APIRouter

from shepherd.server.context import ServerContext
from shepherd.server.wire import JsonResponse

PATH = "/health"


def health_router(context: ServerContext) -> APIRouter:
    """The health route."""
    router = APIRouter()

    @router.get(PATH)
    async def health() -> JsonResponse:
        """Whether the server can answer: 200, or 503 when the backend has failed for good.

        Needs no key.
        """
        alive = context.backend.alive
        info = context.backend.info
        body = {
            "status": "ok" if alive else "error",
            "backend_connected": alive,
            "backend": info.backend,
            "model": info.id,
        }
        return JsonResponse(body, 200 if alive else 503)

    return router
