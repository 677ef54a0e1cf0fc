"""OpenAI's chat completions."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from openai import AsyncOpenAI

from shepherd.backends.api.adapter import Adapter
from shepherd.backends.connect import adapter_for
from shepherd.messages import JsonObject
from tests.backends.api.openai.official import chunk, valid_chat
from tests.backends.api.openai.official import said as delta
from tests.backends.api.upstream import Received, Reply
from tests.backends.conformance.language import check_chat, compact, halves, sse
from tests.backends.conformance.said import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    TWO_CALLS,
    Said,
    Understood,
)
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.wired import KEY, AdapterSubject

USAGE: JsonObject = {
    "prompt_tokens": PROMPT_TOKENS,
    "completion_tokens": COMPLETION_TOKENS,
    "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
}


class ChatSubject(AdapterSubject):
    """OpenAI itself; what copies it is below."""

    name = "openai"
    type = "openai"
    model = "gpt-4.1"
    open_until = -3
    recorded = Said("", ("ö.",), TWO_CALLS)
    lacks: ClassVar = {
        Scenario.THINKING: "OpenAI's chat completions keep their thoughts; its copies' are tried"
    }

    def adapter(self, url: str) -> Adapter:
        return adapter_for(self.type, "", model=self.model)

    def frames(self, said: Said) -> Sequence[bytes]:
        chunks = [delta(role="assistant", content=""), *thoughts(said)]
        chunks += [delta(content=piece) for piece in said.text]
        for index, (name, arguments) in enumerate(said.calls):
            chunks += call(index, name, compact(arguments))
        chunks.append(delta("tool_calls" if said.calls else "stop"))
        chunks.append(chunk(usage=USAGE))
        return [*map(sse, chunks), sse("[DONE]")]

    def overflow(self, prompt: int, limit: int) -> Reply:
        text = (
            f"This model's maximum context length is {limit} tokens. However, your messages "
            f"resulted in {prompt} tokens. Please reduce the length of the messages."
        )
        return Reply(error(text, code="context_length_exceeded", param="messages"), 400)

    def wrong_key(self) -> Reply:
        text = f"Incorrect API key provided: {KEY}. You can find your API key at https://x.example."
        return Reply(error(text, code="invalid_api_key"), 401)

    def unknown_model(self) -> Reply:
        text = f"The model `{self.model}` does not exist or you do not have access to it."
        return Reply(error(text, code="model_not_found"), 404)

    def busy(self) -> Reply:
        text = "Rate limit reached for gpt-4.1 on requests per min (RPM): Limit 3, Used 3."
        body = error(text, kind="requests", code="rate_limit_exceeded")
        return Reply(body, 429, {"retry-after": f"{self.busy_seconds:.0f}"})

    def down(self) -> Reply:
        return Reply(error("The server is currently overloaded.", kind="server_error"), 503)

    def failing(self) -> bytes:
        text = "The server had an error while processing your request. Sorry about that!"
        return sse(error(text, kind="server_error"))

    def check(self, request: Received) -> None:
        assert request.path.endswith("/chat/completions")
        check_chat(valid_chat(request.json)["messages"])

    async def official(self, url: str) -> Understood:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
            asked: Any = {"model": self.model, "messages": [{"role": "user", "content": "hi"}]}
            chat: Any = client.chat.completions
            told = ["", ""]
            calls: dict[int, list[str]] = {}
            async for part in await chat.create(**asked, stream=True):
                for choice in part.choices:
                    told[0] += choice.delta.content or ""
                    more: JsonObject = choice.delta.model_extra or {}
                    told[1] += more.get("reasoning_content") or ""
                    pieces: list[Any] = choice.delta.tool_calls or []
                    for piece in pieces:
                        made = calls.setdefault(piece.index, ["", ""])
                        made[0] += piece.function.name or ""
                        made[1] += piece.function.arguments or ""
        return Understood.from_texts(told[0], told[1], calls.values())


def call(index: int, name: str, arguments: str) -> Iterator[JsonObject]:
    """A call in pieces: the head first."""
    first, rest = halves(arguments)
    head = {"index": index, "id": f"call_{index}", "type": "function"}
    yield delta(tool_calls=[{**head, "function": {"name": name, "arguments": first}}])
    yield delta(tool_calls=[{"index": index, "function": {"arguments": rest}}])


def thoughts(said: Said) -> Iterator[JsonObject]:
    """The thought in two pieces, as llama.cpp, SGLang and TensorRT-LLM tell it."""
    for piece in filter(None, halves(said.thought)):
        yield delta(reasoning_content=piece)


def error(
    text: str, *, kind: str = "invalid_request_error", code: str | None = None, param: str = ""
) -> JsonObject:
    """OpenAI's error object."""
    return {"error": {"message": text, "type": kind, "param": param or None, "code": code}}
