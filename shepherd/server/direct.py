"""Serves the requests for models without FastAPI's router, which takes longer than the rest."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

_POST = "POST"


@dataclass(frozen=True, slots=True)
class ErrorHandling:
    """The errors that become responses, and what makes the response; all others go on."""

    errors: tuple[type[Exception], ...]
    respond: Callable[[Request, Exception], Awaitable[Response]]


class DirectRoutes:
    """Middleware that calls the endpoint of a POST request; all other requests go on.

    The endpoints are those that FastAPI's router would call: paths without parameters, of functions
    that take the request alone. FastAPI keeps them for its page of the API.
    """

    def __init__(
        self, app: ASGIApp, endpoints: Mapping[str, Endpoint], handling: ErrorHandling
    ) -> None:
        self._app = app
        self._endpoints = endpoints
        self._handling = handling

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        direct = scope["type"] == "http" and scope["method"] == _POST
        endpoint = self._endpoints.get(scope["path"]) if direct else None
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


def direct_endpoints(routers: Iterable[APIRouter]) -> dict[str, Endpoint]:
    """The endpoints for `DirectRoutes` by path; `routers` are in the order of FastAPI's router."""
    endpoints: dict[str, Endpoint] = {}
    earlier: list[APIRoute] = []
    for route in _posts(routers):
        plain = type(route) is APIRoute and not route.param_convertors
        hidden = any(other.path_regex.match(route.path) for other in earlier)
        if plain and not hidden and _takes_request_alone(route.endpoint):
            endpoints[route.path] = route.endpoint
        earlier.append(route)
    return endpoints


def _posts(routers: Iterable[APIRouter]) -> Iterator[APIRoute]:
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute) and _POST in (route.methods or ()):
                yield route


def _takes_request_alone(endpoint: Callable[..., object]) -> bool:
    parameters = inspect.signature(endpoint).parameters.values()
    return [parameter.annotation for parameter in parameters] == [Request]
