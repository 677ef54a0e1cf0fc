"""Access control: API keys, or only programs on this machine.

It is a middleware and no dependency of the routes, so that it also stands before paths that do not
exist, those of plugins, and what FastAPI serves itself: what is not named here is closed.
"""

import asyncio
import ipaddress
import logging
import re
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from msgspec import Struct, field
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from shepherd.backends.tenant import serving_tenant
from shepherd.config.section import SharedPrefix
from shepherd.conversation.shared.updates import CLIENT_HEADER, REQUEST_HEADER
from shepherd.errors import ConfigError
from shepherd.server import errors, responses
from shepherd.server.access import limits, paths
from shepherd.server.access.key import ApiKey, KeyScope
from shepherd.server.access.keys import Admission, Keys
from shepherd.server.access.meter import Meter
from shepherd.server.front import ID_HEADER
from shepherd.server.operation.lifecycle import Lifecycle
from shepherd.server.record import EVICTED_HEADER, RequestRecord, record_of
from shepherd.server.settings import ServerSettings
from shepherd.tasks import end_tasks

logger = logging.getLogger(__name__)
_NAME_AND_PORT = r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
_HOST = re.compile(_NAME_AND_PORT, re.ASCII)
_ORIGIN = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*://{_NAME_AND_PORT}", re.ASCII)
_KEY_HEADERS = ("x-api-key", "x-goog-api-key")

_RESERVING = {KeyScope.CHAT, KeyScope.EMBED}
"""The scopes of paths whose requests reserve tokens."""

CHECK_SECONDS = 1.0
"""The interval of checks whether a running request's key still exists; mostly one `stat`."""


class Doors(Struct, frozen=True):
    """Who may come in: without `keys` programs of this machine; `meter` keeps keys to limits.

    Unless the server `counts_tokens`, keys whose tokens or models are limited are refused. `pages`
    are paths of documents without data, which need no key. `scopes` are those that each path needs.
    """

    settings: ServerSettings
    meter: Meter
    keys: Keys | None = None
    counts_tokens: bool = True
    pages: frozenset[str] = frozenset()
    scopes: paths.PathScopes = field(default_factory=paths.PathScopes)


class Guard(Struct, frozen=True, eq=False):
    """Middleware that admits a request or answers it with an error.

    With keys, every path except the health check needs one with the scopes of the path, and a
    request ends when its key is removed or expires. Without keys, the server listens on loopback,
    unless `insecure` overrides this. The Host and Origin headers must then name this machine. This
    refuses web pages that resolve their name to 127.0.0.1 (DNS rebinding) or that post across
    sites. What the `lifecycle` does not allow now is refused last.
    """

    app: ASGIApp
    doors: Doors
    lifecycle: Lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that may come in, as long as its key is valid; refuse any other."""
        if scope["type"] != "http":  # of the server itself, such as its start
            await self.app(scope, receive, send)
            return
        record = record_of(scope)
        try:
            await self._admit(record, scope)
        except errors.ApiError as refusal:
            await responses.ErrorResponse(refusal)(scope, receive, send)
            return
        if record.admission is None:  # no key is needed, so none can be removed
            await self.app(scope, receive, send)
        else:
            key, sharing = record.admission.key, self.doors.settings.shared_prefix
            with serving_tenant(key.tenant(shares_prompts=sharing is SharedPrefix.PROMPT)):
                try:
                    await self._serve_while_valid(record.admission, scope, receive, send)
                finally:
                    if record.is_uncounted:  # it has reserved no tokens, as a bad request
                        record.is_uncounted = False
                        self.doors.meter.limits.settle_tokens(key, 0, 0, requests=1)

    async def _admit(self, record: RequestRecord, scope: Scope) -> None:
        """Raise ApiError for a request that is not served; count it otherwise."""
        headers, keys = Headers(scope=scope), self.doors.keys
        if keys is None:
            # web pages of elsewhere are refused; no page reaches a Unix socket
            if not (self.doors.settings.insecure or is_local_socket(scope)):
                _check_origin(headers, self.doors.settings)
        elif not self._is_open(scope):
            secret = _sent_key(headers, scope["query_string"])
            record.admission = _checked_key(secret, keys)
            await self._check_key(record, record.admission.key, scope)
        refusal = self.lifecycle.refusal(scope["method"], scope["path"])
        if refusal is not None:
            raise refusal

    def _is_open(self, scope: Scope) -> bool:
        """Whether a path needs no key, although others do."""
        path: str = scope["path"]
        if path == paths.METRICS_PATH:
            return self.doors.settings.metrics_open
        if path in self.doors.pages and scope["method"] == "GET":
            return True
        # `shepherd ctl` of the server's own user comes over the Unix socket, without a key
        is_ctl = path.startswith(f"{paths.ADMIN_PREFIX}/") and is_local_socket(scope)
        return path in paths.OPEN_PATHS or is_ctl

    async def _check_key(self, record: RequestRecord, key: ApiKey, scope: Scope) -> None:
        """Raise ApiError for what the key does not open; count the request otherwise."""
        needed = self.doors.scopes.of(scope["method"], scope["path"])
        missing = needed - key.scopes
        if missing:
            names = " and ".join(sorted(missing))
            message = f"The API key {key.name} does not have the scope that this path needs: "
            raise errors.ApiError(403, message + names, "insufficient_scope")
        is_limited = key.limits.counts_tokens or key.models
        # a path that needs no scope, as a list of models, does not use the model
        if needed and is_limited and not self.doors.counts_tokens:
            message = f"The API key {key.name} has limits that a shared session can't keep."
            raise errors.ApiError(403, message, "insufficient_scope")
        # also where any key is enough, as for the tokens of a text
        if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            reserves = scope["method"] == "POST" and not needed.isdisjoint(_RESERVING)
            counting = self.doors.meter.limits.count_request(key, reserves=reserves)
            record.is_uncounted = not await counting

    async def _serve_while_valid(
        self, admission: Admission, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve the request; if its key is removed, stop it and report that to the client."""
        work = asyncio.ensure_future(self.app(scope, receive, send))
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=CHECK_SECONDS)
                if not work.done() and not admission.is_valid():
                    await end_tasks(work)
                    await _report_removed_key(scope, receive, send)
                    return
            await work
        finally:
            await end_tasks(work)  # it still runs if this task was cancelled


def is_local_socket(scope: Scope) -> bool:
    """Whether a request came over the Unix socket, which only the server's user can open."""
    server = scope.get("server")
    return server is not None and server[1] is None


@lru_cache(maxsize=256)
def names_this_machine(host: str) -> bool:
    """Whether a host name or address is a loopback one."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _checked_key(secret: str, keys: Keys) -> Admission:
    """The admission of a valid key; raises ApiError."""
    if not secret:
        message = "An API key is needed: send it as `Authorization: Bearer KEY`."
        raise _unauthorized(message)
    try:
        key = keys.find(secret)
    except ConfigError as error:
        logger.error("Nobody is let in: %s", error)
        message = "API keys can't be checked at the moment; the server's log says why."
        raise errors.ApiError(503, message, "keys_unavailable") from error
    if key is None:
        raise _unauthorized("The API key is not valid.")
    if keys.is_expired(key):
        raise _unauthorized("The API key has expired.")
    return Admission(key, keys, secret)


def _sent_key(headers: Headers, query: bytes) -> str:
    """The key as the clients of the APIs send it, "" for none; Google's put it into the query."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    for name in _KEY_HEADERS:
        if key := headers.get(name, "").strip():
            return key
    return parse_qs(query.decode("latin-1")).get("key", [""])[0].strip()


def _unauthorized(message: str) -> errors.ApiError:
    headers = {"WWW-Authenticate": "Bearer"}
    return errors.ApiError(401, message, "invalid_api_key", headers=headers)


def _check_origin(headers: Headers, settings: ServerSettings) -> None:
    """Raise ApiError unless the request is by a program or a page of this machine."""
    for host in headers.getlist("host"):
        if not _is_ours(_HOST.fullmatch(host), settings):
            message = f"Requests for host {host!r} are not served without authentication."
            raise errors.ApiError(403, message, "host_not_allowed")
    for origin in headers.getlist("origin"):
        if origin in settings.cors_origins or _is_ours(_ORIGIN.fullmatch(origin), settings):
            continue
        message = f"Web pages of origin {origin!r} may not use this server."
        raise errors.ApiError(403, message, "origin_not_allowed")


def _is_ours(parsed: re.Match[str] | None, settings: ServerSettings) -> bool:
    """Whether a Host or an Origin, as its pattern has matched it, names this machine."""
    if parsed is None:
        return False
    name = parsed["name"].lower()
    if name.startswith("["):
        name = name[1:-1]
        if ":" not in name:  # brackets are for IPv6 addresses only
            return False
    return names_this_machine(name) or name == settings.host.lower()


async def _report_removed_key(scope: Scope, receive: Receive, send: Send) -> None:
    """End a response whose key was removed with an error, as far as that is still possible."""
    record, error = record_of(scope), _unauthorized("The API key is not valid any more.")
    if not record.has_begun:
        await responses.ErrorResponse(error)(scope, receive, send)
    elif not record.has_ended:
        # a stream has a form for errors; a body of another kind just ends
        last = record.error_event(error).encode() if record.streams else b""
        await send({"type": "http.response.body", "body": last, "more_body": False})


EXPOSED_HEADERS = (*limits.HEADER_NAMES, ID_HEADER, "request-id", "x-should-retry")
"""Headers of responses that web pages may read."""

ANY_ORIGIN = "*"
"""In `cors_origins`: the answer names the origin that the page has, as llama.cpp's server does."""

LOCAL_ORIGINS = "localhost"
"""In `cors_origins`: pages of this machine, on any port."""

_ORIGIN_PATTERNS = {
    ANY_ORIGIN: ".*",
    LOCAL_ORIGINS: r"https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?",
}


class OpenCors(CORSMiddleware):
    """Starlette's CORS, which answers a preflight of any page, as llama.cpp's server does.

    A browser lets a page send its request only if the answer names the page's origin.
    """

    def preflight_response(self, request_headers: Headers) -> Response:
        """The answer to a browser's preflight request."""
        response = super().preflight_response(request_headers)
        response.status_code = HTTPStatus.OK
        return response


def cors_options(settings: ServerSettings) -> dict[str, Any]:
    """The arguments of `OpenCors` for the origins of the settings."""
    origins = settings.cors_origins
    patterns = [_ORIGIN_PATTERNS[origin] for origin in origins if origin in _ORIGIN_PATTERNS]
    return {
        "allow_origins": [origin for origin in origins if origin not in _ORIGIN_PATTERNS],
        "allow_origin_regex": "|".join(f"(?:{pattern})" for pattern in patterns) or None,
        "allow_methods": ["GET", "POST", "DELETE", "OPTIONS"],
        "allow_headers": ["*"],
        "expose_headers": [CLIENT_HEADER, REQUEST_HEADER, EVICTED_HEADER, *EXPOSED_HEADERS],
    }
