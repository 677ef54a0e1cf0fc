"""OpenAI's two languages as a vendor speaks them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from shepherd.messages import JsonObject
from tests.backends.api.openai.official import valid_chat, valid_responses
from tests.backends.api.upstream import Received, Reply
from tests.upstreams.vendor import ROOM, Answer, Said, Vendor, require

HEAD: JsonObject = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


@dataclass
class OpenAIVendor(Vendor):
    """What both of OpenAI's languages have."""

    def other(self, request: Received) -> Reply:
        if request.path != "/v1/models":
            return Reply({"error": {"message": "not found"}}, status=404)
        return Reply({"object": "list", "data": [{"id": self.model, "object": "model"}]})


@dataclass
class ChatVendor(OpenAIVendor):
    """Chat completions; nobody tells how large the context is."""

    kind: ClassVar[str] = "openai"
    model: ClassVar[str] = "acme-9b"
    alternates: ClassVar[bool] = False

    def asks(self, request: Received) -> bool:
        return request.path == "/v1/chat/completions"

    def said(self, body: JsonObject) -> list[Said]:
        found: list[Said] = []
        names: dict[str, str] = {}
        for message in body["messages"]:
            match message["role"]:
                case "system":
                    require(not found, "a system message in the midst")
                case "user":
                    found.append(Said("user", [message["content"]]))
                case "assistant":
                    made = [(c["id"], c["function"]["name"]) for c in message.get("tool_calls", [])]
                    names |= dict(made)
                    texts = [message["content"]] if message["content"] is not None else []
                    found.append(Said("assistant", texts, made))
                case _:
                    key = message["tool_call_id"]
                    if not found[-1].results:
                        found.append(Said("user"))
                    found[-1].results.append((key, names[key], message["content"]))
        return found

    def own(self, body: JsonObject) -> None:
        for message in body["messages"]:
            for call in message.get("tool_calls", []):
                require(isinstance(json.loads(call["function"]["arguments"]), dict), "arguments")
        for a, b in zip(body["messages"], body["messages"][1:], strict=False):
            require(a["role"] != b["role"] or a["role"] in ("tool", "user"), "two answers")

    def official(self, request: Received) -> None:
        valid_chat(request.json)

    def overflow(self, body: JsonObject, prompt: int) -> Reply | None:
        if prompt + ROOM <= self.limit:
            return None
        text = (
            f"This model's maximum context length is {self.limit} tokens. However, your messages "
            f"resulted in {prompt + ROOM} tokens. Please reduce the length of the messages."
        )
        error = {"message": text, "type": "invalid_request_error", "param": "messages"}
        return Reply({"error": error | {"code": "context_length_exceeded"}}, status=400)

    def stream(self, answer: Answer, prompt: int) -> Reply:
        reason = "tool_calls" if answer.calls else "stop"
        deltas = [{"role": "assistant", "content": answer.text}, *_fragments(answer, self.requests)]
        choices = [{"index": 0, "delta": d, "finish_reason": None} for d in deltas]
        chunks = [{**HEAD, "choices": [choice]} for choice in choices]
        chunks.append({**HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        usage = {"prompt_tokens": prompt, "completion_tokens": 9, "total_tokens": prompt + 9}
        return Reply.sse([*chunks, {**HEAD, "choices": [], "usage": usage}])


def _fragments(answer: Answer, number: int) -> Iterator[JsonObject]:
    for index, arguments in enumerate(answer.calls):
        function = {"name": "read_file", "arguments": ""}
        head: JsonObject = {"id": f"call_{number}_{index}", "type": "function"}
        yield {"tool_calls": [{"index": index, **head, "function": function}]}
        text = json.dumps(arguments)
        yield {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


@dataclass
class ResponsesVendor(OpenAIVendor):
    """Responses; its reasoning comes encrypted and must come back within a turn."""

    signed: set[str] = field(default_factory=set[str])

    kind: ClassVar[str] = "openai-responses"
    model: ClassVar[str] = "gpt-5"

    def asks(self, request: Received) -> bool:
        return request.path == "/v1/responses"

    def said(self, body: JsonObject) -> list[Said]:
        found: list[Said] = []
        names: dict[str, str] = {}
        for item in body["input"]:
            role = "assistant" if _is_answer(item) else "user"
            if not found or found[-1].role != role:
                found.append(Said(role))
            match item["type"]:
                case "message":
                    found[-1].texts.append(item["content"])
                case "function_call":
                    names[item["call_id"]] = item["name"]
                    found[-1].calls.append((item["call_id"], item["name"]))
                case "function_call_output":
                    key = item["call_id"]
                    found[-1].results.append((key, names[key], item["output"]))
                case _:
                    pass
        return [one for one in found if one.texts or one.calls or one.results]

    def own(self, body: JsonObject) -> None:
        """Reasoning is its own, and stands before the items that it led to."""
        items: list[JsonObject] = body["input"]
        for index, item in enumerate(items):
            if item["type"] == "reasoning":
                require(item["encrypted_content"] in self.signed, "reasoning that is not ours")
                require(_is_answer(items[index + 1]), "reasoning without its item")
            if item["type"] == "function_call" and item["call_id"].startswith("call_r"):
                before = [i["type"] for i in items[:index] if i["type"] != "function_call"]
                require(before[-1] in ("reasoning", "message"), "a call without its reasoning")
                require("reasoning" in before[-2:], "a call without its reasoning")

    def official(self, request: Received) -> None:
        valid_responses(request.json)

    def overflow(self, body: JsonObject, prompt: int) -> Reply | None:
        if prompt + ROOM <= self.limit:
            return None
        text = (
            "Your input exceeds the context window of this model. Please adjust your input and "
            "try again."
        )
        error = {"message": text, "type": "invalid_request_error", "param": "input"}
        return Reply({"error": error | {"code": "context_length_exceeded"}}, status=400)

    def stream(self, answer: Answer, prompt: int) -> Reply:
        output = list(self._items(answer))
        events: list[JsonObject] = []
        for index, item in enumerate(output):
            where = {"output_index": index, "sequence_number": 1}
            events.append({"type": "response.output_item.added", "item": item, **where})
            if item["type"] == "message":
                piece = {"item_id": item["id"], "delta": answer.text, "content_index": 0}
                events.append({"type": "response.output_text.delta", **where, **piece})
            events.append({"type": "response.output_item.done", "item": item, **where})
        usage = {"input_tokens": prompt, "output_tokens": 9, "total_tokens": prompt + 9}
        done = {"id": "resp_1", "object": "response", "status": "completed", "output": output}
        events.append({"type": "response.completed", "response": done | {"usage": usage}})
        return Reply.sse([(event["type"], event) for event in events], done=False)

    def _items(self, answer: Answer) -> Iterator[JsonObject]:
        number, sealed = self.requests, self.sign(f"{answer.thought}{self.requests}")
        self.signed.add(sealed)
        summary = [{"type": "summary_text", "text": answer.thought}]
        thought = {"type": "reasoning", "id": f"rs_{number}", "summary": summary}
        yield thought | {"encrypted_content": sealed}
        if answer.text:
            part: JsonObject = {"type": "output_text", "text": answer.text, "annotations": []}
            yield {
                "type": "message",
                "id": f"msg_{number}",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        for index, arguments in enumerate(answer.calls):
            yield {
                "type": "function_call",
                "id": f"fc_{number}_{index}",
                "call_id": f"call_r{number}_{index}",
                "name": "read_file",
                "arguments": json.dumps(arguments),
                "status": "completed",
            }


def _is_answer(item: JsonObject) -> bool:
    return item.get("role") == "assistant" or item["type"] in ("function_call", "reasoning")
