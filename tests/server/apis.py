"""The APIs that answer, each with the form of its requests and the reading of its answers."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from shepherd.images import Image
from tests.patience import PATIENCE
from tests.server.harness import RunningServer

Json = dict[str, Any]
SCHEMA: Json = {"type": "object", "properties": {"zone": {"type": "string"}}}
TOOL: Json = {"name": "get_time", "description": "The time.", "parameters": SCHEMA}


@dataclass(frozen=True)
class Request:
    """What a client wants, in no API's form."""

    text: str = "hi"
    limit: int = 200
    stop: Sequence[str] = ()
    think: bool = False
    tools: bool = False
    image: Image | None = None
    schema: Json | None = None


@dataclass
class Read:
    """What an answer says: its texts, its calls, and why it ended (stop, length or calls)."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Json]] = field(default_factory=list[tuple[str, Json]])
    end: str = ""

    def call(self, name: str, arguments: Any) -> None:
        """Add a call, whose arguments may come as JSON text."""
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
        self.calls.append((name, parsed))


class Wire(ABC):
    """One path of an API; `raw` is one for prompts without messages."""

    path = ""
    stream_path = ""
    raw = False
    busy_status = 503
    key_header = "Authorization"

    @abstractmethod
    def body(self, request: Request) -> Json:
        """The body of a request."""

    @abstractmethod
    def read(self, data: Json) -> Read:
        """What a whole answer says."""

    @abstractmethod
    def join(self, events: Sequence[Json]) -> Read:
        """What the events of a stream say."""

    def error(self, data: Json) -> str:
        """The message of an error, which has this API's shape."""
        assert isinstance(data["error"]["message"], str)
        return data["error"]["message"]

    def send(
        self,
        server: RunningServer[Any],
        request: Request | None = None,
        *,
        stream: bool = False,
        **headers: str,
    ) -> httpx.Response:
        """The response to a request."""
        body = self.body(request or Request())
        if not self.stream_path:
            body |= {"stream": stream}
        url = server.url + (self.stream_path if stream and self.stream_path else self.path)
        return httpx.post(url, json=body, headers=headers, timeout=PATIENCE)

    def events(self, text: str) -> list[Json]:
        """The objects of a stream."""
        lines = (line.removeprefix("data: ") for line in text.splitlines())
        return [json.loads(line) for line in lines if line.startswith("{")]

    def ask(
        self, server: RunningServer[Any], request: Request | None = None, *, stream: bool
    ) -> Read:
        """What the answer to a request says."""
        response = self.send(server, request, stream=stream)
        assert response.status_code == 200, response.text
        return self.join(self.events(response.text)) if stream else self.read(response.json())


class Chat(Wire):
    path = "/v1/chat/completions"

    def body(self, request: Request) -> Json:
        content: Any = request.text
        if request.image is not None:
            content = [{"type": "image_url", "image_url": {"url": request.image.data_url}}]
        body: Json = {"messages": [{"role": "user", "content": content}]}
        body |= {"max_tokens": request.limit, "stop": list(request.stop)}
        body["reasoning_effort"] = "low" if request.think else "none"
        if request.tools:
            body["tools"] = [{"type": "function", "function": TOOL}]
        if request.schema:
            schema = {"name": "a", "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def read(self, data: Json) -> Read:
        (choice,) = data["choices"]
        message = choice["message"]
        read = Read(message["content"] or "", message.get("reasoning_content", ""))
        for call in message.get("tool_calls", ()):
            read.call(**call["function"])
        read.end = choice["finish_reason"].replace("tool_calls", "calls")
        return read

    def join(self, events: Sequence[Json]) -> Read:
        read, calls = Read(), dict[int, list[str]]()
        for event in events:
            (choice,) = event["choices"]
            delta = choice["delta"]
            read.text += delta.get("content") or ""
            read.reasoning += delta.get("reasoning_content", "")
            for call in delta.get("tool_calls", ()):
                function = call["function"]
                if "name" in function:
                    calls[call["index"]] = [function["name"], ""]
                calls[call["index"]][1] += function["arguments"]
            read.end = (choice["finish_reason"] or "").replace("tool_calls", "calls")
        for name, arguments in calls.values():
            read.call(name, arguments)
        return read


class Responses(Wire):
    path = "/v1/responses"

    def body(self, request: Request) -> Json:
        body: Json = {"input": request.text, "max_output_tokens": request.limit}
        if request.image is not None:
            part = {"type": "input_image", "image_url": request.image.data_url}
            body["input"] = [{"role": "user", "content": [part]}]
        body["stop"] = list(request.stop)
        body["reasoning"] = {"effort": "low" if request.think else "none"}
        if request.tools:
            body["tools"] = [{"type": "function", **TOOL}]
        if request.schema:
            body["text"] = {
                "format": {"type": "json_schema", "name": "a", "schema": request.schema}
            }
        return body

    def read(self, data: Json) -> Read:
        read = Read(end={"completed": "stop", "incomplete": "length"}[data["status"]])
        for item in data["output"]:
            match item["type"]:
                case "message":
                    read.text += item["content"][0]["text"]
                case "reasoning":
                    read.reasoning += "".join(part["text"] for part in item.get("content", ()))
                case _:
                    read.call(item["name"], item["arguments"])
                    read.end = "calls"
        return read

    def join(self, events: Sequence[Json]) -> Read:
        read, last = Read(), events[-1]
        for event in events:
            match event["type"]:
                case "response.output_text.delta":
                    read.text += event["delta"]
                case "response.reasoning_text.delta":
                    read.reasoning += event["delta"]
                case "response.function_call_arguments.done":
                    read.call(event["name"], event["arguments"])
                case _:
                    pass
        whole = self.read(last["response"])
        assert whole.text == read.text
        read.end = whole.end
        return read

    def error(self, data: Json) -> str:
        return super().error(data.get("response", data))


class Messages(Wire):
    path = "/v1/messages"
    busy_status = 529

    def body(self, request: Request) -> Json:
        content: Any = request.text
        if request.image is not None:
            content = [
                {"type": "image", "source": {"type": "base64", "data": request.image.base64}}
            ]
        body: Json = {"messages": [{"role": "user", "content": content}]}
        body |= {"max_tokens": request.limit, "stop_sequences": list(request.stop)}
        body["thinking"] = {"type": "adaptive" if request.think else "disabled"}
        if request.tools:
            body["tools"] = [{"name": TOOL["name"], "input_schema": SCHEMA}]
        if request.schema:
            body["output_config"] = {"format": {"type": "json_schema", "schema": request.schema}}
        return body

    def read(self, data: Json) -> Read:
        ends = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}
        read = Read(end=ends.get(data["stop_reason"], "calls"))
        for block in data["content"]:
            match block["type"]:
                case "text":
                    read.text += block["text"]
                case "thinking":
                    read.reasoning += block["thinking"]
                case _:
                    read.call(block["name"], block["input"])
        return read

    def join(self, events: Sequence[Json]) -> Read:
        blocks: list[Json] = []
        reason = ""
        for event in events:
            match event:
                case {"type": "content_block_start", "content_block": block}:
                    blocks.append({**block})
                case {"type": "content_block_delta", "delta": {"partial_json": arguments}}:
                    blocks[-1]["input"] = arguments
                case {"type": "content_block_delta", "delta": delta}:
                    kind = delta["type"].removesuffix("_delta")
                    blocks[-1][kind] += delta[kind]
                case {"type": "message_delta", "delta": delta}:
                    reason = delta["stop_reason"]
                case _:
                    pass
        return self.read({"content": blocks, "stop_reason": reason})

    def error(self, data: Json) -> str:
        assert data["type"] == "error"
        return super().error(data)


class Gemini(Wire):
    path = "/v1beta/models/m:generateContent"
    stream_path = "/v1beta/models/m:streamGenerateContent?alt=sse"

    def body(self, request: Request) -> Json:
        part: Json = {"text": request.text}
        if request.image is not None:
            part = {"inlineData": {"mimeType": "image/png", "data": request.image.base64}}
        config: Json = {"maxOutputTokens": request.limit, "stopSequences": list(request.stop)}
        budget = -1 if request.think else 0
        config["thinkingConfig"] = {"includeThoughts": request.think, "thinkingBudget": budget}
        if request.schema:
            config |= {"responseMimeType": "application/json", "responseJsonSchema": request.schema}
        tools = [{"functionDeclarations": [TOOL]}] if request.tools else []
        return {"contents": [{"parts": [part]}], "tools": tools, "generationConfig": config}

    def read(self, data: Json) -> Read:
        return self.join([data])

    def join(self, events: Sequence[Json]) -> Read:
        read = Read()
        for event in events:
            (candidate,) = event["candidates"]
            for part in candidate["content"]["parts"]:
                if "functionCall" in part:
                    read.call(part["functionCall"]["name"], part["functionCall"]["args"])
                elif part.get("thought"):
                    read.reasoning += part["text"]
                else:
                    read.text += part["text"]
            names = {"STOP": "calls" if read.calls else "stop", "MAX_TOKENS": "length"}
            read.end = names.get(candidate.get("finishReason"), "")
        return read

    def error(self, data: Json) -> str:
        assert set(data["error"]) == {"code", "message", "status", "details"}
        return super().error(data)


class GeminiArray(Gemini):
    stream_path = "/v1beta/models/m:streamGenerateContent"

    def events(self, text: str) -> list[Json]:
        return json.loads(text)


class OllamaChat(Wire):
    path = "/api/chat"

    def body(self, request: Request) -> Json:
        message: Json = {"role": "user", "content": request.text}
        if request.image is not None:
            message["images"] = [request.image.base64]
        options = {"num_predict": request.limit, "stop": list(request.stop)}
        body: Json = {"model": "m", "messages": [message], "options": options}
        body |= {"think": request.think, "format": request.schema}
        if request.tools:
            body["tools"] = [{"type": "function", "function": TOOL}]
        return body

    def read(self, data: Json) -> Read:
        return self.join([data])

    def join(self, events: Sequence[Json]) -> Read:
        read = Read()
        for event in events:
            message = event["message"]
            read.text += message["content"]
            read.reasoning += message.get("thinking", "")
            for call in message.get("tool_calls", ()):
                read.call(call["function"]["name"], call["function"]["arguments"])
            read.end = event.get("done_reason", "")
        if read.calls and read.end == "stop":
            read.end = "calls"
        assert [event["done"] for event in events] == [False] * (len(events) - 1) + [True]
        return read

    def error(self, data: Json) -> str:
        assert isinstance(data["error"], str)
        return data["error"]


class OllamaGenerate(OllamaChat):
    path = "/api/generate"

    def body(self, request: Request) -> Json:
        (message,) = (body := super().body(request)).pop("messages")
        body.pop("tools", None)
        return body | {"prompt": request.text, "images": message.get("images", [])}

    def join(self, events: Sequence[Json]) -> Read:
        text = "".join(event["response"] for event in events)
        reasoning = "".join(event.get("thinking", "") for event in events)
        return Read(text, reasoning, end=events[-1]["done_reason"])


class Completions(Wire):
    path = "/v1/completions"
    raw = True

    def body(self, request: Request) -> Json:
        body: Json = {"prompt": request.text, "max_tokens": request.limit}
        return body | {"stop": list(request.stop), "json_schema": request.schema}

    def read(self, data: Json) -> Read:
        return self.join([data])

    def join(self, events: Sequence[Json]) -> Read:
        choices = [event["choices"][0] for event in events]
        text = "".join(choice["text"] for choice in choices)
        return Read(text, end=choices[-1]["finish_reason"])


class LlamaCpp(Wire):
    path = "/completion"
    raw = True

    def body(self, request: Request) -> Json:
        body: Json = {"prompt": request.text, "n_predict": request.limit}
        return body | {"stop": list(request.stop), "json_schema": request.schema}

    def read(self, data: Json) -> Read:
        return self.join([data])

    def join(self, events: Sequence[Json]) -> Read:
        text = "".join(event["content"] for event in events)
        return Read(text, end="length" if events[-1]["stop_type"] == "limit" else "stop")


WIRES: dict[str, Wire] = {
    "chat": Chat(),
    "responses": Responses(),
    "messages": Messages(),
    "gemini": Gemini(),
    "gemini array": GeminiArray(),
    "ollama chat": OllamaChat(),
    "ollama generate": OllamaGenerate(),
    "completions": Completions(),
    "llama.cpp": LlamaCpp(),
}
CONVERSATIONS = {name: wire for name, wire in WIRES.items() if not wire.raw}
CALLING = {name: wire for name, wire in CONVERSATIONS.items() if name != "ollama generate"}
