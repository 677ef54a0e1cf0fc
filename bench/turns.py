"""Ten turns after a system prompt of 4,000 tokens: time to first token, cold and warm."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.chat_stream import ChatStream
from bench.engine.model import pup_with_context
from bench.peers import Load, llama_server, shepherd_server
from bench.table import markdown, milliseconds, ratio

CONTEXT = 8192
TURNS = 10
ANSWER_TOKENS = 24
SYSTEM_WORDS = 480
QUESTIONS = (
    "hello", "who are you?", "what can you do?", "thanks", "list the files here",
    "my name is Ada", "what is my name?", "what is the capital of France?", "tell me a joke",
    "goodbye",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Turn:
    """One measured answer; seconds and tokens."""

    first_token: float
    total: float
    prompt_tokens: int
    cached_tokens: int
    text: str


def main() -> None:
    """Print the table of turns 1, 2, 3 and 10."""
    with tempfile.TemporaryDirectory() as folder:
        _measure(pup_with_context(Path(folder) / "pup.gguf", CONTEXT))


def _measure(model: Path) -> None:
    with shepherd_server(Load(model, CONTEXT)) as url:
        warm, cold = _conversation(url, fresh=False), _conversation(url, fresh=True)
    with llama_server(Load(model, CONTEXT)) as url:
        peer_warm, peer_cold = _conversation(url, fresh=False), _conversation(url, fresh=True)
    header = (
        "turn", "prompt", "cached", "cold", "warm", "cold/warm",
        "llama.cpp cold", "llama.cpp warm", "ours/theirs cold", "ours/theirs warm",
    )  # fmt: skip
    rows = [
        _row(i, w, c, pw, pc)
        for i, (w, c, pw, pc) in enumerate(
            zip(warm, cold, peer_warm, peer_cold, strict=True), start=1
        )
    ]
    print("Time to first token over HTTP; Pup, same threads, same prompts, one after the other.\n")
    print(markdown(header, rows))
    print(f"\nTotal of ten turns, warm: {_total(warm, peer_warm)}; cold: {_total(cold, peer_cold)}")


def _row(number: int, warm: Turn, cold: Turn, peer_warm: Turn, peer_cold: Turn) -> tuple[str, ...]:
    return (
        str(number),
        str(warm.prompt_tokens),
        str(warm.cached_tokens),
        milliseconds(cold.first_token),
        milliseconds(warm.first_token),
        ratio(cold.first_token, warm.first_token),
        milliseconds(peer_cold.first_token),
        milliseconds(peer_warm.first_token),
        ratio(cold.first_token, peer_cold.first_token),
        ratio(warm.first_token, peer_warm.first_token),
    )


def _total(ours: Sequence[Turn], theirs: Sequence[Turn]) -> str:
    mine, other = sum(t.total for t in ours), sum(t.total for t in theirs)
    return (
        f"{milliseconds(mine)} against llama.cpp's server {milliseconds(other)}, "
        f"{ratio(mine, other)}"
    )


def _conversation(url: str, *, fresh: bool) -> list[Turn]:
    """Ten turns; with `fresh` each request begins with a new word, so that nothing is cached."""
    words = " ".join(f"rule{i} applies;" for i in range(SYSTEM_WORDS))
    messages = [{"role": "system", "content": words}]
    turns: list[Turn] = []
    # one connection per request: cpp-httplib ends a connection after a stream
    headers = {"Connection": "close"}
    with httpx.Client(base_url=url, timeout=120, headers=headers) as client:
        for index, question in enumerate(QUESTIONS[:TURNS]):
            messages.append({"role": "user", "content": question})
            nonce = f"{url[-4:]}{index}{fresh} " if fresh else ""
            first = {"role": "system", "content": nonce + words}
            turn = _ask(client, [first, *messages[1:]])
            messages.append({"role": "assistant", "content": turn.text})
            turns.append(turn)
    return turns


def _ask(client: httpx.Client, messages: list[dict[str, str]]) -> Turn:
    body = {
        "model": "default",
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "max_tokens": ANSWER_TOKENS,
    }
    answer = ChatStream()
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            answer.feed(line)
    answer.end()
    return Turn(
        answer.first_token,
        answer.total,
        answer.prompt_tokens,
        answer.cached_tokens,
        answer.text,
    )
