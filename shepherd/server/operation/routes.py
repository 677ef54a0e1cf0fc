"""`GET /metrics`: the measurements of the server."""

import time

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.server.access.paths import METRICS_PATH
from shepherd.server.operation.metrics import Metrics


def metrics_router(metrics: Metrics) -> APIRouter:
    """The route for Prometheus."""
    router, started = APIRouter(), str(int(time.time()))

    @router.get(METRICS_PATH)
    async def read_metrics(request: Request) -> Response:
        """The measurements in the format of Prometheus.

        A key needs the scope `admin`, unless `server.metrics_open` is set.
        """
        from shepherd.server.operation.exposition import exposition

        content, media_type = exposition(metrics, request.headers.get("accept", ""))
        headers = {"content-type": media_type, "process-start-time-unix": started}
        return Response(content, headers=headers)

    return router
