"""What a stream of `/v1/chat/completions` says, line by line, and when."""

import json
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import httpx


@dataclass(slots=True)
class ChatStream:
    """An answer that is being read; times are in seconds since the object was made."""

    text: str = ""
    first_token: float = 0.0
    total: float = 0.0
    _usage: dict[str, Any] = field(default_factory=dict[str, Any])
    _started: float = field(default_factory=perf_counter)

    async def read(self, client: httpx.AsyncClient, body: dict[str, Any]) -> None:
        """Ask for an answer and read it to its end; raises RuntimeError if it is refused."""
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.is_error:
                raise RuntimeError(f"{response.status_code}: {(await response.aread())[:400]!r}")
            async for line in response.aiter_lines():
                self.feed(line)
        self.end()

    def feed(self, line: str) -> None:
        """Take in one line of the stream."""
        if not line.startswith("data: {"):
            return
        chunk = json.loads(line[6:])
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices", []):
            piece = choice["delta"].get("content") or ""
            if piece and not self.text:
                self.first_token = perf_counter() - self._started
            self.text += piece

    def end(self) -> None:
        """Note the time of the end, which is also that of the first token if there was none."""
        self.total = perf_counter() - self._started
        self.first_token = self.first_token or self.total

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, cached ones included."""
        return self._usage.get("prompt_tokens", 0)

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that were not computed again."""
        details: dict[str, int] = self._usage.get("prompt_tokens_details") or {}
        return details.get("cached_tokens", 0)

    @property
    def completion_tokens(self) -> int:
        """Tokens of the answer."""
        return self._usage.get("completion_tokens", 0)
