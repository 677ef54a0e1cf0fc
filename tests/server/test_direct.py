"""The routes that skip FastAPI's router answer as it does."""

from functools import partial
from typing import cast

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.scripted import ScriptedBackend, parse_script
from shepherd.messages import JsonObject
from shepherd.server.app import APIS, create_app
from shepherd.server.direct import DirectEndpoints, DirectRoutes, direct_endpoints

MESSAGES = [{"role": "user", "content": "hello"}]
BODIES: list[object] = [
    {},
    [],
    {"messages": MESSAGES, "max_tokens": 5, "model": "scripted"},
    {"input": "hello", "model": "scripted", "store": False},
    {"prompt": "hello", "model": "scripted", "stream": False},
    {"contents": [{"parts": [{"text": "hello"}]}]},
]
GEMINI = [
    "/v1beta/models/scripted:generateContent",
    "/v1beta/models/models/scripted:streamGenerateContent",
    "/v1/models/other:countTokens",
    "/v1beta/models/a:b/c:embedContent",
]
UNKNOWN = ["/v1beta/models/scripted:nothing", "/v1/models/:generateContentX", "/v1/models"]


def app(*, direct: bool) -> FastAPI:
    made = create_app(ScriptedBackend(parse_script("text: hi\n---\n" * 100)))
    if not direct:
        made.user_middleware = [m for m in made.user_middleware if m.cls is not DirectRoutes]
    return made


def endpoints() -> DirectEndpoints:
    [middleware] = [m for m in app(direct=True).user_middleware if m.cls is DirectRoutes]
    return cast(DirectEndpoints, middleware.kwargs["endpoints"])


async def post(http: httpx.AsyncClient, path: str, sent: object) -> object:
    """The answer without what differs from one answer to the next."""
    answer = await http.post(path, json=sent)
    kind = answer.headers["content-type"]
    content: object = answer.json() if kind == "application/json" else None
    body = cast(JsonObject, content) if isinstance(content, dict) else {}
    return answer.status_code, kind, sorted(answer.headers), sorted(body), body.get("error")


def client(*, direct: bool) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app(direct=direct))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


async def test_they_answer_as_the_router_does() -> None:
    async with client(direct=True) as quick, client(direct=False) as slow:
        for path in [*sorted(endpoints().by_path), *GEMINI, *UNKNOWN]:
            for body in BODIES:
                expected = await post(slow, path, body)
                assert await post(quick, path, body) == expected, (path, body)


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/v1/chat/completions"), ("POST", "/v1/nothing"), ("GET", "/chat")]
)
async def test_other_requests_go_on_to_the_router(method: str, path: str) -> None:
    async with client(direct=True) as quick, client(direct=False) as slow:
        answers = [await one.request(method, path) for one in (quick, slow)]
    assert answers[0].status_code == answers[1].status_code >= 400
    assert answers[0].json() == answers[1].json()


def test_the_main_paths_are_among_them() -> None:
    assert set(endpoints().by_path) >= {
        *("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"),
        *("/api/chat", "/api/generate", "/v1/embeddings", "/completion"),
    }
    assert all(endpoints().find(path) for path in GEMINI)
    assert not any(endpoints().find(path) for path in UNKNOWN)
    assert len(APIS) > 5


def test_only_plain_endpoints_are_called_directly() -> None:
    router = APIRouter()

    @router.post("/files/{name}")
    async def by_name(name: str) -> Response:
        return Response(name)

    @router.post("/files/latest")
    async def hidden(request: Request) -> Response:
        return Response()

    @router.post("/needs")
    async def needs(request: Request, limit: int) -> Response:
        return Response()

    @router.get("/read")
    async def read(request: Request) -> Response:
        return Response()

    @router.post("/plain")
    async def plain(request: Request) -> Response:
        return Response()

    @router.post("/numbers/{number:int}")
    async def numbered(request: Request, number: int) -> Response:
        return Response()

    @router.post("/named/{name:path}:do")
    async def named(request: Request, name: str) -> Response:
        return Response(name)

    found = direct_endpoints([router])
    assert found.by_path == {"/plain": plain}
    indirect = ("/files/a", "/files/latest", "/needs", "/read", "/numbers/1", "/named/a")
    assert not any(map(found.find, indirect))
    endpoint = found.find("/named/a/b:c:do")
    assert isinstance(endpoint, partial)
    assert (endpoint.func, endpoint.keywords) == (named, {"name": "a/b:c"})
    assert {by_name, hidden, needs, read, numbered}
