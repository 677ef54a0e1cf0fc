"""Real replicas under a small load: the tokens that they find in caches, and first tokens."""

import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

CONVERSATIONS, TURNS, ANSWER = 9, 4, 16
FILE = Path(__file__).with_name("measured.json")
_PROGRAM = str(Path(sys.executable).with_name("shepherd"))
_SETTINGS = ("--set", "llamacpp.threads=1", "--set", "llamacpp.context_size=4096")
_TEXT = "The shepherd counts the sheep on the hill, and begins again. " * 8
_PATIENCE = 300.0


@dataclass
class Figures:
    """The tokens of all prompts and those from caches; seconds to first tokens; tokens by turn."""

    prompt: int = 0
    cached: int = 0
    first: list[float] = field(default_factory=list[float])
    turns: dict[int, int] = field(default_factory=dict[int, int])
    seconds: float = 0.0


def measure(replicas: Sequence[int]) -> None:
    """Measure one server, and these numbers of replicas; write what came out."""
    results = {str(number): _measured(number) for number in (1, *replicas)}
    FILE.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


def _measured(replicas: int) -> dict[str, Any]:
    with _serving(replicas) as url:
        figures = asyncio.run(_talk(url))
    return {
        "prompt": figures.prompt,
        "cached": figures.cached,
        "first_p50": round(statistics.median(figures.first), 4),
        "seconds": round(figures.seconds, 3),
        "turns": [figures.turns[turn] for turn in range(TURNS)],
    }


@contextmanager
def _serving(replicas: int) -> Generator[str]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = int(sock.getsockname()[1])
    how = ["--server"] if replicas == 1 else ["deploy", "ray", "--replicas", str(replicas)]
    with tempfile.TemporaryDirectory() as home, (Path(home) / "log").open("w+b") as log:
        command = [_PROGRAM, *_SETTINGS, *how, "--port", str(port)]
        env = {"PATH": os.environ["PATH"], "HOME": home}
        process = subprocess.Popen(
            command, env=env, cwd=home, stdout=log, stderr=log, start_new_session=True
        )
        try:
            deadline = time.monotonic() + _PATIENCE
            while b"Serving" not in (Path(home) / "log").read_bytes():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((Path(home) / "log").read_text())
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_PATIENCE)


async def _talk(url: str) -> Figures:
    figures = Figures()
    started = time.perf_counter()
    async with httpx.AsyncClient(base_url=url, timeout=_PATIENCE) as client:
        await asyncio.gather(*(_converse(client, n, figures) for n in range(CONVERSATIONS)))
    figures.seconds = time.perf_counter() - started
    return figures


async def _converse(client: httpx.AsyncClient, number: int, figures: Figures) -> None:
    messages: list[Any] = [{"role": "user", "content": f"Flock {number}. {_TEXT}"}]
    for turn in range(TURNS):
        text = await _ask(client, messages, turn, figures)
        messages.append({"role": "assistant", "content": text})
        messages.append({"role": "user", "content": f"And then, in year {turn}?"})


async def _ask(client: httpx.AsyncClient, messages: list[Any], turn: int, figures: Figures) -> str:
    body = {
        "messages": messages,
        "max_tokens": ANSWER,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    started, text, first = time.perf_counter(), "", 0.0
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        async for line in response.aiter_lines():
            data = line.removeprefix("data: ")
            if data == line or data == "[DONE]":
                continue
            event = json.loads(data)
            for choice in event["choices"]:
                piece = choice["delta"].get("content") or ""
                first = first or (time.perf_counter() - started if piece else 0.0)
                text += piece
            if (usage := event.get("usage")) is not None:
                figures.prompt += usage["prompt_tokens"]
                figures.cached += usage["prompt_tokens_details"]["cached_tokens"]
                figures.turns[turn] = usage["prompt_tokens"]
    figures.first.append(first)
    return text
