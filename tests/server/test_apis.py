"""Another API beside OpenAI's, made of this file alone: its routes, its events, its errors."""

import contextlib
import re
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from shepherd.events import CallbackEvent
from shepherd.json_text import frame
from shepherd.messages import JsonObject, Message
from shepherd.server.access.key import KeyScope
from shepherd.server.access.keys import KeyStore
from shepherd.server.api import Api, ErrorShapes
from shepherd.server.app import APIS
from shepherd.server.body import RequestModel
from shepherd.server.errors import ApiError, ErrorReply, to_api_error
from shepherd.server.generation import Answering, Choices, open_choices
from shepherd.server.responses import EventStreamResponse, Frames, JsonResponse
from shepherd.server.settings import ServerContext, ServerSettings
from shepherd.server.wire.errors import OpenAiErrors
from shepherd.session import Session
from tests.patience import PATIENCE
from tests.server.harness import HI, RunningServer
from tests.server.held import HeldBackend

ECHO = "/v1/echo"
OVERLOADED = 529


class EchoErrors:
    """Statuses, headers and bodies of its own."""

    def reply(self, error: ApiError) -> ErrorReply:
        status = OVERLOADED if error.status == 503 else error.status
        return ErrorReply(status, self._body(error), {**error.headers, "X-Echo": "failed"})

    def event(self, error: ApiError) -> str:
        return frame(self._body(error), "error")

    def _body(self, error: ApiError) -> JsonObject:
        return {"type": "error", "error": {"type": f"echo_{error.code}", "message": error.message}}


class EchoRequest(RequestModel):
    text: str
    stream: bool = False


def echo_router(context: ServerContext) -> APIRouter:
    router = APIRouter()
    bodies = context.bodies

    @router.post(ECHO)
    async def echo(request: Request) -> Response:
        body = await bodies.read(request, EchoRequest)
        session = Session(messages=[Message.user(body.text)])

        @contextlib.asynccontextmanager
        async def opened() -> AsyncGenerator[Frames]:
            async with open_choices(Answering(context.backend), session) as choices:
                yield events(choices)

        async def events(choices: Choices) -> Frames:
            yield frame({"text": ""}, "start")
            async for piece in choices:
                if piece.event is not None:
                    assert piece.event is CallbackEvent.CONTENT
                    yield frame({"text": piece.text}, "delta")
            await choices.result(0)
            yield frame({}, "stop")

        if body.stream:
            return EventStreamResponse(opened, to_api_error, context.settings.keepalive)
        async with open_choices(Answering(context.backend), session) as choices:
            return JsonResponse({"text": (await choices.result(0)).message.content})

    return router


ECHO_API = Api((ECHO,), EchoErrors(), lambda context: [echo_router(context)])
SETTINGS = ServerSettings.model_construct(port=0, max_body_bytes=4096, keepalive=0.05)


class Failing(HeldBackend):
    """Breaks after its first words once it is let go."""

    async def generate_from_prefilled(self, *arguments: Any, **options: Any) -> Any:
        await super().generate_from_prefilled(*arguments, **options)
        raise RuntimeError("a defect")


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys.json")


def serving(
    backend: HeldBackend | None = None,
    keys: KeyStore | None = None,
    settings: ServerSettings = SETTINGS,
) -> RunningServer[HeldBackend]:
    return RunningServer(backend or HeldBackend(), settings, keys, apis=(*APIS, ECHO_API))


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer[HeldBackend]]:
    with serving() as running:
        yield running


def post(server: RunningServer[Any], body: Any, path: str = ECHO, **headers: str) -> httpx.Response:
    url = server.url + path
    return httpx.post(url, json=body, headers=headers, timeout=PATIENCE)


def failed(response: httpx.Response) -> tuple[int, str]:
    """The status and the code, if the error is in the shape of the API of this file."""
    assert response.headers["x-echo"] == "failed"
    body = response.json()
    assert list(body) == ["type", "error"]
    return response.status_code, body["error"]["type"]


def test_it_answers_beside_the_others(server: RunningServer[HeldBackend]) -> None:
    assert post(server, {"text": "hi"}).json() == {"text": "done"}
    events = post(server, {"text": "hi", "stream": True}).text.split("\n\n")
    assert events[0] == 'event: start\ndata: {"text":""}'
    assert events[-3:] == ['event: delta\ndata: {"text":"done"}', "event: stop\ndata: {}", ""]
    assert post(server, {"messages": HI}, "/v1/chat/completions").json()["choices"]


@pytest.mark.parametrize("path", [ECHO, f"{ECHO}/"])
def test_errors_of_handlers_have_its_shape(server: RunningServer[HeldBackend], path: str) -> None:
    assert failed(post(server, {}, path)) == (400, "echo_missing_required_parameter")
    assert failed(post(server, {"text": "x" * 5000}, path)) == (413, "echo_request_too_large")


def test_errors_of_the_edge_have_the_shape_of_the_path(server: RunningServer[HeldBackend]) -> None:
    wrong_method = httpx.get(server.url + ECHO, timeout=PATIENCE)
    assert failed(wrong_method) == (405, "echo_method_not_allowed")
    assert wrong_method.headers["allow"] == "POST"
    assert failed(post(server, {}, f"{ECHO}/nothing")) == (404, "echo_not_found")
    for path in ("/v1/echoes", "/v1", "/nothing", "/v1/chat/nothing"):
        assert "param" in post(server, {}, path).json()["error"]


def test_a_page_that_may_not_ask_is_refused_in_its_shape() -> None:
    settings = ServerSettings(port=0, cors_origins=["https://good.example"])
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    with serving(settings=settings) as server:
        asked = httpx.options(server.url + ECHO, headers=headers, timeout=PATIENCE)
        assert "access-control-allow-origin" not in asked.headers  # so a browser asks no further
        page = post(server, {"text": "hi"}, Origin="https://evil.example")
        assert failed(page) == (403, "echo_origin_not_allowed")
        assert failed(post(server, {}, Host="evil.example")) == (403, "echo_host_not_allowed")


def test_a_missing_key_is_reported_in_its_shape(keys: KeyStore) -> None:
    with serving(keys=keys) as server:
        refused = post(server, {"text": "hi"})
        assert failed(refused) == (401, "echo_invalid_api_key")
        assert refused.headers["www-authenticate"] == "Bearer"
        keys.path.write_text("{")
        unchecked = post(server, {"text": "hi"}, Authorization="Bearer sk-any")
        assert failed(unchecked) == (OVERLOADED, "echo_keys_unavailable")


def test_a_removed_key_ends_an_answer_in_its_shape(keys: KeyStore) -> None:
    key = keys.add("laptop", lambda key: replace(key, scopes=frozenset(KeyScope)))
    backend = HeldBackend(hold_prefill=True)
    with serving(backend, keys) as server, ThreadPoolExecutor() as pool:
        answer = pool.submit(post, server, {"text": "hi"}, **{"x-api-key": key})
        server.until(lambda: backend.working == 1)
        keys.remove("laptop")
        assert failed(answer.result(PATIENCE)) == (401, "echo_invalid_api_key")


def test_a_removed_key_ends_a_stream_in_its_shape(keys: KeyStore) -> None:
    key = keys.add("laptop", lambda key: replace(key, scopes=frozenset(KeyScope)))
    request: dict[str, Any] = {
        "json": {"text": "hi", "stream": True},
        "headers": {"x-api-key": key},
    }
    with (
        serving(HeldBackend(hold_generation=True), keys) as server,
        httpx.stream("POST", server.url + ECHO, timeout=PATIENCE, **request) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines) == "event: start"
        keys.remove("laptop")
        kind, data = [line for line in lines if line and not line.startswith(":")][-2:]
    assert kind == "event: error"
    assert "echo_invalid_api_key" in data


def test_a_defect_has_its_shape_before_and_after_the_headers() -> None:
    with serving(Failing()) as server:
        assert failed(post(server, {"text": "hi"})) == (500, "echo_internal_error")
    backend = Failing(hold_generation=True)
    with serving(backend) as server:
        body = {"text": "hi", "stream": True}
        with httpx.stream("POST", server.url + ECHO, json=body, timeout=PATIENCE) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "event: start"
            server.do(_let_go(backend))
            kind, data = [line for line in lines if line and not line.startswith(":")][-2:]
        assert kind == "event: error"
        assert "echo_internal_error" in data


async def _let_go(backend: HeldBackend) -> None:
    backend.go.set()


def test_a_body_that_never_ends_is_refused_in_its_shape() -> None:
    head = f"POST {ECHO} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
    with serving(settings=SETTINGS.model_copy(update={"read_timeout": 0.5})) as server:
        answer = server.raw(head.encode())
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'{"type":"error","error":{"type":"echo_request_timeout"' in answer


def test_the_longest_path_decides() -> None:
    outer, inner = OpenAiErrors(), EchoErrors()

    def api(path: str, shape: Any) -> Api:
        return Api((path,), shape, lambda _: [])

    shapes = ErrorShapes(OpenAiErrors(), [api("/v1", outer), api("/v1/a", inner)])
    assert shapes.of("/v1/a") is shapes.of("/v1/a/b") is inner
    assert shapes.of("/v1") is shapes.of("/v1/ab") is outer
    assert shapes.of("/v2") is shapes.of("/v10") is shapes.default


def test_a_pattern_decides_among_the_paths_of_another_api() -> None:
    outer, inner = OpenAiErrors(), EchoErrors()
    apis = [
        Api(("/v1",), outer, lambda _: []),
        Api(("/v2",), inner, lambda _: [], pattern=re.compile("/v1/.+:run")),
    ]
    shapes = ErrorShapes(OpenAiErrors(), apis)
    assert shapes.of("/v1/a/b:run") is shapes.of("/v2/a") is inner
    assert shapes.of("/v1/a:run/b") is shapes.of("/v1/:run") is outer


def test_a_header_tells_two_apis_apart_on_one_path() -> None:
    outer, inner = OpenAiErrors(), EchoErrors()
    apis = [
        Api(("/v1",), outer, lambda _: []),
        Api((), inner, lambda _: [], pattern=re.compile("/v1/models"), header="x-echo"),
    ]
    shapes = ErrorShapes(OpenAiErrors(), apis)
    assert shapes.of("/v1/models", [(b"host", b"x"), (b"x-echo", b"")]) is inner
    assert shapes.of("/v1/models", [(b"host", b"x-echo")]) is outer
    assert shapes.of("/v1/chat", [(b"x-echo", b"")]) is outer
