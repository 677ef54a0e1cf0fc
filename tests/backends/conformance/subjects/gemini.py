"""Gemini's streamGenerateContent."""

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from google import genai
from google.genai import types

from shepherd.messages import JsonObject
from tests.backends.api.gemini.official import check_body, chunk
from tests.backends.api.upstream import Received, Reply
from tests.backends.conformance.language import halves, sse
from tests.backends.conformance.said import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    WHOLE,
    Said,
    Understood,
)
from tests.backends.conformance.wired import AdapterSubject

_USAGE: JsonObject = {
    "promptTokenCount": PROMPT_TOKENS,
    "candidatesTokenCount": COMPLETION_TOKENS,
}
_INVALID = "INVALID_ARGUMENT"


class GeminiSubject(AdapterSubject):
    """Calls come whole; a wrong key is status 400, and how long to wait stands in the error."""

    name = "gemini"
    type = "gemini"
    model = "gemini-3-pro"
    busy_seconds: ClassVar[float] = 7.5
    recorded = WHOLE

    def frames(self, said: Said) -> Sequence[bytes]:
        chunks = [chunk({"text": p, "thought": True}) for p in halves(said.thought) if p]
        chunks += [chunk({"text": piece}) for piece in said.text]
        for index, (name, arguments) in enumerate(said.calls):
            part: JsonObject = {"functionCall": {"name": name, "args": arguments}}
            chunks.append(chunk(part | ({} if index else {"thoughtSignature": "c2ln"})))
        chunks.append(chunk({"text": ""}, reason="STOP", usageMetadata=_USAGE))
        return [sse(one) for one in chunks]

    def overflow(self, prompt: int, limit: int) -> Reply:
        said = (
            f"The input token count ({prompt}) exceeds the maximum number of tokens allowed "
            f"({limit})."
        )
        return Reply(_error(400, said, _INVALID), 400)

    def wrong_key(self) -> Reply:
        said = "API key not valid. Please pass a valid API key."
        info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
        return Reply(_error(400, said, _INVALID, info), 400)

    def unknown_model(self) -> Reply:
        said = (
            f"models/{self.model} is not found for API version v1beta, or is not supported for "
            "generateContent. Call ListModels to see the list of available models."
        )
        return Reply(_error(404, said, "NOT_FOUND"), 404)

    def busy(self) -> Reply:
        said = f"You exceeded your current quota. Please retry in {self.busy_seconds}s."
        wait = f"{self.busy_seconds}s"
        info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": wait}
        return Reply(_error(429, said, "RESOURCE_EXHAUSTED", info), 429)

    def down(self) -> Reply:
        said = "The model is overloaded. Please try again later."
        return Reply(_error(503, said, "UNAVAILABLE"), 503)

    def failing(self) -> bytes:
        return sse(_error(500, "An internal error has occurred.", "INTERNAL"))

    def check(self, request: Received) -> None:
        assert request.path == f"/v1beta/models/{self.model}:streamGenerateContent"
        check_body(request.json)

    async def official(self, url: str) -> Understood:
        there = types.HttpOptions(base_url=url, api_version="v1beta")
        client = genai.Client(api_key="k", http_options=there)
        stream = cast(Any, client.aio.models).generate_content_stream  # its types are partial
        parts: list[types.Part] = []
        async for found in await stream(model=self.model, contents="hi"):
            for candidate in cast(types.GenerateContentResponse, found).candidates or []:
                parts += (candidate.content and candidate.content.parts) or []
        await client.aio.aclose()
        calls = [part.function_call for part in parts if part.function_call]
        return Understood(
            "".join(part.text or "" for part in parts if not part.thought),
            "".join(part.text or "" for part in parts if part.thought),
            tuple((call.name or "", call.args or {}) for call in calls),
        )


def _error(code: int, text: str, status: str, *details: JsonObject) -> JsonObject:
    error: JsonObject = {"code": code, "message": text, "status": status}
    return {"error": error | ({"details": list(details)} if details else {})}
