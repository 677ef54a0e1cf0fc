"""The parts of an API of the server: its routes, its paths, and the shape of its errors."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias, cast

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import Match
from starlette.types import Scope

from shepherd.messages import JsonObject
from shepherd.server.errors import ApiError
from shepherd.server.settings import ServerContext

_STATE_KEY = "error_shape"
_STREAM_KEY = "stream"
_ID_KEY = "request_id"
_NAME_KEY = "api_name"
_ERROR_KEY = "stream_error"

RawHeaders: TypeAlias = Iterable[tuple[bytes, bytes]]
"""Headers as ASGI has them: names in lower case."""


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error as an HTTP response with a body in JSON."""

    status: int
    body: JsonObject
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class ErrorShape(Protocol):
    """The format in which one API reports errors."""

    def reply(self, error: ApiError) -> ErrorReply:
        """The response for an error before anything was sent."""
        ...

    def event(self, error: ApiError) -> str:
        """The last frame of a stream that the error ends (see `frame`)."""
        ...


@dataclass(frozen=True, slots=True)
class Api:
    """One API; `shepherd.server.app.APIS` lists the served ones.

    `paths` are the paths that belong to it, each with all paths below it; they decide the shape of
    errors. `pattern` matches further ones, which lie among those of another API; with `header`,
    only requests that carry it count. `bodies` are the models of request bodies by path, for the
    reference page. `name` is that in logs and metrics; APIs may share one.
    """

    paths: Sequence[str]
    errors: ErrorShape
    routers: Callable[[ServerContext], Sequence[APIRouter]]
    bodies: Mapping[str, type[BaseModel]] = field(default_factory=dict[str, type[BaseModel]])
    pattern: re.Pattern[str] | None = None
    header: str = ""
    name: str = ""

    def claims(self, path: str, headers: RawHeaders) -> bool:
        """Whether a request is this API's by its pattern and header."""
        if self.pattern is None or self.pattern.fullmatch(path) is None:
            return False
        return not self.header or any(name == self.header.encode() for name, _ in headers)


def routes_with(header: str) -> type[APIRoute]:
    """The class of routes for requests that carry `header`; others go to another API."""
    name = header.encode()

    class RouteWithHeader(APIRoute):
        def matches(self, scope: Scope) -> tuple[Match, Scope]:
            if any(name == key for key, _ in scope["headers"]):
                return super().matches(scope)
            return Match.NONE, {}

    return RouteWithHeader


class ErrorShapes:
    """The error shapes of a server: each API's for its paths, `default` for all others."""

    def __init__(self, default: ErrorShape, apis: Sequence[Api] = ()) -> None:
        self.default = default
        pairs = [(path.rstrip("/"), api) for api in apis for path in api.paths]
        self._pairs = sorted(pairs, key=lambda pair: len(pair[0]), reverse=True)
        self._apis = apis

    def of(self, path: str, headers: RawHeaders = ()) -> ErrorShape:
        """The shape for a path: by a pattern, else that of the longest path of an API above it."""
        api = self._api(path, headers)
        return self.default if api is None else api.errors

    def attach(self, scope: Scope) -> None:
        """Note the API of a request in its scope: its name, and its shape for `error_reply`."""
        api = self._api(scope["path"], scope["headers"])
        use_error_shape(scope, self.default if api is None else api.errors)
        scope["state"][_NAME_KEY] = "" if api is None else api.name

    def _api(self, path: str, headers: RawHeaders) -> Api | None:
        for api in self._apis:
            if api.claims(path, headers):
                return api
        for prefix, api in self._pairs:
            if path == prefix or path.startswith(f"{prefix}/"):
                return api
        return None


def api_name(scope: Scope) -> str:
    """The name of the API that a request is for, "" for the server's own paths."""
    return scope["state"].get(_NAME_KEY, "")


def use_error_shape(scope: Scope, shape: ErrorShape) -> None:
    """Have the errors of a request reported in `shape`."""
    scope.setdefault("state", {})[_STATE_KEY] = shape


def error_reply(scope: Scope, error: ApiError) -> ErrorReply:
    """The response for an error, in the shape of the API that the request is for."""
    return _shape(scope).reply(_with_id(scope, error))


def error_event(scope: Scope, error: ApiError) -> str:
    """The last frame of a stream that the error ends, in the shape of the API."""
    reported = _with_id(scope, error)
    scope["state"][_ERROR_KEY] = _shape(scope).reply(reported).status
    return _shape(scope).event(reported)


def stream_error(scope: Scope) -> int | None:
    """The status of the error that ended a stream; None if none did."""
    return scope["state"].get(_ERROR_KEY)


def note_request_id(scope: Scope, request_id: str) -> None:
    """Note the id that a request got, for its errors."""
    scope.setdefault("state", {})[_ID_KEY] = request_id


def request_id_of(scope: Scope) -> str:
    """The id that `note_request_id` noted, "" for none."""
    return scope.get("state", {}).get(_ID_KEY, "")


def _shape(scope: Scope) -> ErrorShape:
    return cast(ErrorShape, scope["state"][_STATE_KEY])


def _with_id(scope: Scope, error: ApiError) -> ApiError:
    return replace(error, request_id=request_id_of(scope))


def mark_stream(scope: Scope) -> None:
    """Note that a request is answered by a stream, which an error's frame can end."""
    scope.setdefault("state", {})[_STREAM_KEY] = True


def is_stream(scope: Scope) -> bool:
    """Whether `mark_stream` was called for the request."""
    return _STREAM_KEY in scope.get("state", {})
