"""Ends an answer whose key was removed while it was on its way."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shepherd.errors import ConfigError
from shepherd.server.errors import ApiError
from shepherd.server.json_response import JsonResponse
from shepherd.server.keys import KeyStore
from shepherd.server.sse import frame
from shepherd.tasks import end_tasks

CHECK_SECONDS = 1.0
"""How often the key of a request that runs is looked up again; mostly one `stat`."""


class RevocableRequest:
    """Serves one request for as long as its key is valid."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._started = False
        self._ended = False
        self._streams = False

    async def serve(self, app: ASGIApp, keys: KeyStore, key: str) -> None:
        """Run `app`; when `key` is removed, stop it and tell the client."""
        work = asyncio.ensure_future(app(self._scope, self._receive, self._watched_send))
        try:
            while not (await asyncio.wait({work}, timeout=CHECK_SECONDS))[0]:
                if not _is_valid(keys, key):
                    await end_tasks(work)
                    await self._tell()
                    return
            await work
        finally:
            if not work.done():
                await end_tasks(work)

    async def _watched_send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            types = [v for n, v in message["headers"] if n.lower() == b"content-type"]
            self._streams = any(t.startswith(b"text/event-stream") for t in types)
        elif not message.get("more_body", False):
            self._ended = True
        await self._send(message)

    async def _tell(self) -> None:
        if self._ended:
            return
        error = key_removed()
        if not self._started:
            response = JsonResponse(error.body(), error.status, error.headers)
            await response(self._scope, self._receive, self._send)
            return
        last = frame(error.body()).encode() if self._streams else b""
        await self._send({"type": "http.response.body", "body": last, "more_body": False})


def key_removed() -> ApiError:
    """What is told when the key goes while a request runs."""
    headers = {"WWW-Authenticate": "Bearer"}
    message = "The API key is not valid any more."
    return ApiError(401, message, "invalid_api_key", type="authentication_error", headers=headers)


def _is_valid(keys: KeyStore, key: str) -> bool:
    try:
        return keys.verify(key) is not None
    except ConfigError:
        return False
