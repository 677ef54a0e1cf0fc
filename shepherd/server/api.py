"""The parts of an API of the server: its routes, its paths, and the shape of its errors."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from fastapi import APIRouter
from fastapi.routing import APIRoute
from msgspec import Struct
from starlette.routing import Match
from starlette.types import Scope

from shepherd.server.errors import ErrorShape
from shepherd.server.record import SERVER, RequestRecord
from shepherd.server.settings import ServerContext

RawHeaders: TypeAlias = Iterable[tuple[bytes, bytes]]
"""Headers as ASGI has them: names in lower case."""


class Api(Struct, frozen=True):
    """One API; `shepherd.server.app.APIS` lists the served ones.

    `paths` are the paths that belong to it, each with all paths below it; they decide the shape of
    errors. `pattern` matches further ones, which lie among those of another API; with `header`,
    only requests that carry it count. `name` is that in logs and metrics; APIs may share
    one.
    """

    paths: Sequence[str]
    errors: ErrorShape
    routers: Callable[[ServerContext], Sequence[APIRouter]] = lambda _: ()
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
            """As the base, but never without the header."""
            if any(name == key for key, _ in scope["headers"]):
                return super().matches(scope)
            return Match.NONE, {}

    return RouteWithHeader


class ErrorShapes:
    """The error shapes of a server: each API's for its paths, `default` for all others."""

    def __init__(self, default: ErrorShape, apis: Sequence[Api] = ()) -> None:
        """Sort the paths: of `/v1` and `/v1/messages`, the longer decides on what is below both."""
        self.default = default
        pairs = [(path.rstrip("/"), api) for api in apis for path in api.paths]
        self._longest_first = sorted(pairs, key=lambda pair: len(pair[0]), reverse=True)
        self._apis = apis

    def of(self, path: str, headers: RawHeaders = ()) -> ErrorShape:
        """The shape for a path: by a pattern, else that of the longest path of an API above it."""
        api = self._api(path, headers)
        return self.default if api is None else api.errors

    def record(self, id: str, path: str, headers: RawHeaders) -> RequestRecord:
        """The record of a request, with the name of its API and the shape of its errors."""
        api = self._api(path, headers)
        if api is None:
            return RequestRecord(id, self.default, path)
        return RequestRecord(id, api.errors, path, api.name or SERVER)

    def _api(self, path: str, headers: RawHeaders) -> Api | None:
        """The API of a request, None for a path that belongs to none."""
        for api in self._apis:
            if api.claims(path, headers):
                return api
        for prefix, api in self._longest_first:
            if path == prefix or path.startswith(f"{prefix}/"):
                return api
        return None
