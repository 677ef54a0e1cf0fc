"""Every failure in OpenAI's shape, and as the exception that its client knows."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from shepherd.errors import BusyError
from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer, Scripted, ask, scripted, stream
from tests.server.held import RaisingBackend

LONG: list[Any] = [{"role": "user", "content": "word " * 120}]


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with scripted("context: 100\ntext: fine", ServerSettings(port=0, max_body_bytes=4096)) as s:
        yield s


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error object, which has exactly OpenAI's fields."""
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert list(body) == ["error"]
    assert sorted(body["error"]) == ["code", "message", "param", "type"]
    assert body["error"]["message"]
    return body["error"]


def post(server: Scripted, body: Any) -> httpx.Response:
    return httpx.post(server.url + CHAT, json=body, timeout=PATIENCE)


@pytest.mark.parametrize("how", [ask, stream])
def test_conversation_that_does_not_fit_is_a_400(server: Scripted, how: Any) -> None:
    with server.client() as client, pytest.raises(openai.BadRequestError) as caught:
        how(client, messages=LONG)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "messages"
    assert "maximum context length is 100 tokens" in str(caught.value)
    assert "resulted in 124 tokens" in str(caught.value)


def test_unknown_model_is_not_found(server: Scripted) -> None:
    with server.client() as client, pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-4")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "messages", "missing_required_parameter"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": "hi"}, "messages", "invalid_value"),
        ({"messages": [{"role": "king", "content": "hi"}]}, "messages.0.role", "invalid_value"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.tool_call_id", None),
        ({"messages": HI, "temperature": 11}, "temperature", "invalid_value"),
        ({"messages": HI, "top_p": "much"}, "top_p", "invalid_value"),
        ({"messages": HI, "repetition_penalty": 0}, "repetition_penalty", "invalid_value"),
        ({"messages": HI, "max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"messages": HI, "stop": ["x"] * 17}, "stop", "invalid_value"),
        ({"messages": HI, "n": 9}, "n", "invalid_value"),
        ({"messages": HI, "n": 0}, "n", "invalid_value"),
        ({"messages": HI, "n": "two"}, "n", "invalid_value"),
        ({"messages": HI, "logprobs": "many"}, "logprobs", "invalid_value"),
        ({"messages": HI, "logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"messages": HI, "top_logprobs": 2}, "top_logprobs", "invalid_value"),
        ({"messages": HI, "logit_bias": {"1": 101}}, "logit_bias", "invalid_value"),
        ({"messages": HI, "logit_bias": {"1": True}}, "logit_bias", "invalid_value"),
        ({"messages": HI, "logit_bias": [[1, 2, 3]]}, "logit_bias", "invalid_value"),
        ({"messages": HI, "logit_bias": "less"}, "logit_bias", "invalid_value"),
        ({"messages": HI, "mirostat": 3}, "mirostat", "invalid_value"),
        ({"messages": HI, "typical_p": 1.5}, "typical_p", "invalid_value"),
        ({"messages": HI, "samplers": "top_k"}, "samplers", "invalid_value"),
        ({"messages": HI, "tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"messages": HI, "tool_choice": {"type": "custom"}}, "tool_choice", "invalid_value"),
        (
            {"messages": HI, "tool_choice": {"type": "function", "function": {"name": "f"}}},
            "tool_choice",
            "invalid_value",
        ),
        (
            {"messages": HI, "response_format": {"type": "json_schema"}},
            "response_format",
            "invalid_value",
        ),
        ({"messages": HI, "response_format": {"type": "xml"}}, "response_format", None),
        (
            {"messages": HI, "response_format": {"type": "json_object"}, "grammar": "root ::= x"},
            "grammar",
            "invalid_value",
        ),
        ({"messages": HI, "functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
    ],
)
def test_wrong_requests_are_named(
    server: Scripted, body: Any, param: str, code: str | None
) -> None:
    response = post(server, body)
    error = error_of(response)
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["param"] == param
    assert code is None or error["code"] == code


def test_audio_is_refused_in_words(server: Scripted) -> None:
    part = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    error = error_of(post(server, {"messages": [{"role": "user", "content": [part]}]}))
    assert error["param"] == "messages.0.content"
    assert "'input_audio' is not supported" in error["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "json"])
def test_other_content_types_are_refused(server: Scripted, kind: str) -> None:
    headers = {"Content-Type": kind}
    response = httpx.post(server.url + CHAT, content=b"{}", headers=headers, timeout=PATIENCE)
    assert response.status_code == 415
    assert error_of(response)["code"] == "unsupported_media_type"


def test_large_bodies_are_refused(server: Scripted) -> None:
    announced = post(server, {"messages": HI, "user": "x" * 8000})

    def chunks() -> Iterator[bytes]:
        yield b'{"messages": "'
        for _ in range(8):
            yield b"x" * 1000

    headers = {"Content-Type": "application/json"}
    chunked = httpx.post(server.url + CHAT, content=chunks(), headers=headers, timeout=PATIENCE)
    for response in (announced, chunked):
        assert response.status_code == 413
        assert error_of(response)["code"] == "request_too_large"
    assert post(server, {"messages": HI}).status_code == 200


def test_unknown_paths_and_methods(server: Scripted) -> None:
    missing = httpx.get(f"{server.url}/v1/nothing", timeout=PATIENCE)
    assert (missing.status_code, error_of(missing)["code"]) == (404, "not_found")
    wrong = httpx.get(server.url + CHAT, timeout=PATIENCE)
    assert (wrong.status_code, error_of(wrong)["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/v1/tools", "/v1/tools/execute", "/tools"])
def test_tool_endpoints_do_not_exist_unless_asked_for(server: Scripted, path: str) -> None:
    response = httpx.post(server.url + path, json={"name": "get_time"}, timeout=PATIENCE)
    assert (response.status_code, error_of(response)["code"]) == (404, "not_found")


@pytest.mark.parametrize("how", [ask, stream])
def test_busy_backend_is_a_503_that_says_when_to_come_back(how: Any) -> None:
    backend = RaisingBackend(BusyError("8 requests are waiting", retry_after=2.5))
    with (
        RunningServer(backend) as server,
        server.client() as client,
        pytest.raises(openai.InternalServerError) as caught,
    ):
        how(client)
    assert caught.value.status_code == 503
    assert caught.value.response.headers["retry-after"] == "3"
    assert caught.value.code == "server_busy"


def test_defect_tells_the_client_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with RunningServer(RaisingBackend(ZeroDivisionError("secret"))) as server:
        response = httpx.post(server.url + CHAT, json={"messages": HI}, timeout=PATIENCE)
        again = httpx.get(f"{server.url}/health", timeout=PATIENCE)
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "Traceback" not in response.text
    assert error_of(response)["type"] == "server_error"
    assert again.status_code == 200
    assert any(r.exc_info and "secret" in str(r.exc_info[1]) for r in caplog.records)


def test_failure_in_the_middle_of_a_stream_is_its_last_event() -> None:
    with scripted("text: Hel\nerror: upstream is gone") as server, server.client() as client:
        with pytest.raises(openai.APIError, match="upstream is gone"):
            stream(client)
        body = {"messages": HI, "stream": True}
        lines = httpx.post(server.url + CHAT, json=body, timeout=PATIENCE).text.split("\n\n")
    assert '"content":"Hel"' in lines[1]
    assert lines[2].startswith('data: {"error":{"message":"upstream is gone"')
    assert lines[3:] == [""]


def test_context_that_fills_up_late_is_still_a_400() -> None:
    script = "delay: 0\nfull: 10"
    with (
        scripted(script) as server,
        server.client() as client,
        pytest.raises(openai.BadRequestError) as caught,
    ):
        stream(client)
    assert caught.value.code == "context_length_exceeded"
