"""Answers of the other APIs as their packages' types have them: no field too many, none missing.

`tests/openai_file.py` does this for OpenAI's API.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

import httpx
import ollama
import pytest
from anthropic.types import ErrorResponse, Message, MessageTokensCount, ModelInfo
from anthropic.types import RawMessageStreamEvent as MessageEvent
from anthropic.types.beta import BetaMessage
from google.genai import types as google
from pydantic import BaseModel, TypeAdapter

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from tests.patience import PATIENCE
from tests.server.harness import RunningServer, Scripted

SCRIPTS = {
    "text": "text: Hello you",
    "thoughts": "think: Hm.\ntext: Hello",
    "call": 'think: Hm.\ntext: I look.\ncall: look {"at": 1}\ncall: look {"at": 2}',
    "only a call": 'call: look {"at": 1}',
    "length": "text: one two three\nfinish: length",
    "stop": "text: one STOP two",
    "nothing": "text:",
    "failure": "text: one\nerror: it is gone",
    "full": "full: 3",
}
SCHEMA = {"type": "object", "properties": {"at": {"type": "integer"}}}
ANTHROPIC: dict[str, Any] = {
    "model": "m",
    "max_tokens": 50,
    "messages": [{"role": "user", "content": "hi"}],
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "tools": [{"name": "look", "input_schema": SCHEMA}],
    "stop_sequences": ["STOP"],
}
GEMINI: dict[str, Any] = {
    "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": SCHEMA}]}],
    "generationConfig": {
        "stopSequences": ["STOP"],
        "thinkingConfig": {"includeThoughts": True},
    },
}
OLLAMA: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "think": True,
    "tools": [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}],
    "options": {"stop": ["STOP"]},
}
GENERATE = {"model": "m", "prompt": "hi", "think": True, "options": {"stop": ["STOP"]}}
OWN = frozenset({"prompt_eval_cached_count", "error.details"})
"""Fields that only this server has."""
GOOGLES = frozenset({"baseModelId", "promptTokensDetails", "supportedGenerationMethods"})
"""Fields that Google's API has and its package's types lack."""
OLLAMAS = frozenset({"message.tool_calls.id", "message.tool_calls.function.index", "models.name"})
"""Fields that Ollama's server has and its package's types lack."""


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with RunningServer(ScriptedBackend(parse_script(""))) as running:
        yield running


def send(server: Scripted, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(server.url + path, json=body, timeout=PATIENCE)


def unknown(value: object, data: Any, path: str = "") -> Iterator[str]:
    """The paths in `data` that the type of `value` does not have."""
    if isinstance(value, BaseModel):
        fields = {field.alias or name: name for name, field in type(value).model_fields.items()}
        for key, part in data.items():
            where = f"{path}.{key}".lstrip(".")
            if key in fields:
                yield from unknown(getattr(value, fields[key]), part, where)
            else:
                yield where
    elif isinstance(value, list):
        for item, part in zip(cast(list[Any], value), data, strict=True):
            yield from unknown(item, part, path)


def check(kind: Any, data: Any) -> Any:
    """Validate an object, and refuse fields that its type does not have."""
    value = TypeAdapter[Any](kind).validate_python(data)
    assert set(unknown(value, data)) <= OWN | OLLAMAS
    return value


def events(text: str) -> list[Any]:
    """The objects of a stream of events, without comments."""
    lines = [line for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_other_fields_are_seen() -> None:
    answer: dict[str, Any] = {"message": {"role": "assistant", "tool_calls": [{"function": {}}]}}
    with pytest.raises(ValueError, match="name"):
        check(ollama.ChatResponse, answer)
    answer["message"]["tool_calls"] = [{"function": {"name": "x", "arguments": {}, "more": 1}}]
    with pytest.raises(AssertionError, match=r"message\.tool_calls\.function\.more"):
        check(ollama.ChatResponse, answer)


@pytest.mark.parametrize("script", SCRIPTS)
def test_anthropic(server: Scripted, script: str) -> None:
    server.backend.script = parse_script(SCRIPTS[script])
    whole = send(server, "/v1/messages", ANTHROPIC)
    check(Message if whole.status_code == 200 else ErrorResponse, whole.json())
    streamed = send(server, "/v1/messages", ANTHROPIC | {"stream": True})
    if streamed.status_code != 200:
        check(ErrorResponse, streamed.json())
        return
    for event in events(streamed.text):
        if event["type"] != "ping":
            check(ErrorResponse if event["type"] == "error" else MessageEvent, event)


def test_anthropics_other_answers(server: Scripted) -> None:
    server.backend.script = parse_script(SCRIPTS["text"])
    edits = {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}
    check(BetaMessage, send(server, "/v1/messages?beta=true", ANTHROPIC | edits).json())
    counted = {name: ANTHROPIC[name] for name in ("model", "messages", "tools")}
    check(MessageTokensCount, send(server, "/v1/messages/count_tokens", counted).json())
    version = {"anthropic-version": "2023-06-01"}
    listed = httpx.get(f"{server.url}/v1/models", headers=version, timeout=PATIENCE).json()
    assert set(listed) == {"data", "has_more", "first_id", "last_id"}
    check(list[ModelInfo], listed["data"])


@pytest.mark.parametrize("script", SCRIPTS)
def test_gemini(server: Scripted, script: str) -> None:
    server.backend.script = parse_script(SCRIPTS[script])
    whole = send(server, "/v1beta/models/m:generateContent", GEMINI)
    streamed = send(server, "/v1beta/models/m:streamGenerateContent?alt=sse", GEMINI)
    answers = [whole.json()] if whole.status_code == 200 else []
    answers += events(streamed.text) if streamed.status_code == 200 else []
    for answer in answers:
        if "error" not in answer:
            check(google.GenerateContentResponse, answer)
            assert answer["modelVersion"]
            assert answer["responseId"]
    failures = [answer for answer in answers if "error" in answer]
    failures += [one.json() for one in (whole, streamed) if one.status_code != 200]
    assert bool(failures) == (script in {"failure", "full"})
    for failure in failures:
        assert {"code", "message", "status"} <= set(failure["error"])
    for answer in answers[:1]:
        assert "usageMetadata" in answer or script == "failure"


def test_geminis_other_answers(server: Scripted) -> None:
    body = {"contents": GEMINI["contents"]}
    counted = send(server, "/v1beta/models/m:countTokens", body).json()
    check(google.CountTokensResponse, {k: v for k, v in counted.items() if k not in GOOGLES})
    listed = httpx.get(f"{server.url}/v1beta/models", timeout=PATIENCE).json()
    for model in listed["models"]:
        check(google.Model, {k: v for k, v in model.items() if k not in GOOGLES})


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/api/chat", OLLAMA, ollama.ChatResponse),
        ("/api/generate", GENERATE, ollama.GenerateResponse),
    ],
)
def test_ollama(server: Scripted, script: str, path: str, body: Any, kind: Any) -> None:
    server.backend.script = parse_script(SCRIPTS[script])
    for stream in (True, False):
        response = send(server, path, body | {"stream": stream})
        lines = list(map(json.loads, response.text.strip().split("\n")))
        if response.status_code == 200:
            assert [line.get("done") for line in lines[:-1]] == [False] * (len(lines) - 1)
            assert lines[-1].get("done") or "error" in lines[-1]
        for line in lines:
            if "error" in line:
                assert set(line) == {"error"}
            else:
                check(kind, line)


def test_ollamas_other_answers(server: Scripted) -> None:
    def get(path: str) -> Any:
        return httpx.get(server.url + path, timeout=PATIENCE).json()

    check(ollama.ListResponse, get("/api/tags"))
    check(ollama.ProcessResponse, get("/api/ps"))
    check(ollama.ShowResponse, send(server, "/api/show", {"model": "script"}).json())
    vectors: Iterable[Any] = (
        ("/api/embed", ollama.EmbedResponse, {"input": ["a"]}),
        ("/api/embeddings", ollama.EmbeddingsResponse, {"prompt": "a"}),
    )
    for path, kind, body in vectors:
        check(kind, send(server, path, body | {"model": "m"}).json())
