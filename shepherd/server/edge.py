"""What is made the same of every request before it is looked at: HEAD, a slash at the end, CORS."""

from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shepherd.server.errors import ApiError
from shepherd.server.json_response import JsonResponse


class UniformRequests:
    """Middleware: one slash at the end of a path counts for nothing, HEAD is GET without a body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        if len(path) > 1 and path.endswith("/"):
            scope = {**scope, "path": path[:-1]}
        if scope["method"] == "HEAD":
            head = _Head(receive, send)
            await self._app({**scope, "method": "GET"}, head.receive, head.send)
        else:
            await self._app(scope, receive, send)


class _Head:
    """Sends the head of an answer; to the application the client has hung up behind it."""

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
        """The answer to a browser that asks before it sends."""
        response = super().preflight_response(request_headers)
        if response.status_code < HTTPStatus.BAD_REQUEST:
            return response
        message = "This page may not send such a request; see server.cors_origins."
        error = ApiError(HTTPStatus.FORBIDDEN, message, "origin_not_allowed")
        headers = {
            name: value
            for name, value in response.headers.items()
            if name not in ("content-length", "content-type")
        }
        return JsonResponse(error.body(), error.status, headers)
