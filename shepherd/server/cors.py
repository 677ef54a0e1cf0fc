"""Which web pages may call the server: Starlette's CORS, with refusals in the APIs' shapes."""

from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from shepherd.conversation.shared.protocol import CLIENT_HEADER, REQUEST_HEADER
from shepherd.server.access.limiter import HEADER_NAMES
from shepherd.server.agent.options import EVICTED_HEADER
from shepherd.server.errors import ApiError
from shepherd.server.front import ID_HEADER
from shepherd.server.responses import ErrorResponse
from shepherd.server.settings import ServerSettings

EXPOSED_HEADERS = (*HEADER_NAMES, ID_HEADER, "request-id", "x-should-retry")
"""Headers of responses that web pages may read."""

ANY_ORIGIN = "*"
"""In `cors_origins`: the answer names the origin that the page has, as llama.cpp's server does."""

LOCAL_ORIGINS = "localhost"
"""In `cors_origins`: pages of this machine, on any port."""

_ORIGIN_PATTERNS = {
    ANY_ORIGIN: ".*",
    LOCAL_ORIGINS: r"https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?",
}


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


def cors_options(settings: ServerSettings) -> dict[str, Any]:
    """The arguments of `JsonCors` for the origins of the settings."""
    origins = settings.cors_origins
    patterns = [_ORIGIN_PATTERNS[origin] for origin in origins if origin in _ORIGIN_PATTERNS]
    return {
        "allow_origins": [origin for origin in origins if origin not in _ORIGIN_PATTERNS],
        "allow_origin_regex": "|".join(f"(?:{pattern})" for pattern in patterns) or None,
        "allow_methods": ["GET", "POST", "DELETE", "OPTIONS"],
        "allow_headers": ["*"],
        "expose_headers": [CLIENT_HEADER, REQUEST_HEADER, EVICTED_HEADER, *EXPOSED_HEADERS],
    }
