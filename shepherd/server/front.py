"""The outermost layer of the server: every request passes here first, and every answer last.

It stands around FastAPI, so that nothing is without an id, a line in the log and a count: also
what FastAPI refuses or fails at. It makes the one record of a request that all later layers use,
and refuses what uvicorn lets through although it is no request that the server can take.
"""

import logging
import re
import secrets
from contextlib import nullcontext
from typing import cast

from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shepherd.server.access.meter import Meter
from shepherd.server.api import ErrorShapes
from shepherd.server.errors import ApiError
from shepherd.server.operation.log import REQUEST
from shepherd.server.operation.metrics import Metrics
from shepherd.server.operation.traces import NO_SPAN, Span, Traces
from shepherd.server.record import HUNG_UP, RequestRecord, recording
from shepherd.server.responses import ErrorResponse
from shepherd.server.settings import ServerSettings

logger = logging.getLogger(__name__)
ID_HEADER = "x-request-id"
_CLIENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
"""Ids that clients may choose: no characters that could forge a line of a log."""

_UNPREFIXED = "/responses"
_CLOSE = {"Connection": "close"}


class Front(Struct, frozen=True, eq=False):
    """Serves requests with a record of each.

    The id is the client's, if it sent a usable `x-request-id`, or a new one. Status 499 means that
    the client disconnected before the end of the answer. A stream that ends with an error has the
    status of the error. A slash at the end of a path is ignored, HEAD is GET without a body, and
    `/responses` and the paths below it are those of `/v1`, as llama.cpp's server has them.
    """

    app: ASGIApp
    settings: ServerSettings
    errors: ErrorShapes
    metrics: Metrics
    meter: Meter
    traces: Traces | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request with a record of it, which counts once it has ended."""
        if scope["type"] != "http":  # of the server itself, such as its start
            await self.app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), _path(scope["path"])
        record = self.errors.record(_request_id(headers), path, scope["headers"])
        is_head = scope["method"] == "HEAD"
        scope = {**scope, "path": path, "method": "GET" if is_head else scope["method"]}
        reply = _Reply(record, self.meter, receive, send, is_head)
        spanning = nullcontext(NO_SPAN)
        if self.traces is not None:
            spanning = self.traces.request(headers, scope["method"])
        with recording(record, scope), self.metrics.count_running(), spanning as span:
            try:
                refusal = self._refusal(scope, headers)
                app = self.app if refusal is None else ErrorResponse(refusal)
                # a HEAD request is over with the headers, which only our `receive` knows
                await app(scope, reply.receive if is_head else receive, reply.send)
            finally:
                self._note_end(record, scope, span)

    def _refusal(self, scope: Scope, headers: Headers) -> ApiError | None:
        """Why a request is not served at all, None if it is."""
        settings, version = self.settings, scope["http_version"]
        hosts = headers.getlist("host")
        if version not in ("1.0", "1.1", "2"):
            return _malformed("Only versions 1.0 and 1.1 of HTTP are served.", 505)
        if len(hosts) > 1 or (version == "1.1" and not hosts):
            return _malformed("A request must have one Host header.")
        if version == "1.0" and "transfer-encoding" in headers:
            return _malformed("HTTP/1.0 has no Transfer-Encoding.")
        pairs = headers.raw
        size = sum(len(name) + len(value) for name, value in pairs)
        size += len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if len(pairs) > settings.max_headers or size > settings.max_header_bytes:
            message = (
                f"There are more than {settings.max_headers} headers, or they are larger than "
                f"{settings.max_header_bytes:,} bytes."
            )
            return ApiError(431, message, "headers_too_large", headers=dict(_CLOSE))
        if 0 < settings.max_connections < self.metrics.connections:  # 0: without a limit
            message = "There are too many connections; close some, or try again later."
            busy = {"Retry-After": "1", **_CLOSE}
            return ApiError(503, message, "too_many_connections", headers=busy)
        return None

    def _note_end(self, record: RequestRecord, scope: Scope, span: Span) -> None:
        """Count a request that has ended, and write its line of the log and its span."""
        self.metrics.count_request(record)
        fields = _fields(record, scope)
        logger.info(
            "%s %s %s %d %.3fs %s",
            *(fields[name] for name in ("client", "method", "path", "status")),
            record.seconds,
            record.id,
            extra={REQUEST: fields},
        )
        _describe(span, record, fields["path"])


class _Reply(Struct, eq=False):
    """Sends a response, and notes its status once it was sent whole.

    The headers have the id of the request, and how much of the limits of its key is left. To HEAD
    it sends only the headers; the application then sees a client that has left.
    """

    record: RequestRecord
    meter: Meter
    from_client: Receive
    to_client: Send
    is_head: bool
    status: int = 0

    async def receive(self) -> Message:
        """What the client sends; after the end of the response, that it has left."""
        return {"type": "http.disconnect"} if self.record.has_ended else await self.from_client()

    async def send(self, message: Message) -> None:
        """Send a part of the response; what follows its end is dropped, as the body for HEAD."""
        record = self.record
        if record.has_ended:
            return
        if message["type"] == "http.response.start":
            self.status, record.has_begun = message["status"], True
            headers = MutableHeaders(scope=message)
            headers[ID_HEADER] = headers["request-id"] = record.id
            if record.key is not None:
                for name, value in self.meter.limits.headers(record.key).items():
                    headers.setdefault(name, value)  # a refusal has its own
            await self.to_client(message)
            if not self.is_head:
                return  # the body follows
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self.to_client(message)
        if not message.get("more_body", False):
            record.has_ended = True
            # an answer that broke off has begun with 200
            record.status = record.failure or self.status


def _path(path: str) -> str:
    """The path by which a request is known: `/v1/responses` for `/responses/`."""
    if len(path) > 1 and path.endswith("/"):
        path = path[:-1]
    if path == _UNPREFIXED or path.startswith(f"{_UNPREFIXED}/"):
        path = f"/v1{path}"
    return path


def _malformed(message: str, status: int = 400) -> ApiError:
    return ApiError(status, message, "invalid_http", headers=dict(_CLOSE))


def _request_id(headers: Headers) -> str:
    """The id that the client has sent, or a new one."""
    sent = headers.getlist(ID_HEADER)
    if len(sent) == 1 and _CLIENT_ID.fullmatch(sent[0]):
        return sent[0]
    return f"req_{secrets.token_hex(8)}"


def _fields(record: RequestRecord, scope: Scope) -> dict[str, object]:
    """What a line of the log has; neither the query, in which some clients send keys, nor texts."""
    fields: dict[str, object] = {
        "request_id": record.id,
        "client": cast(tuple[str, int], scope.get("client") or ("-", 0))[0],
        "method": scope["method"],
        "path": cast(bytes, scope.get("raw_path") or b"").decode("ascii", "replace"),
        "status": record.status,
        "seconds": round(record.seconds, 6),
        "wire": record.wire,
        "key": record.owner or None,
        "model": record.model or None,
    }
    if record.model:
        fields |= {
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "generated_tokens": record.completion_tokens,
        }
    if record.first_token is not None:
        fields["first_token_seconds"] = round(record.first_token, 6)
    return fields


def _describe(span: Span, record: RequestRecord, path: object) -> None:
    """Add to its span what a request was, and how it ended."""
    span.note(
        http__response__status_code=record.status,
        url__path=str(path),
        shepherd__request_id=record.id,
        shepherd__wire=record.wire,
    )
    if record.model:
        span.note(
            gen_ai__response__model=record.model,
            gen_ai__usage__input_tokens=record.prompt_tokens,
            gen_ai__usage__output_tokens=record.completion_tokens,
        )
    if record.status >= HUNG_UP:  # the server has failed, or the client did not wait
        span.fail(str(record.status))
