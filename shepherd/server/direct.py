"""Serves the requests for models without FastAPI's router, which takes longer than the rest."""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.convertors import PathConvertor, StringConvertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

_POST = "POST"
_TEXTS = (StringConvertor, PathConvertor)


@dataclass(frozen=True, slots=True)
class ErrorHandling:
    """The errors that become responses, and what makes the response; all others go on."""

    errors: tuple[type[Exception], ...]
    respond: Callable[[Request, Exception], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class PatternRoute:
    """A route by the pattern of its path; without an endpoint the router serves it.

    The endpoint takes the request, then the parameters of the path as text.
    """

    pattern: re.Pattern[str]
    endpoint: Callable[..., Awaitable[Response]] | None


@dataclass(frozen=True, slots=True)
class DirectEndpoints:
    """The endpoints by path, then those whose paths have parameters, in the router's order."""

    by_path: Mapping[str, Endpoint] = field(default_factory=dict[str, Endpoint])
    patterns: Sequence[PatternRoute] = ()

    def find(self, path: str) -> Endpoint | None:
        """The endpoint that FastAPI's router would call; None if that must decide."""
        endpoint = self.by_path.get(path)
        if endpoint is not None:
            return endpoint
        for route in self.patterns:
            if match := route.pattern.match(path):
                return route.endpoint and partial(route.endpoint, **match.groupdict())
        return None


class DirectRoutes:
    """Middleware that calls the endpoint of a POST request; all other requests go on.

    The endpoints are those that FastAPI's router would call: functions that take the request, and
    at most the parameters of the path as text. FastAPI keeps them for its page of the API.
    """

    def __init__(self, app: ASGIApp, endpoints: DirectEndpoints, handling: ErrorHandling) -> None:
        self._app = app
        self._endpoints = endpoints
        self._handling = handling

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        direct = scope["type"] == "http" and scope["method"] == _POST
        endpoint = self._endpoints.find(scope["path"]) if direct else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        request, reply = Request(scope, receive, send), _Reply(send)
        try:
            response = await endpoint(request)
            await response(scope, receive, reply.send)
        except self._handling.errors as error:
            if reply.started:
                raise
            response = await self._handling.respond(request, error)
            await response(scope, receive, send)


class _Reply:
    """Sends a response; `started` tells whether a part of it was sent."""

    __slots__ = ("_send", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def send(self, message: Message) -> None:
        self.started = True
        await self._send(message)


def direct_endpoints(routers: Iterable[APIRouter]) -> DirectEndpoints:
    """The endpoints for `DirectRoutes`; `routers` are in the order of FastAPI's router."""
    by_path: dict[str, Endpoint] = {}
    patterns: list[PatternRoute] = []
    earlier: list[APIRoute] = []
    for route in _posts(routers):
        names = list(route.param_convertors)
        texts = all(type(c) in _TEXTS for c in route.param_convertors.values())
        direct = type(route) is APIRoute and texts and _takes_text(route.endpoint, names)
        if names or not direct:
            patterns.append(PatternRoute(route.path_regex, route.endpoint if direct else None))
        elif not any(other.path_regex.match(route.path) for other in earlier):
            by_path[route.path] = route.endpoint
        earlier.append(route)
    return DirectEndpoints(by_path, patterns)


def _posts(routers: Iterable[APIRouter]) -> Iterator[APIRoute]:
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute) and _POST in (route.methods or ()):
                yield route


def _takes_text(endpoint: Callable[..., object], names: Sequence[str]) -> bool:
    """Whether a function takes a request, and as text the parameters with these names."""
    parameters = list(inspect.signature(endpoint).parameters.values())
    if not parameters or parameters[0].annotation is not Request:
        return False
    texts = [p.name for p in parameters[1:] if p.annotation is str and p.default is p.empty]
    return len(texts) == len(parameters) - 1 and sorted(texts) == sorted(names)
