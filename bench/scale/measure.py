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

from bench.scale.cpu import CpuTimes

CONVERSATIONS, TURNS, ANSWER = 9, 4, 16
ROUNDS = 5
"""Rounds of so many conversations at once; the first one only warms up."""

SERVER = "server"
"""The name of the run of one server without Ray; the others are numbers of replicas."""

FILE = Path(__file__).with_name("measured.json")
_PROGRAM = str(Path(sys.executable).with_name("shepherd"))
_SETTINGS = ("--set", "llamacpp.threads=1", "--set", "llamacpp.context_size=4096")
_TEXT = "The shepherd counts the sheep on the hill, and begins again. " * 8
_PATIENCE = 300.0


@dataclass
class Figures:
    """The tokens of all prompts and those from caches; seconds to first tokens; tokens by turn.

    `seconds` are those of each round.
    """

    prompt: int = 0
    cached: int = 0
    first: list[float] = field(default_factory=list[float])
    turns: dict[int, int] = field(default_factory=dict[int, int])
    seconds: list[float] = field(default_factory=list[float])


def measure(replicas: Sequence[int]) -> None:
    """Measure one server, and these numbers of replicas; write what came out."""
    results = {name: _measured(name) for name in (SERVER, *map(str, replicas))}
    FILE.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


def _measured(name: str) -> dict[str, Any]:
    with _serving(name) as (url, home):
        asyncio.run(_talk(url, 1, 0))
        alone = asyncio.run(_talk(url, 1, 1))
        cpu = CpuTimes.of(home)
        figures = asyncio.run(_talk(url, CONVERSATIONS, ROUNDS))
        used = CpuTimes.of(home).since(cpu)
    return {
        "prompt": figures.prompt // ROUNDS,
        "cached": figures.cached // ROUNDS,
        "first_p50": round(statistics.median(figures.first), 4),
        "first_mean": round(statistics.mean(figures.first), 4),
        "first_quartiles": [round(value, 4) for value in statistics.quantiles(figures.first, n=4)],
        "seconds": round(statistics.median(figures.seconds), 3),
        "turns": [figures.turns[turn] for turn in range(TURNS)],
        "alone_first": [round(seconds, 4) for seconds in alone.first],
        "alone_seconds": round(alone.seconds[0], 3),
        "replica_cpu": round(used.replicas / ROUNDS, 3),
        "other_cpu": round(used.others / ROUNDS, 3),
    }


@contextmanager
def _serving(name: str) -> Generator[tuple[str, str]]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = int(sock.getsockname()[1])
    how = ["--server"] if name == SERVER else ["deploy", "ray", "--replicas", name]
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
            yield f"http://127.0.0.1:{port}", home
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_PATIENCE)


async def _talk(url: str, conversations: int, rounds: int) -> Figures:
    """Rounds of conversations at once, after one that does not count."""
    figures = Figures()
    async with httpx.AsyncClient(base_url=url, timeout=_PATIENCE) as client:
        for lap in range(rounds + 1):
            counted = figures if lap else Figures()
            started = time.perf_counter()
            names = (f"{conversations} {lap} {number}" for number in range(conversations))
            await asyncio.gather(*(_converse(client, name, counted) for name in names))
            counted.seconds.append(time.perf_counter() - started)
    return figures


async def _converse(client: httpx.AsyncClient, name: str, figures: Figures) -> None:
    messages: list[Any] = [{"role": "user", "content": f"Flock {name}. {_TEXT}"}]
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
