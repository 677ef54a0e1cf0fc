"""Ollama as a vendor: lines of JSON, calls without ids, as large as it is told to be."""

from dataclasses import dataclass
from typing import Any, ClassVar

from shepherd.messages import JsonObject
from tests.backends.api.ollama.official import check_body
from tests.backends.api.upstream import Received, Reply
from tests.upstreams.vendor import Answer, Said, Vendor, require


@dataclass
class OllamaVendor(Vendor):
    """/api/chat."""

    kind: ClassVar[str] = "ollama"
    model: ClassVar[str] = "qwen3"

    def asks(self, request: Received) -> bool:
        return request.path == "/api/chat"

    def other(self, request: Received) -> Reply:
        if request.path == "/api/tags":
            return Reply({"models": [{"name": "qwen3:latest", "model": "qwen3:latest"}]})
        if request.path == "/api/show":
            return Reply({"model_info": {"qwen3.context_length": self.limit}, "parameters": ""})
        return Reply({"models": []})

    def said(self, body: JsonObject) -> list[Said]:
        found: list[Said] = []
        for message in body["messages"]:
            match message["role"]:
                case "system":
                    require(not found, "a system message in the midst")
                case "user":
                    found.append(Said("user", [message["content"]]))
                case "assistant":
                    made = [("", c["function"]["name"]) for c in message.get("tool_calls", [])]
                    texts = [message["content"]] if message["content"] else []
                    found.append(Said("assistant", texts, made))
                case _:
                    if not found[-1].results:
                        found.append(Said("user"))
                    found[-1].results.append(("", message["tool_name"], message["content"]))
        return _with_words_behind_results(found)

    def own(self, body: JsonObject) -> None:
        require(body["options"]["num_ctx"] == self.limit, "num_ctx")
        require(body["truncate"] is False, "truncate")
        for message in body["messages"]:
            for made in message.get("tool_calls", []):
                require(isinstance(made["function"]["arguments"], dict), "arguments")

    def official(self, request: Received) -> None:
        check_body(request.json)

    def overflow(self, body: JsonObject, prompt: int) -> Reply | None:
        if prompt <= self.limit:
            return None
        text = (
            f'{{"error":{{"code":400,"message":"request ({prompt} tokens) exceeds the available '
            f'context size ({self.limit} tokens), try increasing it",'
            f'"type":"exceed_context_size_error"}}}}'
        )
        return Reply({"error": text}, status=400)

    def stream(self, answer: Answer, prompt: int) -> Reply:
        calls = [{"function": {"name": "read_file", "arguments": a}} for a in answer.calls]
        lines = [_line(thinking=answer.thought), _line(answer.text)]
        if calls:
            lines.append(_line(tool_calls=calls))
        counts = {"prompt_eval_count": prompt, "eval_count": 9}
        return Reply.ndjson([*lines, {**_line(), "done": True, "done_reason": "stop", **counts}])


def _line(content: str = "", **more: Any) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": content, **more}
    made: JsonObject = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": message}
    return made | {"done": False}


def _with_words_behind_results(said: list[Said]) -> list[Said]:
    """What the user says right behind results belongs to the same side."""
    joined: list[Said] = []
    for one in said:
        if joined and joined[-1].role == "user" == one.role and joined[-1].results:
            joined[-1].texts.extend(one.texts)
        else:
            joined.append(one)
    return joined
