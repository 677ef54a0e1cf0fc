"""Streamed answers with the arrival time of each piece, at little cost to the other side."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

PATH = "/v1/chat/completions"
_PATIENCE = 600.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The received data of a stream; times are `perf_counter` seconds."""

    started: float
    pieces: list[tuple[float, str]]
    usage: Mapping[str, Any]

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)

    @property
    def first_token(self) -> float:
        """Seconds until the first text."""
        return self.pieces[0][0] - self.started

    @property
    def ended(self) -> float:
        """The time of the last text."""
        return self.pieces[-1][0]

    @property
    def tokens(self) -> int:
        """Tokens of the answer; pieces if the server does not count tokens."""
        return int(self.usage.get("completion_tokens") or len(self.pieces))

    @property
    def prompt_tokens(self) -> int:
        return int(self.usage.get("prompt_tokens") or 0)

    @property
    def cached_tokens(self) -> int:
        details: Mapping[str, int] = self.usage.get("prompt_tokens_details") or {}
        return details.get("cached_tokens", 0)

    def gaps(self, start: float, end: float) -> Iterator[float]:
        """The seconds between pieces, as far as they overlap the time from `start` to `end`."""
        times = [time for time, _ in self.pieces]
        for before, after in pairwise(times):
            if after > start and before < end:
                yield after - before


@dataclass
class Stream:
    """One streamed request. Data is only stored, and parsed after its end."""

    url: str
    body: Mapping[str, Any]
    _started: float = 0.0
    _blocks: list[tuple[float, bytes]] = field(default_factory=list[tuple[float, bytes]])

    async def run(self) -> Answer:
        """Send the request and read its whole answer; raises RuntimeError for a refusal."""
        address = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            self._started = perf_counter()
            writer.write(_request(address.netloc, self.body))
            async with asyncio.timeout(_PATIENCE):
                while data := await reader.read(65_536):
                    self._blocks.append((perf_counter(), data))
        finally:
            writer.close()
        return self.answer()

    @property
    def begun(self) -> bool:
        """Whether some of the answer's text has arrived."""
        return b"".join(data for _, data in self._blocks[:8]).count(b"data:") > 2

    def answer(self) -> Answer:
        """The answer so far."""
        pieces: list[tuple[float, str]] = []
        usage: Mapping[str, Any] = {}
        for time, event in _events(_payloads(self._blocks)):
            usage = event.get("usage") or usage
            choices: list[dict[str, Any]] = event.get("choices") or []
            for choice in choices:
                delta: dict[str, str | None] = choice.get("delta") or {}
                text = delta.get("content") or delta.get("reasoning_content")
                if text:
                    pieces.append((time, text))
        return Answer(self._started, pieces, usage)


def _request(host: str, body: Mapping[str, Any]) -> bytes:
    whole = {
        "model": "default",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "chat_template_kwargs": {"enable_thinking": False},
        **body,
    }
    data = json.dumps(whole).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + data


def _payloads(blocks: list[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """The body, piece by piece, without HTTP's chunks."""
    buffer, chunked = b"", None
    for time, data in blocks:
        buffer += data
        if chunked is None:
            head, end, rest = buffer.partition(b"\r\n\r\n")
            if not end:
                continue
            if b" 200 " not in head.split(b"\r\n", 1)[0] + b" ":
                raise RuntimeError(f"the server refused: {buffer[:500]!r}")
            chunked, buffer = b"chunked" in head.lower(), rest
        if not chunked:
            yield time, buffer
            buffer = b""
            continue
        while b"\r\n" in buffer:
            size, _, rest = buffer.partition(b"\r\n")
            length = int(size, 16)
            if len(rest) < length + 2:
                break
            yield time, rest[:length]
            buffer = rest[length + 2 :]


def _events(payloads: Iterator[tuple[float, bytes]]) -> Iterator[tuple[float, Mapping[str, Any]]]:
    rest = b""
    for time, data in payloads:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            text = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and text.startswith(b"{"):
                yield time, json.loads(text)
