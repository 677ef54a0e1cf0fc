"""Access control: API keys, or only programs on this machine."""

import asyncio
import ipaddress
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shepherd.errors import ConfigError
from shepherd.server.access.current import serving
from shepherd.server.access.key import ApiKey
from shepherd.server.access.keys import Keys
from shepherd.server.access.meter import Meter
from shepherd.server.access.origin import serving_request
from shepherd.server.access.paths import ADMIN_PREFIX, METRICS_PATH, OPEN_PATHS, PathScopes
from shepherd.server.api import error_event, is_stream, request_id_of
from shepherd.server.errors import ApiError
from shepherd.server.responses import ErrorResponse
from shepherd.server.settings import ServerSettings
from shepherd.server.transport.local import is_local_socket
from shepherd.tasks import end_tasks

logger = logging.getLogger(__name__)
_NAME_AND_PORT = r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
_HOST = re.compile(_NAME_AND_PORT, re.ASCII)
_ORIGIN = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*://{_NAME_AND_PORT}", re.ASCII)
_KEY_HEADERS = ("x-api-key", "x-goog-api-key")


@dataclass(frozen=True, slots=True)
class Doors:
    """Who may come in: without `keys` programs of this machine; `meter` keeps keys to limits.

    Without a meter, keys whose tokens or models are limited are refused. `pages` are paths of
    documents without data, which need no key.
    """

    settings: ServerSettings
    keys: Keys | None = None
    meter: Meter | None = None
    pages: frozenset[str] = frozenset()


class Guard:
    """Middleware that admits a request or answers it with an error.

    With keys, every path except the health check needs one with the scopes of the path, and a
    request ends when its key is removed or expires. Without keys, the server listens on loopback,
    unless `insecure` overrides this. The Host and Origin headers must then name this machine. This
    refuses web pages that resolve their name to 127.0.0.1 (DNS rebinding) or that post across
    sites.
    """

    def __init__(self, app: ASGIApp, doors: Doors, scopes: PathScopes | None = None) -> None:
        self._app = app
        self._settings = doors.settings
        self._keys = doors.keys
        self._pages = doors.pages
        self._counts_tokens = doors.meter is not None
        self._meter = doors.meter or Meter()
        self._scopes = scopes or PathScopes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with serving_request(request_id_of(scope), scope["path"]):
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._keys is not None and not self._is_open(scope):
            await self._serve_with_key(self._keys, scope, receive, send)
        elif self._keys is None and (refusal := self._origin_refusal(scope)) is not None:
            await ErrorResponse(refusal)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if path == METRICS_PATH:
            return self._settings.metrics_open
        if path in self._pages and scope["method"] == "GET":
            return True
        steers = path.startswith(f"{ADMIN_PREFIX}/") and is_local_socket(scope)
        return path in OPEN_PATHS or steers

    async def _serve_with_key(self, keys: Keys, scope: Scope, receive: Receive, send: Send) -> None:
        secret = _sent_key(Headers(scope=scope), scope["query_string"])
        try:
            key = _checked_key(secret, keys)
        except ApiError as refusal:
            await ErrorResponse(refusal)(scope, receive, send)
            return
        send = partial(_send_with_headers, self._meter, key, send)
        try:
            await self._admit(key, scope)
        except ApiError as refusal:
            await ErrorResponse(refusal)(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["key_name"] = key.name
        state["key_is_valid"] = partial(_is_valid, keys, secret)
        with serving(key):
            request = RevocableRequest(scope, receive, send)
            await request.serve(self._app, keys, secret)

    async def _admit(self, key: ApiKey, scope: Scope) -> None:
        """Raise ApiError for what the key does not open; count the request otherwise."""
        needed = self._scopes.of(scope["method"], scope["path"])
        missing = needed - key.scopes
        if missing:
            names = " and ".join(sorted(missing))
            message = f"The API key {key.name} does not have the scope that this path needs: "
            raise ApiError(403, message + names, "insufficient_scope")
        if needed and not self._counts_tokens and (key.limits.counts_tokens or key.models):
            message = f"The API key {key.name} has limits that a shared session can't keep."
            raise ApiError(403, message, "insufficient_scope")
        if needed and scope["method"] not in ("GET", "OPTIONS"):
            await self._meter.count_request(key)

    def _origin_refusal(self, scope: Scope) -> ApiError | None:
        if self._settings.insecure or is_local_socket(scope):
            return None
        return _origin_refusal(Headers(scope=scope), self._settings)


async def _send_with_headers(meter: Meter, key: ApiKey, send: Send, message: Message) -> None:
    """Send a message; the start of a response says how much of the limits is left."""
    if message["type"] == "http.response.start":
        headers = MutableHeaders(scope=message)
        for name, value in meter.headers(key).items():
            headers.setdefault(name, value)
    await send(message)


@lru_cache(maxsize=256)
def names_this_machine(host: str) -> bool:
    """Whether a host name or address is a loopback one."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _checked_key(secret: str, keys: Keys) -> ApiKey:
    """The entry of a valid key; raises ApiError."""
    if not secret:
        message = "An API key is needed: send it as `Authorization: Bearer KEY`."
        raise _unauthorized(message)
    try:
        key = keys.find(secret)
    except ConfigError as error:
        logger.error("Nobody is let in: %s", error)
        message = "API keys can't be checked at the moment; the server's log says why."
        raise ApiError(503, message, "keys_unavailable") from error
    if key is None:
        raise _unauthorized("The API key is not valid.")
    if keys.is_expired(key):
        raise _unauthorized("The API key has expired.")
    return key


def _sent_key(headers: Headers, query: bytes) -> str:
    """The key as the clients of the APIs send it, "" for none; Google's put it into the query."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    for name in _KEY_HEADERS:
        if key := headers.get(name, "").strip():
            return key
    return parse_qs(query.decode("latin-1")).get("key", [""])[0].strip()


def _unauthorized(message: str) -> ApiError:
    headers = {"WWW-Authenticate": "Bearer"}
    return ApiError(401, message, "invalid_api_key", headers=headers)


def _origin_refusal(headers: Headers, settings: ServerSettings) -> ApiError | None:
    for host in headers.getlist("host"):
        if not _is_ours(_HOST.fullmatch(host), settings):
            message = f"Requests for host {host!r} are not served without authentication."
            return ApiError(403, message, "host_not_allowed")
    for origin in headers.getlist("origin"):
        if origin in settings.cors_origins or _is_ours(_ORIGIN.fullmatch(origin), settings):
            continue
        message = f"Web pages of origin {origin!r} may not use this server."
        return ApiError(403, message, "origin_not_allowed")
    return None


def _is_ours(parsed: re.Match[str] | None, settings: ServerSettings) -> bool:
    if parsed is None:
        return False
    name = parsed["name"].lower()
    if name.startswith("["):
        name = name[1:-1]
        if ":" not in name:
            return False
    return names_this_machine(name) or name == settings.host.lower()


CHECK_SECONDS = 1.0
"""The interval of checks whether a running request's key still exists; mostly one `stat`."""


class RevocableRequest:
    """Serves one request as long as its key is valid."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._started = False
        self._ended = False

    async def serve(self, app: ASGIApp, keys: Keys, key: str) -> None:
        """Run `app`; if `key` is removed, stop it and report that to the client."""
        work = asyncio.ensure_future(app(self._scope, self._receive, self._watched_send))
        try:
            while not (await asyncio.wait({work}, timeout=CHECK_SECONDS))[0]:
                if not _is_valid(keys, key):
                    await end_tasks(work)
                    await self._report()
                    return
            await work
        finally:
            if not work.done():
                await end_tasks(work)

    async def _watched_send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
        elif not message.get("more_body", False):
            self._ended = True
        await self._send(message)

    async def _report(self) -> None:
        if self._ended:
            return
        error = key_removed()
        if not self._started:
            await ErrorResponse(error)(self._scope, self._receive, self._send)
            return
        last = error_event(self._scope, error).encode() if is_stream(self._scope) else b""
        await self._send({"type": "http.response.body", "body": last, "more_body": False})


def always() -> bool:
    """The validity of a key where none is needed."""
    return True


def key_of_request(request: Request) -> tuple[str, Callable[[], bool]]:
    """The name of a request's key, and whether it is still valid; "" where none is needed.

    Raises ApiError if the key was removed meanwhile.
    """
    state = request.scope.get("state", {})
    if "key_is_valid" not in state:
        return "", always
    if not state["key_name"]:
        raise key_removed()
    return state["key_name"], state["key_is_valid"]


def key_removed() -> ApiError:
    """The error for a key that is removed while its request runs."""
    headers = {"WWW-Authenticate": "Bearer"}
    message = "The API key is not valid any more."
    return ApiError(401, message, "invalid_api_key", headers=headers)


def _is_valid(keys: Keys, key: str) -> bool:
    try:
        return keys.verify(key) is not None
    except ConfigError:
        return False
