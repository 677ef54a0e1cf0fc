"""Reads a request's body into a model, with a limit on its size."""

import json
import re
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from shepherd.server.errors import ApiError, invalid_body

M = TypeVar("M", bound=BaseModel)

_DRAIN_FACTOR = 4

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


async def read_json(request: Request, model: type[M], limit: int) -> M:
    """The body as a `model`; raises ApiError when it is none, or longer than `limit` bytes."""
    _check_content_type(request)
    body = await _read(request, limit)
    try:
        return model.model_validate_json(_without_lone_surrogates(body))
    except ValidationError as error:
        raise invalid_body(error) from error


def _check_content_type(request: Request) -> None:
    """Only JSON, also because a web page can send nothing else without being asked first."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given == "application/json" or (
        given.startswith("application/") and given.endswith("+json")
    ):
        return
    found = f"'{given}'" if given else "none"
    message = f"The content type must be application/json, got {found}."
    raise ApiError(415, message, "unsupported_media_type")


async def _read(request: Request, limit: int) -> bytes:
    """The body; one that is too long is read to its end if that is near, so that the client,
    which writes before it reads, gets to see the answer."""
    body = bytearray()
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            body += chunk
        elif size > _DRAIN_FACTOR * limit:
            break
    if size > limit:
        message = (
            f"The request is larger than the {limit:,} bytes that this server takes: send less at "
            "once, or smaller images, or raise server.max_body_bytes there."
        )
        raise ApiError(413, message, "request_too_large", headers={"Connection": "close"})
    return bytes(body)


def _without_lone_surrogates(body: bytes) -> bytes:
    """Text that was cut inside an emoji comes as half a pair: it becomes U+FFFD."""
    if not _SURROGATE.search(body):
        return body
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False)
    except (ValueError, RecursionError):
        return body  # not JSON: the validation says so
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
