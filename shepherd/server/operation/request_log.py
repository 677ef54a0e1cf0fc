"""The outermost middleware: the ids, the log lines, the counts and the spans of requests."""

import logging
import re
import secrets
from contextlib import nullcontext
from typing import cast

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shepherd.server.api import api_name, note_request_id, stream_error
from shepherd.server.operation.log import REQUEST
from shepherd.server.operation.metrics import Metrics
from shepherd.server.operation.record import SERVER, RequestRecord, recording
from shepherd.server.operation.traces import NO_SPAN, Span, Traces

logger = logging.getLogger(__name__)
ID_HEADER = "x-request-id"
_CLIENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
"""Ids that clients may choose: no characters that could forge a line of a log."""


class RequestLog:
    """Serves requests with a record of each.

    The id is the client's, if it sent a usable `x-request-id`, or a new one. Status 499 means that
    the client disconnected before the end of the answer. A stream that ends with an error has the
    status of the error.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, traces: Traces | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        record = RequestRecord(_request_id(headers))
        note_request_id(scope, record.id)
        scope["state"]["record"] = record
        traces = self._traces
        spanning = nullcontext(NO_SPAN)
        if traces is not None:
            spanning = traces.request(headers, scope["method"])
        with recording(record), self._metrics.count_running(), spanning as span:
            reply = _Reply(record, send)
            try:
                await self._app(scope, receive, reply.send)
            finally:
                self._note_end(record, reply, scope, span)

    def note_refusal(self, status: int, client: str) -> str:
        """Log and count a request that was refused before it was whole; returns its id."""
        record = RequestRecord(_new_id(), status=status)
        self._metrics.count_request(record)
        fields = {"request_id": record.id, "client": client or "-", "status": status}
        fields |= {"wire": record.wire, "method": None, "path": None, "key": None, "model": None}
        message = "%s - - %d - %s"
        logger.info(message, client or "-", status, record.id, extra={REQUEST: fields})
        return record.id

    def _note_end(self, record: RequestRecord, reply: "_Reply", scope: Scope, span: Span) -> None:
        if reply.complete:
            record.status = stream_error(scope) or reply.status
        record.key = scope["state"].get("key_name", "")
        self._metrics.count_request(record)
        fields = _fields(record, scope)
        logger.info(
            "%s %s %s %d %.3fs %s",
            *(fields[name] for name in ("client", "method", "path", "status")),
            record.seconds,
            record.id,
            extra={REQUEST: fields},
        )
        _describe(span, record, scope)


class _Reply:
    """Sends a response with the id of its request; `complete` tells whether it was sent whole."""

    def __init__(self, record: RequestRecord, send: Send) -> None:
        self.status = 0
        self.complete = False
        self._record = record
        self._scope_send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers[ID_HEADER] = headers["request-id"] = self._record.id
        await self._scope_send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.complete = True


def note_wire(scope: Scope) -> None:
    """Note the API of a request in its record."""
    record = cast(RequestRecord | None, scope.get("state", {}).get("record"))
    if record is not None:
        record.wire = api_name(scope) or SERVER


def _request_id(headers: Headers) -> str:
    sent = headers.getlist(ID_HEADER)
    if len(sent) == 1 and _CLIENT_ID.fullmatch(sent[0]):
        return sent[0]
    return _new_id()


def _new_id() -> str:
    return f"req_{secrets.token_hex(8)}"


def _fields(record: RequestRecord, scope: Scope) -> dict[str, object]:
    """What a line of the log has; neither the query, in which some clients send keys, nor texts."""
    fields: dict[str, object] = {
        "request_id": record.id,
        "client": cast(tuple[str, int], scope.get("client") or ("-", 0))[0],
        "method": scope["method"],
        "path": cast(bytes, scope.get("raw_path", b"")).decode("ascii", "replace"),
        "status": record.status,
        "seconds": round(record.seconds, 6),
        "wire": record.wire,
        "key": record.key or None,
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


def _describe(span: Span, record: RequestRecord, scope: Scope) -> None:
    span.note(
        http__response__status_code=record.status,
        url__path=cast(bytes, scope.get("raw_path", b"")).decode("ascii", "replace"),
        shepherd__request_id=record.id,
        shepherd__wire=record.wire,
    )
    if record.model:
        span.note(
            gen_ai__response__model=record.model,
            gen_ai__usage__input_tokens=record.prompt_tokens,
            gen_ai__usage__output_tokens=record.completion_tokens,
        )
    if record.status >= 499:
        span.fail(str(record.status))
