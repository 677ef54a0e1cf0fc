"""The APIs of the server as its clients see them: requests, answers and the ends of streams."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: earlier turns and a question to a model, whose answer fits `schema` if any."""

    model: str
    turns: Sequence[str]
    schema: Json | None = None
    max_tokens: int = 64

    def messages(self, answerer: str = "assistant", field: str = "content") -> list[Json]:
        """The turns; `field` has their text."""
        roles = ("user", answerer)
        return [{"role": roles[i % 2], field: text} for i, text in enumerate(self.turns)]


@dataclass(frozen=True, slots=True)
class Wire:
    """One path of an API.

    `text` reads a whole answer, `piece` an event of a stream; `last` says whether it is the one
    that must end it. Both raise LookupError or TypeError for what has not the API's shape.
    """

    name: str
    path: str
    body: Callable[[Asked], Json]
    text: Callable[[Json], str]
    piece: Callable[[Json], str]
    last: Callable[[Json], bool]
    stream_path: str = ""

    def url(self, asked: Asked, *, stream: bool) -> str:
        path = self.stream_path if stream and self.stream_path else self.path
        return path.format(model=asked.model)

    def request(self, asked: Asked, *, stream: bool) -> Json:
        return self.body(asked) | ({} if self.stream_path else {"stream": stream})


def event(line: str) -> Json | None:
    """The JSON of a line of a stream, None if it has none."""
    text = line.removeprefix("data: ")
    return json.loads(text) if text.startswith("{") else None


def _chat(asked: Asked) -> Json:
    body: Json = {"model": asked.model, "messages": asked.messages()}
    body["max_tokens"] = asked.max_tokens
    if asked.schema is not None:
        schema = {"name": "answer", "schema": asked.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def _responses(asked: Asked) -> Json:
    body: Json = {"model": asked.model, "input": asked.messages(), "store": False}
    body["max_output_tokens"] = asked.max_tokens
    if asked.schema is not None:
        form = {"type": "json_schema", "name": "answer", "schema": asked.schema}
        body["text"] = {"format": form}
    return body


def _anthropic(asked: Asked) -> Json:
    body: Json = {"model": asked.model, "messages": asked.messages()}
    body["max_tokens"] = asked.max_tokens
    if asked.schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": asked.schema}}
    return body


def _gemini(asked: Asked) -> Json:
    contents = [
        {"role": message["role"], "parts": [{"text": message["content"]}]}
        for message in asked.messages("model")
    ]
    config: Json = {"maxOutputTokens": asked.max_tokens}
    if asked.schema is not None:
        config |= {"responseMimeType": "application/json", "responseJsonSchema": asked.schema}
    return {"contents": contents, "generationConfig": config}


def _ollama(asked: Asked) -> Json:
    body: Json = {"model": asked.model, "messages": asked.messages()}
    return body | _ollama_options(asked)


def _generate(asked: Asked) -> Json:
    return {"model": asked.model, "prompt": asked.turns[-1]} | _ollama_options(asked)


def _ollama_options(asked: Asked) -> Json:
    options: Json = {"options": {"num_predict": asked.max_tokens}}
    return options if asked.schema is None else options | {"format": asked.schema}


def _completions(asked: Asked) -> Json:
    body: Json = {"model": asked.model, "prompt": "\n".join(asked.turns)}
    body["max_tokens"] = asked.max_tokens
    return body if asked.schema is None else body | {"json_schema": asked.schema}


def _llamacpp(asked: Asked) -> Json:
    body: Json = {"model": asked.model, "prompt": "\n".join(asked.turns)}
    body["n_predict"] = asked.max_tokens
    return body if asked.schema is None else body | {"json_schema": asked.schema}


def _only(items: Sequence[Any]) -> Any:
    (item,) = items
    return item


def _chat_piece(data: Json) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in data["choices"])


def response_text(data: Json) -> str:
    """The text of a complete response."""
    assert data["status"] == "completed", data
    return _only(_only(data["output"])["content"])["text"]


def response_piece(data: Json) -> str:
    """The text that an event of a response adds."""
    return data["delta"] if data["type"] == "response.output_text.delta" else ""


def response_ends(data: Json) -> bool:
    """Whether an event of a response is its last."""
    return data["type"] == "response.completed"


def _gemini_text(data: Json) -> str:
    content = _only(data["candidates"]).get("content", {})
    return "".join(part["text"] for part in content.get("parts", ()))


def _anthropic_piece(data: Json) -> str:
    return data["delta"]["text"] if data["type"] == "content_block_delta" else ""


def _has_finish(data: Json) -> bool:
    return any(choice["finish_reason"] for choice in data["choices"])


RESPONSES = Wire(
    "responses", "/v1/responses", _responses, response_text, response_piece, response_ends
)
WIRES = (
    Wire(
        "chat",
        "/v1/chat/completions",
        _chat,
        lambda data: _only(data["choices"])["message"]["content"],
        _chat_piece,
        _has_finish,
    ),
    RESPONSES,
    Wire(
        "anthropic",
        "/v1/messages",
        _anthropic,
        lambda data: _only(data["content"])["text"],
        _anthropic_piece,
        lambda data: data["type"] == "message_stop",
    ),
    Wire(
        "gemini",
        "/v1beta/models/{model}:generateContent",
        _gemini,
        _gemini_text,
        _gemini_text,
        lambda data: "finishReason" in _only(data["candidates"]),
        "/v1beta/models/{model}:streamGenerateContent?alt=sse",
    ),
    Wire(
        "ollama chat",
        "/api/chat",
        _ollama,
        lambda data: data["message"]["content"],
        lambda data: data["message"]["content"],
        lambda data: data["done"],
    ),
    Wire(
        "ollama generate",
        "/api/generate",
        _generate,
        lambda data: data["response"],
        lambda data: data["response"],
        lambda data: data["done"],
    ),
    Wire(
        "completions",
        "/v1/completions",
        _completions,
        lambda data: _only(data["choices"])["text"],
        lambda data: _only(data["choices"])["text"],
        _has_finish,
    ),
    Wire(
        "llama.cpp",
        "/completion",
        _llamacpp,
        lambda data: data["content"],
        lambda data: data["content"],
        lambda data: data["stop"],
    ),
)
