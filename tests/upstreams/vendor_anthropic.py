"""Anthropic as a vendor: thoughts are signed, and there must be room for `max_tokens` too."""

import json
from dataclasses import dataclass
from typing import ClassVar

from shepherd.backends.api.adapter import ApiRequest
from shepherd.messages import JsonObject
from tests.backends.api.anthropic.schema import check_request
from tests.backends.api.anthropic.streams import call, ended, started, text, thought
from tests.backends.api.upstream import Received, Reply
from tests.upstreams.vendor import Answer, Said, Vendor, require


@dataclass
class AnthropicVendor(Vendor):
    """The Messages API of a model that is told a budget for its thoughts."""

    kind: ClassVar[str] = "anthropic"
    model: ClassVar[str] = "claude-sonnet-4-5"

    def asks(self, request: Received) -> bool:
        return request.path == "/v1/messages"

    def other(self, request: Received) -> Reply:
        entry = {"type": "model", "id": self.model, "max_input_tokens": self.limit}
        return Reply({"data": [entry]} if request.path == "/v1/models" else entry)

    def said(self, body: JsonObject) -> list[Said]:
        found: list[Said] = []
        names: dict[str, str] = {}
        for message in body["messages"]:
            one = Said(message["role"])
            for block in message["content"]:
                match block["type"]:
                    case "text":
                        one.texts.append(block["text"])
                    case "tool_use":
                        names[block["id"]] = block["name"]
                        one.calls.append((block["id"], block["name"]))
                    case "tool_result":
                        require(not one.texts, "results must come first")
                        key = block["tool_use_id"]
                        one.results.append((key, names[key], block["content"]))
                    case _:
                        pass
            found.append(one)
        return found

    def own(self, body: JsonObject) -> None:
        thinks = body.get("thinking", {}).get("type") == "enabled"
        if thinks:
            require(1024 <= body["thinking"]["budget_tokens"] < body["max_tokens"], "budget")
        marks = json.dumps(body).count('"cache_control"')
        require(marks <= 4, f"{marks} cache marks")
        for message in body["messages"]:
            kinds = [block["type"] for block in message["content"]]
            require("thinking" not in kinds[1:], "a thought in the midst")
            for block in message["content"]:
                if block["type"] == "thinking":
                    signed = self.sign(block["thinking"])
                    require(block["signature"] == signed, "Invalid `signature` in `thinking` block")
        *before, last = body["messages"]
        if thinks and last["content"][0]["type"] == "tool_result":
            require(before[-1]["content"][0]["type"] == "thinking", "Expected `thinking`")

    def official(self, request: Received) -> None:
        names = ("anthropic-version", "anthropic-beta")
        headers = {name: request.headers[name] for name in names if name in request.headers}
        check_request(ApiRequest(request.path, request.json, headers=headers))

    def overflow(self, body: JsonObject, prompt: int) -> Reply | None:
        most = body["max_tokens"]
        if prompt > self.limit:
            why = f"prompt is too long: {prompt} tokens > {self.limit} maximum"
        elif prompt + most > self.limit:
            why = (
                f"input length and `max_tokens` exceed context limit: {prompt} + {most} > "
                f"{self.limit}, decrease input length or `max_tokens` and try again"
            )
        else:
            return None
        error = {"type": "invalid_request_error", "message": why}
        return Reply({"type": "error", "error": error}, status=400)

    def stream(self, answer: Answer, prompt: int) -> Reply:
        blocks = [thought(0, self.sign(answer.thought), answer.thought)]
        if answer.text:
            blocks.append(text(1, answer.text))
        for arguments in answer.calls:
            place = len(blocks)
            key = f"toolu_{self.requests}_{place}"
            blocks.append(call(place, key, "read_file", json.dumps(arguments)))
        events = [
            started(self.model, input_tokens=prompt),
            *(event for events in blocks for event in events),
            *ended("tool_use" if answer.calls else "end_turn"),
        ]
        return Reply.sse([(event["type"], event) for event in events], done=False)
