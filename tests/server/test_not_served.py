"""Paths of other servers that this one lacks: a 404 that says what to do instead."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from fastapi import APIRouter, HTTPException

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.access.key import KeyScope
from shepherd.server.access.paths import PathScopes
from shepherd.server.api import Api
from shepherd.server.app import APIS
from shepherd.server.errors import NOT_SERVED
from shepherd.server.wire.errors import OpenAiErrors
from tests.patience import PATIENCE
from tests.server.harness import RunningServer, Scripted, scripted

CALLS: dict[str, Callable[[Any], Any]] = {
    "stored": lambda c: c.files.list(),
    "transcript": lambda c: c.audio.transcriptions.create(model="w", file=b"RIFF"),
    "makes no images": lambda c: c.images.generate(model="i", prompt="a cat"),
    "moderated": lambda c: c.moderations.create(input="x"),
    "by itself": lambda c: c.batches.retrieve("batch_1"),
    "previous_response_id": lambda c: c.conversations.create(),
    "search yourself": lambda c: c.vector_stores.list(),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with scripted("text: hi") as running:
        yield running


@pytest.mark.parametrize("words", CALLS)
def test_openais_client_reads_what_to_do(server: Scripted, words: str) -> None:
    with server.client() as client, pytest.raises(openai.NotFoundError, match=words) as caught:
        CALLS[words](client)
    assert caught.value.code == "not_found"


@pytest.mark.parametrize("path", NOT_SERVED)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_each_path_is_answered_with_any_method(server: Scripted, path: str, method: str) -> None:
    for below in ("", "/one"):
        answer = httpx.request(method, server.url + path + below, timeout=PATIENCE)
        assert answer.status_code == 404
        assert NOT_SERVED[path] in answer.text
    other = httpx.request(method, f"{server.url}{path}x", timeout=PATIENCE)
    assert NOT_SERVED[path] not in other.text


def test_a_key_of_any_scope_reads_it_unless_a_plugin_may_answer() -> None:
    assert PathScopes().of("POST", "/v1/audio/speech") == frozenset()
    assert PathScopes(["/v1/audio/speech"]).of("POST", "/v1/audio/speech") == {KeyScope.TOOLS}
    for above in ("/v1/audio", "/v1/audio/{kind}", "/v1/{path:path}", "/{path:path}"):
        assert PathScopes([above]).of("POST", "/v1/audio/speech") != frozenset()


def test_a_route_that_is_served_keeps_its_own_404() -> None:
    router = APIRouter()

    @router.get("/v1/files/{name}")
    async def find(name: str) -> None:  # pyright: ignore[reportUnusedFunction] - a route
        raise HTTPException(404, name)

    api = Api(paths=(), errors=OpenAiErrors(), routers=lambda _: [router])
    backend = ScriptedBackend(parse_script("text: hi"))
    with RunningServer(backend, apis=(*APIS, api)) as running:
        answer = httpx.get(f"{running.url}/v1/files/x", timeout=PATIENCE)
    assert (answer.status_code, "stored" in answer.text) == (404, False)
