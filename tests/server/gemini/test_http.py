"""The Gemini API over plain HTTP: streams as arrays, errors in Google's shape, odd requests."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.genai import errors, types
from hypothesis import given
from hypothesis import strategies as st

from shepherd.server.access.keys import KeyStore
from shepherd.server.errors import ApiError
from shepherd.server.gemini.answers import GeminiErrors
from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.gemini.harness import HI, PATH, STREAM_PATH, ask, google, recording
from tests.server.harness import RunningServer
from tests.server.held import HeldBackend, RecordingBackend
from tests.server.mutations import JSON, mutated

Server = RunningServer[RecordingBackend]
ANSWER = r"""
chunk: 3
think: Let me see.
text: "Hello ä you, [1, 2]"
call: get_time {"zone": "UTC"}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with recording(ANSWER) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as running:
        yield running


def failed(response: httpx.Response) -> tuple[int, str]:
    """The code and the status of an error in Google's shape."""
    error = response.json()["error"]
    assert set(error) == {"code", "message", "status", "details"}
    assert error["code"] == response.status_code
    assert error["message"]
    assert all("@type" in detail for detail in error["details"])
    return error["code"], error["status"]


def test_a_stream_without_events_is_an_array(client: httpx.Client) -> None:
    response = client.post(STREAM_PATH, json={"contents": HI})
    assert response.headers["content-type"] == "application/json"
    chunks = [types.GenerateContentResponse.model_validate(chunk) for chunk in response.json()]
    whole = client.post(PATH, json={"contents": HI}).json()
    parts = [
        part for chunk in response.json() for part in chunk["candidates"][0]["content"]["parts"]
    ]
    assert "".join(part.get("text", "") for part in parts) == "Hello ä you, [1, 2]"
    assert parts[-1]["functionCall"]["name"] == "get_time"
    assert response.json()[-1]["usageMetadata"] == whole["usageMetadata"]
    assert chunks[-1].candidates


def test_errors_of_every_kind_have_google_s_shape(server: Server, client: httpx.Client) -> None:
    body = {"contents": HI}
    assert failed(client.delete(PATH)) == (405, "INVALID_ARGUMENT")
    assert failed(client.get(PATH)) == (404, "NOT_FOUND")
    assert failed(client.post("/v1beta/models/m:predict", json=body)) == (404, "NOT_FOUND")
    assert failed(client.get("/v1beta/models/m")) == (404, "NOT_FOUND")
    assert failed(client.get("/v1beta/nothing")) == (404, "NOT_FOUND")
    google = {"x-goog-api-client": "google-genai-sdk"}
    for path in ("/v1/files", "/v1/cachedContents/a"):
        assert failed(client.get(path, headers=google)) == (404, "NOT_FOUND")
    assert failed(client.post(f"{STREAM_PATH}?alt=proto", json=body)) == (400, "INVALID_ARGUMENT")
    assert failed(client.post("/v1/models/m:generateContent", json={})) == (400, "INVALID_ARGUMENT")
    assert failed(client.post(PATH, content=b"[")) == (400, "INVALID_ARGUMENT")
    text = {"Content-Type": "text/plain"}
    assert failed(client.post(PATH, content=b"{}", headers=text)) == (415, "INVALID_ARGUMENT")
    assert failed(client.post(PATH, json=body, headers={"Host": "evil.example"})) == (
        403,
        "PERMISSION_DENIED",
    )
    assert "param" in client.post("/v1/models/m", json=body).json()["error"]
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"
    )
    assert b"400" in server.raw(head.encode()).splitlines()[0]


def test_wrong_fields_are_named(client: httpx.Client) -> None:
    body = {"contents": HI, "generationConfig": {"topP": True}}
    error = client.post(PATH, json=body).json()["error"]
    (violation,) = error["details"][1]["fieldViolations"]
    assert violation["field"] == "generationConfig.topP"
    assert "not true or false" in error["message"]


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys.json")


def test_keys_come_in_google_s_places(keys: KeyStore) -> None:
    key = keys.add("laptop")
    with RunningServer(HeldBackend(), keys=keys) as server:
        with google(server, key=key) as client:
            assert ask(client).text == "done"
        with google(server, key="wrong") as client, pytest.raises(errors.ClientError) as caught:
            ask(client)
        url = server.url + PATH
        answer = httpx.post(f"{url}?key={key}", json={"contents": HI}, timeout=PATIENCE)
        assert failed(httpx.post(url, json={"contents": HI})) == (401, "UNAUTHENTICATED")
    assert answer.status_code == 200
    assert (caught.value.code, caught.value.status) == (401, "UNAUTHENTICATED")


def test_silence_is_filled_without_comments() -> None:
    """Google's client in JavaScript, and with it gemini-cli, fails at a comment."""
    settings = ServerSettings.model_construct(port=0, keepalive=0.01)
    backend = HeldBackend(hold_generation=True)
    with RunningServer(backend, settings) as server:
        url, body = f"{server.url}{STREAM_PATH}?alt=sse", {"contents": HI}
        with httpx.stream("POST", url, json=body, timeout=PATIENCE) as answer:
            text = answer.iter_text()
            first = next(text) + next(text)
            server.do(let_go(backend))
            lines = (first + "".join(text)).split("\n")
    assert len([line for line in lines if line.startswith("data: {")]) == 2
    assert len([line for line in lines if line]) == 2
    assert "\n\n\n" in "\n".join(lines)


async def let_go(backend: HeldBackend) -> None:
    backend.go.set()


@pytest.mark.parametrize("alt", ["", "?alt=sse"])
def test_a_removed_key_ends_a_stream_in_google_s_shape(keys: KeyStore, alt: str) -> None:
    key = keys.add("laptop")
    backend = HeldBackend(hold_generation=True)
    with RunningServer(backend, keys=keys) as server, ThreadPoolExecutor() as pool:
        sent: Any = {
            "json": {"contents": HI},
            "headers": {"x-goog-api-key": key},
            "timeout": PATIENCE,
        }
        answer = pool.submit(httpx.post, server.url + STREAM_PATH + alt, **sent)
        server.until(lambda: backend.working == 1)
        keys.remove("laptop")
        text = answer.result(PATIENCE).text
    last = json.loads(text)[-1] if not alt else json.loads(text.split("\n\n")[-2][6:])
    assert last["error"]["status"] == "UNAUTHENTICATED"


def test_an_error_says_when_to_try_again() -> None:
    error = ApiError(503, "Busy.", "server_busy", headers={"Retry-After": "7"})
    body = GeminiErrors().reply(error).body["error"]
    assert body["status"] == "UNAVAILABLE"
    assert body["details"][-1] == {
        "@type": "type.googleapis.com/google.rpc.RetryInfo",
        "retryDelay": "7s",
    }


def test_too_many_contents_are_refused(client: httpx.Client) -> None:
    contents = [{"parts": [{"text": "x"}]}] * 10_001
    assert failed(client.post(PATH, json={"contents": contents})) == (400, "INVALID_ARGUMENT")


GEMINI_CLI: dict[str, Any] = {
    "contents": [
        {"role": "user", "parts": [{"text": "This is the Gemini CLI. The date is today."}]},
        {"role": "model", "parts": [{"text": "Got it. Thanks for the context!"}]},
        {"role": "user", "parts": [{"text": "List the files."}]},
        {
            "role": "model",
            "parts": [
                {
                    "functionCall": {"name": "list_directory", "args": {"path": "/x"}},
                    "thoughtSignature": "skip_thought_signature_validator",
                }
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "list_directory-1-0",
                        "name": "list_directory",
                        "response": {"output": "a.txt"},
                    }
                }
            ],
        },
    ],
    "systemInstruction": {"role": "user", "parts": [{"text": "You are an interactive CLI agent."}]},
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "list_directory",
                    "description": "Lists files.",
                    "parametersJsonSchema": {
                        "type": "object",
                        "properties": {"path": {"type": "string"}},
                        "required": ["path"],
                    },
                }
            ]
        }
    ],
    "generationConfig": {
        "temperature": 1,
        "topP": 0.95,
        "topK": 64,
        "maxOutputTokens": 1024,
        "stopSequences": ["x"],
        "candidateCount": 1,
        "seed": 1,
        "responseMimeType": "text/plain",
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 8192},
    },
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    "safetySettings": [],
}


def test_the_request_of_gemini_cli(server: Server, client: httpx.Client) -> None:
    path = "/v1beta/models/gemini-3-pro-preview:streamGenerateContent?alt=sse"
    response = client.post(path, json=GEMINI_CLI)
    events = [json.loads(e.removeprefix("data: ")) for e in response.text.split("\n\n") if e]
    assert all(types.GenerateContentResponse.model_validate(event) for event in events)
    session = server.backend.sessions[-1]
    assert session.thinking
    assert session.system_message == "You are an interactive CLI agent."
    *_, answer, result = session.messages
    assert (result.name, result.content) == ("list_directory", "a.txt")
    assert result.tool_call_id == answer.tool_calls[0].id


@given(
    body=mutated(GEMINI_CLI), method=st.sampled_from(["generateContent", "streamGenerateContent"])
)
def test_no_request_is_an_error_of_the_server(
    client: httpx.Client, body: dict[str, Any], method: str
) -> None:
    response = client.post(f"/v1beta/models/m:{method}", json=body)
    if response.status_code != 200:
        assert failed(response)[0] < 500, response.text
    elif method == "generateContent":
        types.GenerateContentResponse.model_validate(response.json())
    else:
        for chunk in response.json():
            assert chunk.get("error", {}).get("code", 400) < 500


@given(body=st.dictionaries(st.sampled_from(["contents", "generateContentRequest", "tools"]), JSON))
def test_no_count_is_an_error_of_the_server(client: httpx.Client, body: dict[str, Any]) -> None:
    response = client.post("/v1beta/models/m:countTokens", json=body)
    assert response.status_code == 200 or failed(response)[0] < 500


def test_the_prompt_of_a_whole_request_is_counted(client: httpx.Client) -> None:
    counted = client.post(
        "/v1beta/models/m:countTokens",
        json={"generateContentRequest": {"model": "models/m", **GEMINI_CLI}},
    ).json()
    plain = client.post(
        "/v1beta/models/m:countTokens", json={"contents": GEMINI_CLI["contents"]}
    ).json()
    types.CountTokensResponse.model_validate({"totalTokens": counted["totalTokens"]})
    assert counted["totalTokens"] > plain["totalTokens"] > 10
