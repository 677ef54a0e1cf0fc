"""Every failure in Anthropic's shape, and as the exception that its client knows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types.shared.error_response import ErrorResponse

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.errors import BusyError
from shepherd.messages import JsonObject
from shepherd.server.access.keys import KeyStore
from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.anthropic.support import (
    COUNT,
    HI,
    MESSAGES,
    VERSION,
    Server,
    ask,
    client_of,
    post,
    stream,
)
from tests.server.harness import RunningServer, scripted
from tests.server.held import HeldBackend, RaisingBackend

LONG: list[Any] = [{"role": "user", "content": "word " * 120}]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with scripted("context: 100\ntext: fine", ServerSettings(port=0, max_body_bytes=4096)) as s:
        yield s


def error_of(response: httpx.Response) -> JsonObject:
    """The error object, in exactly Anthropic's shape."""
    body = response.json()
    assert list(body) == ["type", "error", "request_id"]
    assert body["type"] == "error"
    assert body["request_id"] == response.headers.get("request-id")
    assert body["error"]["message"]
    return body["error"]


@pytest.mark.parametrize("how", [ask, stream])
def test_a_conversation_that_does_not_fit_is_known_by_its_words(server: Server, how: Any) -> None:
    with client_of(server) as client, pytest.raises(anthropic.BadRequestError) as caught:
        how(client, messages=LONG)
    ErrorResponse.model_validate(caught.value.body)
    assert caught.value.type == "invalid_request_error"
    assert "prompt is too long: 124 tokens > 100 maximum" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": 11}, "temperature"),
        ({"temperature": False}, "temperature"),
        ({"top_k": 0.5}, "top_k"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"thinking": {"type": "maybe"}}, "thinking.type"),
        ({"system": [{"type": "image"}]}, "system"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages.0.content.0"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"tools": [{"type": 5, "name": "x"}]}, "tools.0.type"),
    ],
)
def test_wrong_requests_are_named(server: Server, body: Any, param: str) -> None:
    response = post(server, body)
    assert response.status_code == 400
    error = error_of(response)
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(param)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"type": "url", "url": "https://example.com/a.png"}, "this server fetches nothing"),
        ({"type": "file", "file_id": "f"}, "send the image itself"),
        ({"type": "base64", "media_type": "image/png", "data": "AAAA"}, "PNG, JPEG, GIF or WebP"),
        (None, "needs a source"),
    ],
)
def test_images_that_can_t_be_taken(server: Server, source: Any, words: str) -> None:
    image = {"type": "image", "source": source}
    response = post(server, {"messages": [{"role": "user", "content": [image]}]})
    assert response.status_code == 400
    assert words in error_of(response)["message"]


def test_a_document_must_be_text(server: Server) -> None:
    pdf = {"type": "document", "source": {"type": "base64", "data": "AAAA"}}
    response = post(server, {"messages": [{"role": "user", "content": [pdf]}]})
    assert "send their text" in error_of(response)["message"]


@pytest.mark.parametrize("how", [ask, stream])
def test_a_busy_server_is_overloaded(how: Any) -> None:
    backend = RaisingBackend(BusyError("8 requests are waiting", retry_after=2.5))
    with (
        RunningServer(backend) as server,
        client_of(server) as client,
        pytest.raises(anthropic.InternalServerError) as caught,
    ):
        how(client)
    assert (caught.value.status_code, caught.value.type) == (529, "overloaded_error")
    assert caught.value.response.headers["retry-after"] == "3"


def test_a_failure_in_a_stream_is_its_last_event() -> None:
    with scripted("text: Hel\nerror: upstream is gone") as server, client_of(server) as client:
        with pytest.raises(anthropic.APIStatusError, match="upstream is gone") as caught:
            stream(client)
        assert caught.value.type == "api_error"
        *_, before, last, end = post(server, {"stream": True}).text.split("\n\n")
    assert before.startswith("event: content_block_delta")
    assert last.startswith('event: error\ndata: {"type":"error","error":{"type":"api_error"')
    assert end == ""


def test_a_failure_before_the_first_text_is_a_status() -> None:
    with scripted("error: upstream is gone") as server:
        response = post(server, {"stream": True})
    assert (response.status_code, error_of(response)["type"]) == (500, "api_error")


def test_the_edge_answers_in_this_shape(server: Server, tmp_path: Path) -> None:
    for method, path, status in (
        ("GET", MESSAGES, 405),
        ("POST", f"{MESSAGES}/batches", 404),
        ("GET", COUNT, 405),
    ):
        response = httpx.request(method, server.url + path, timeout=PATIENCE)
        assert response.status_code == status
        error_of(response)
    files = httpx.get(f"{server.url}/v1/files", headers=VERSION, timeout=PATIENCE)
    assert (files.status_code, error_of(files)["type"]) == (404, "not_found_error")
    large = post(server, {"metadata": "x" * 8000})
    assert (large.status_code, error_of(large)["type"]) == (413, "request_too_large")
    typed = httpx.post(server.url + MESSAGES, content=b"hi", headers={"Content-Type": "text/plain"})
    assert (typed.status_code, error_of(typed)["type"]) == (415, "invalid_request_error")
    keys = KeyStore(tmp_path / "keys.json")
    key = keys.add("laptop")
    with RunningServer(ScriptedBackend(parse_script("text: hi")), keys=keys) as closed:
        with client_of(closed, "wrong") as client, pytest.raises(anthropic.AuthenticationError):
            ask(client)
        with client_of(closed, key) as client:
            assert ask(client).content
        bearer = anthropic.Anthropic(base_url=closed.url, auth_token=key, max_retries=0)
        with bearer as client:
            assert ask(client).content


def test_the_capabilities_of_a_model_are_whole() -> None:
    with scripted("vision: no\ntext: hi") as described, client_of(described) as client:
        strict = client.copy(_extra_kwargs={"_strict_response_validation": True})
        (model,) = strict.models.list().data
        assert model.capabilities is not None
        assert not model.capabilities.server_tools.web_search.supported


def test_models_are_listed_in_the_shape_of_who_asks(server: Server) -> None:
    with client_of(server) as client:
        page = client.models.list()
        (model,) = page.data
        assert (model.id, model.display_name, model.type) == ("script", "script", "model")
        assert (model.lifecycle, model.max_input_tokens) == ("active", 100)
        assert (page.first_id, page.last_id, page.has_more) == ("script", "script", False)
        assert [m.id for m in client.models.list(limit=1)] == ["script"]
        assert client.models.retrieve("script").created_at == model.created_at
        with pytest.raises(anthropic.NotFoundError) as caught:
            client.models.retrieve("other")
    assert caught.value.type == "not_found_error"
    url = f"{server.url}/v1/models"
    assert httpx.get(url, timeout=PATIENCE).json()["object"] == "list"
    after = httpx.get(f"{url}?after_id=script", headers=VERSION, timeout=PATIENCE).json()
    assert after == {"data": [], "has_more": False, "first_id": None, "last_id": None}
    wrong = httpx.get(f"{url}?limit=0", headers=VERSION, timeout=PATIENCE)
    assert (wrong.status_code, error_of(wrong)["type"]) == (400, "invalid_request_error")


def test_tokens_are_counted(server: Server) -> None:
    with client_of(server) as client:
        for system in ("", "Be very brief."):
            options: Any = {"messages": HI, "system": system, "tools": []}
            count = client.messages.count_tokens(model="m", **options)
            assert count.input_tokens > 0
    assert post(server, {"messages": []}, COUNT).status_code == 400


def test_the_root_answers(server: Server) -> None:
    assert httpx.head(server.url, timeout=PATIENCE).status_code == 200
    assert httpx.get(f"{server.url}/", timeout=PATIENCE).status_code == 200


def test_silence_is_filled_with_pings() -> None:
    backend = HeldBackend(hold_generation=True)
    settings = ServerSettings.model_construct(port=0, keepalive=0.05)
    body = {"messages": HI, "max_tokens": 5, "stream": True}
    with (
        RunningServer(backend, settings) as server,
        httpx.stream("POST", server.url + MESSAGES, json=body, timeout=PATIENCE) as answer,
    ):
        lines = (line for line in answer.iter_lines() if line.startswith("event: "))
        assert next(lines) == "event: message_start"
        while next(lines) != "event: content_block_delta":
            pass
        assert [next(lines) for _ in range(3)] == ["event: ping"] * 3


def test_batches_are_refused_by_name() -> None:
    with scripted("text: hi") as server, client_of(server) as client:
        batches: Any = client.messages.batches
        for refuse in (
            batches.list,
            lambda: batches.create(requests=[{"custom_id": "a", "params": {}}]),
            lambda: batches.retrieve("msgbatch_1"),
            lambda: batches.cancel("msgbatch_1"),
            lambda: batches.delete("msgbatch_1"),
        ):
            with pytest.raises(anthropic.NotFoundError, match="Batches are not served"):
                refuse()
