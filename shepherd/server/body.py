"""Reads a request's body into a model, with limits on its size and its processing time."""

import asyncio
import re
from collections.abc import Callable, Sized
from typing import Any, ParamSpec, TypeVar, cast

from fastapi import Depends
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json
from starlette.requests import Request

from shepherd import errors, json_text, messages
from shepherd.config.server import ServerSection
from shepherd.server.documents import HAS_PDF, read_documents
from shepherd.server.errors import ApiError, invalid_body

MAX_VALUES = 50_000
"""Values in one body, including nested ones: parsing more would noticeably delay other requests."""

MAX_ESCAPES = 1_000_000
_SLICE = 64 * 1024
_ESCAPED = re.compile(rb"\\[\s\S]")
M = TypeVar("M", bound=BaseModel)
P = ParamSpec("P")
T = TypeVar("T")

SMALL_BYTES = 16 * 1024
"""A body up to this size is parsed on the event loop: that takes less than a millisecond or two."""

MIN_RATE = 16 * 1024
"""The number of bytes of a body that give a client another second."""

_DRAIN_FACTOR = 4
_BUFFER_FACTOR = 16
MANY_PARTS = 500
"""Requests with more messages or items are translated beside the event loop."""

_PARSERS = 2
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|[\s\S])"
)
_JSON_TYPE = re.compile(r"application/[^\s;]+\+json")
_BOM = b"\xef\xbb\xbf"


class RequestModel(BaseModel):
    """The base of request bodies: immutable; unknown fields are ignored.

    The docstring of a field is its description in `/openapi.json`.
    """

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class JsonBody(Struct, frozen=True):
    """A dependency of FastAPI: the body of a request as a `model`."""

    bodies: "BodyReader"
    model: type[BaseModel]
    any_type: bool

    async def __call__(self, request: Request) -> BaseModel:
        return await self.bodies.read(request, self.model, any_type=self.any_type)


class BodyReader:
    """Reads bodies of a limited size; large ones are parsed off the event loop.

    All bodies that are read at one time share `_BUFFER_FACTOR` times the limit. A body has the
    `read_timeout` of the settings to come, and one more second for each `MIN_RATE` bytes.
    """

    def __init__(self, settings: ServerSection, limit: int = 0) -> None:
        """`limit` replaces that of the settings."""
        self._settings = settings
        self._max_bytes = limit or settings.max_body_bytes
        self._buffered_bytes = 0  # of all bodies that are read now
        self._parsers = asyncio.Semaphore(_PARSERS)
        self._document_readers = asyncio.Semaphore(_PARSERS)

    async def read(self, request: Request, model: type[M], *, any_type: bool = False) -> M:
        """The body as a `model`; raises ApiError for anything else, BusyError if too many come.

        With `any_type` programs may send the JSON under any content type; web pages may not.
        """
        _check_headers(request, any_type=any_type)
        body = bytearray()
        try:
            await self._receive(request, body)
            if HAS_PDF.search(body):
                data = await self.run(_object, bytes(body))
                async with self._document_readers:
                    await read_documents(data)
                return await self.run(_validated, data, model)
            if len(body) <= SMALL_BYTES:
                return _validated(_object(bytes(body)), model)
            return await self.run(lambda: _validated(_object(bytes(body)), model))
        finally:
            self._buffered_bytes -= len(body)

    def of(self, model: type[BaseModel], *, any_type: bool = False) -> Any:
        """The dependency of a route that takes a `model` (see `read`)."""
        return Depends(JsonBody(self, model, any_type))

    async def translate(
        self, parts: Sized, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The result of `work`, which runs in a thread if there are many parts of a request."""
        if len(parts) > MANY_PARTS:
            return await self.run(work, *args, **kwargs)
        return work(*args, **kwargs)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of slow `work`, which runs in a thread."""
        async with self._parsers:
            return await asyncio.to_thread(work, *args, **kwargs)

    async def _receive(self, request: Request, body: bytearray) -> None:
        """Fill `body`.

        A body that is slightly too long is read to its end: clients write before they read. The
        others do not begin, or say in a header that they are much too long.
        """
        length = int(request.headers.get("content-length") or 0)  # 0: it comes in chunks
        waits_to_send = request.headers.get("expect", "").lower() == "100-continue"
        if length > self._max_bytes * (1 if waits_to_send else _DRAIN_FACTOR):
            raise self._too_large()
        size, deadline = 0, asyncio.get_running_loop().time() + self._settings.read_timeout
        try:
            async with asyncio.timeout_at(deadline) as timeout:
                async for chunk in request.stream():
                    size += len(chunk)
                    timeout.reschedule(deadline + size / MIN_RATE)
                    if size <= self._max_bytes:
                        self._take(chunk, body)
                    elif size > _DRAIN_FACTOR * self._max_bytes:
                        break
        except TimeoutError as error:
            message = "The request's body took longer than this server waits."
            headers = {"Connection": "close"}
            raise ApiError(408, message, "request_timeout", headers=headers) from error
        if size > self._max_bytes:
            raise self._too_large()

    def _too_large(self) -> ApiError:
        """The error for a body over the limit, after which the connection ends."""
        message = (
            f"The request is larger than the {self._max_bytes:,} bytes that this server takes: "
            "send less at once, or smaller images, or raise server.max_body_bytes there."
        )
        return ApiError(413, message, "request_too_large", headers={"Connection": "close"})

    def _take(self, chunk: bytes, body: bytearray) -> None:
        """Add a part to a body; raises BusyError if all bodies together have too many bytes."""
        if self._buffered_bytes + len(chunk) > _BUFFER_FACTOR * self._max_bytes:
            raise errors.BusyError("Too many large requests are being read; try again later.")
        body += chunk
        self._buffered_bytes += len(chunk)


def _check_headers(request: Request, *, any_type: bool) -> None:
    """Raise ApiError unless the body is plain JSON.

    This also stops web pages: they can't send this type without a preflight request. Programs may
    leave the type out, or send any with `any_type`; pages, which name their origin, may not.
    """
    headers = request.headers
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        message = f"The content encoding {encoding[:40]!r} is not supported; send plain JSON."
        raise ApiError(415, message, "unsupported_media_type", headers={"Connection": "close"})
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    needs_no_type = (any_type or not media_type) and "origin" not in headers
    if needs_no_type or media_type == "application/json" or _JSON_TYPE.fullmatch(media_type):
        return
    received = repr(media_type[:80]) if media_type else "none"
    message = f"The content type must be application/json, got {received}."
    raise ApiError(415, message, "unsupported_media_type")


def _object(body: bytes) -> messages.JsonObject:
    """The JSON object in a body; raises ApiError."""
    check_shape(body)
    try:
        data: object = from_json(_without_lone_surrogates(body), allow_inf_nan=False)
    except ValueError as error:
        message = f"The body is not valid JSON: {error}"
        raise ApiError(400, message, "invalid_json") from error
    if not isinstance(data, dict):
        raise ApiError(400, "The body must be a JSON object.", "invalid_value")
    check_finite(cast(object, data))
    return cast(messages.JsonObject, data)


def _validated(data: messages.JsonObject, model: type[M]) -> M:
    """The object as a `model`; raises ApiError."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise invalid_body(error) from error


def _without_lone_surrogates(body: bytes) -> bytes:
    """Replace surrogates by U+FFFD; a text that was cut inside an emoji contains one."""
    body = body.removeprefix(_BOM)
    return _ESCAPE.sub(_repaired, body) if _SURROGATE.search(body) else body


def _repaired(escape: re.Match[bytes]) -> bytes:
    """Only a lone surrogate is a group: pairs and other escapes are matched to be skipped."""
    return rb"\ufffd" if escape[1] else escape[0]


def check_shape(body: bytes) -> None:
    """Raise ApiError for a body that takes too long to parse.

    Values are estimated by what stands before them: a comma or an opening bracket outside of
    strings. It works in slices, so that other threads can run in between.
    """
    if body.count(b"\\") > MAX_ESCAPES:
        raise _too_much(f"more than {MAX_ESCAPES:,} backslashes")
    values, carry, in_string = 1, b"", False
    for start in range(0, len(body), _SLICE):
        piece = _ESCAPED.sub(b"", carry + body[start : start + _SLICE])
        carry = piece[-1:] if piece.endswith(b"\\") else b""  # the rest is in the next slice
        parts = piece.split(b'"')  # by turns outside of strings and within them
        outside = b"".join(parts[in_string::2])
        in_string ^= len(parts) % 2 == 0  # an odd number of quotes
        values += sum(map(outside.count, (b",", b"{", b"[")))
        if values > MAX_VALUES:
            raise _too_much(f"more than {MAX_VALUES:,} values")


def check_finite(value: object) -> None:
    """Raise ApiError for a number that is too large for a float, which JSON reads as infinite."""
    if not json_text.is_finite(value):
        raise ApiError(400, "The body has a number that is too large.", "invalid_json")


def _too_much(what: str) -> ApiError:
    message = f"The request has {what}: send less at once."
    return ApiError(400, message, "invalid_value")
