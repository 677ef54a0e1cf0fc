"""Ollama's /api/chat."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar, cast

from ollama import AsyncClient

from tests.backends.api.ollama.official import check_body
from tests.backends.api.ollama.official import line as told
from tests.backends.api.upstream import Received, Reply
from tests.backends.conformance.language import halves, line
from tests.backends.conformance.said import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    WHOLE,
    Said,
    Understood,
)
from tests.backends.conformance.wired import AdapterSubject


class OllamaSubject(AdapterSubject):
    """Lines of JSON, calls whole; errors are texts, in which llama.cpp's come as JSON.

    A local server asks for no key, Ollama's cloud and proxies before a server do.
    """

    name = "ollama"
    type = "ollama"
    model = "qwen3"
    content_type: ClassVar[str] = "application/x-ndjson"
    recorded = WHOLE

    def frames(self, said: Said) -> Sequence[bytes]:
        lines = [told(thinking=piece) for piece in halves(said.thought) if piece]
        lines += [told(piece) for piece in said.text]
        for name, arguments in said.calls:
            lines.append(told(tool_calls=[{"function": {"name": name, "arguments": arguments}}]))
        counts: Any = {"prompt_eval_count": PROMPT_TOKENS, "eval_count": COMPLETION_TOKENS}
        return [*map(line, lines), line(told(done=True, done_reason="stop", **counts))]

    def overflow(self, prompt: int, limit: int) -> Reply:
        said = (
            f"request ({prompt} tokens) exceeds the available context size ({limit} tokens), "
            "try increasing it"
        )
        inner = {"code": 400, "message": said, "type": "exceed_context_size_error"}
        counts = {"n_prompt_tokens": prompt, "n_ctx": limit}
        return Reply({"error": json.dumps({"error": inner | counts})}, 400)

    def wrong_key(self) -> Reply:
        return Reply({"error": "unauthorized"}, 401)

    def unknown_model(self) -> Reply:
        return Reply({"error": f"model '{self.model}' not found"}, 404)

    def busy(self) -> Reply:
        said = "server busy, please try again.  maximum pending requests exceeded"
        return Reply({"error": said}, 503, {"retry-after": f"{self.busy_seconds:.0f}"})

    def down(self) -> Reply:
        return Reply({"error": "llama runner process has terminated: exit status 2"}, 500)

    def failing(self) -> bytes:
        return line({"error": "an error was encountered while running the model: EOF"})

    def check(self, request: Received) -> None:
        assert request.path == "/api/chat"
        check_body(request.json)

    async def official(self, url: str) -> Understood:
        client = cast(Any, AsyncClient(url))  # its types are partial
        asked = [{"role": "user", "content": "hi"}]
        parts = [p async for p in await client.chat(self.model, asked, stream=True)]
        await client.close()
        calls = [call.function for p in parts for call in cast(Any, p.message.tool_calls or [])]
        return Understood(
            "".join(part.message.content or "" for part in parts),
            "".join(part.message.thinking or "" for part in parts),
            tuple((call.name, dict(call.arguments)) for call in calls),
        )
