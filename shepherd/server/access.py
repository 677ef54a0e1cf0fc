"""One line per request in the log, without anything that was said, and an id for each."""

import logging
import secrets
import time
from typing import cast

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

HUNG_UP = 499


class AccessLog:
    """Middleware that logs client, method, path, status, seconds and the id it gave out.

    Status 499 means that the client hung up before it was answered.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(8)}"
        status = HUNG_UP
        started = time.perf_counter()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            logger.info(
                "%s %s %s %d %.3fs %s",
                cast(tuple[str, int], scope.get("client") or ("-", 0))[0],
                scope["method"],
                cast(bytes, scope.get("raw_path", b"")).decode("ascii", "replace"),
                status,
                time.perf_counter() - started,
                request_id,
            )
