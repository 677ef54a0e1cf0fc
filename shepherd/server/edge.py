"""Middleware around every request: HEAD, a final slash, CORS."""

from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shepherd.server.api import ErrorShapes
from shepherd.server.errors import ApiError
from shepherd.server.operation.request_log import note_wire
from shepherd.server.responses import ErrorResponse

_UNPREFIXED = "/responses"


class UniformRequests:
    """Middleware: a slash at the end of a path is ignored, HEAD is GET without a body.

    `/responses` and the paths below it are those of `/v1`, as llama.cpp's server has them.

    It also notes in the scope which API the request belongs to, see `error_reply`.
    """

    def __init__(self, app: ASGIApp, errors: ErrorShapes) -> None:
        self._app = app
        self._errors = errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        if len(path) > 1 and path.endswith("/"):
            path = path[:-1]
        if path == _UNPREFIXED or path.startswith(f"{_UNPREFIXED}/"):
            path = f"/v1{path}"
        scope = {**scope, "path": path}
        self._errors.attach(scope)
        note_wire(scope)
        if scope["method"] == "HEAD":
            head = _Head(receive, send)
            await self._app({**scope, "method": "GET"}, head.receive, head.send)
        else:
            await self._app(scope, receive, send)


class _Head:
    """Sends only the headers of an answer; the application then sees a disconnected client."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._ended = False

    async def receive(self) -> Message:
        return {"type": "http.disconnect"} if self._ended else await self._receive()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
            self._ended = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class JsonCors(CORSMiddleware):
    """Starlette's CORS, which refuses in an error object too."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """The answer to a browser's preflight request."""
        response = super().preflight_response(request_headers)
        if response.status_code < HTTPStatus.BAD_REQUEST:
            return response
        message = "This page may not send such a request; see server.cors_origins."
        headers = {
            name: value
            for name, value in response.headers.items()
            if name not in ("content-length", "content-type")
        }
        return ErrorResponse(
            ApiError(HTTPStatus.FORBIDDEN, message, "origin_not_allowed", headers=headers)
        )
