"""`python -m bench.fair`: people with keys of their own on one engine, and one who types beside.

Five people run agents without a pause, one of them three at once, and a batch reads long prompts.
One more person types a short question every few seconds. All sides get the same conversations:
Shepherd with a key for each, Shepherd with one queue for all, and llama.cpp's server.
"""

import argparse
import asyncio
import itertools
import math
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx

from bench.chat_stream import ChatStream
from bench.peers import SHEPHERD, Load, llama_server, served, shepherd_server
from bench.replay.sessions import sessions
from bench.table import machine, markdown
from bench.weights import PUP, model_file, with_context

AGENTS = {"ann": 1, "ben": 1, "cleo": 1, "dan": 1, "eve": 3}
"""The sessions that each runs at once."""
PERSON, BATCH = "fay", "batch"
CONTEXT, PARALLEL = 65_536, 12
ANSWER = 60
"""The tokens of each answer."""
TYPING_SECONDS = 2.0

HEADER = (
    "side", "Jain's index of the five", "first token of the one who types, alone", "beside all",
    "ratio", "tokens a second", "longest wait of an agent",
)  # fmt: skip


@dataclass(slots=True)
class Counts:
    """What came back: tokens that were computed, by key, and seconds to first texts."""

    tokens: Counter[str] = field(default_factory=Counter[str])
    engine: dict[str, float] = field(default_factory=dict[str, float])
    firsts: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def jain(self) -> float:
        """Jain's index of the five: 1 if all got the same."""
        got = [self.engine.get(name, 0.0) or float(self.tokens[name]) for name in AGENTS]
        return sum(got) ** 2 / (len(got) * sum(value**2 for value in got))

    def p95(self, name: str) -> float:
        """The first token that 95 of 100 were as quick as."""
        waits = sorted(self.firsts.get(name, [math.nan]))
        return waits[int(0.95 * (len(waits) - 1))]


class People:
    """Those who use one server."""

    def __init__(self, url: str, keys: dict[str, str], counts: Counts) -> None:
        self._url = url
        self._keys = keys
        self._counts = counts
        self._sessions = sessions()

    async def agent(self, name: str, number: int) -> None:
        """Play sessions, one after the other, without a pause."""
        async with self._client(name) as client:
            for play in itertools.count(number):
                session = self._sessions[play % 10]
                messages = [
                    {"role": "system", "content": f"{name} {play}. {session.system[:6000]}"}
                ]
                for turn in session.turns[:8]:
                    messages.append({"role": "user", "content": turn.user[:3000]})
                    await self._ask(client, name, messages)
                    messages.append({"role": "assistant", "content": turn.assistant[:600]})

    async def batch(self) -> None:
        """Read one long prompt after the other."""
        async with self._client(BATCH) as client:
            for play in itertools.count():
                text = f"{play} " + self._sessions[play % 10].system[:12_000]
                await self._ask(client, BATCH, [{"role": "user", "content": text}])

    async def person(self, seconds: float, subject: str) -> None:
        """Type short questions in one conversation."""
        messages = [{"role": "system", "content": f"You are brief. We talk of {subject}."}]
        end, pause = perf_counter() + seconds, random.Random(1)
        async with self._client(PERSON) as client:
            while perf_counter() < end:
                messages.append({"role": "user", "content": "And what does that say about it?"})
                await self._ask(client, PERSON, messages)
                messages.append({"role": "assistant", "content": "It says that all is well."})
                await asyncio.sleep(TYPING_SECONDS * pause.uniform(0.5, 1.5))

    async def _ask(
        self, client: httpx.AsyncClient, name: str, messages: Sequence[dict[str, str]]
    ) -> None:
        body: dict[str, Any] = {
            "messages": list(messages), "stream": True, "temperature": 0, "max_tokens": ANSWER,
            "ignore_eos": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        answer = ChatStream()
        await answer.read(client, body)
        computed = answer.prompt_tokens - answer.cached_tokens + answer.completion_tokens
        self._counts.tokens[name] += computed
        self._counts.firsts.setdefault(name, []).append(answer.first_token)

    def _client(self, name: str) -> httpx.AsyncClient:
        # one connection per request: cpp-httplib ends a connection after a stream
        headers = {"Connection": "close", "Authorization": f"Bearer {self._keys.get(name, 'none')}"}
        return httpx.AsyncClient(base_url=self._url, timeout=600.0, headers=headers)


async def measure(url: str, keys: dict[str, str], seconds: float) -> list[str]:
    """The cells of one side."""
    alone, beside = Counts(), Counts()
    await People(url, keys, alone).person(seconds / 3, "peace")
    people = People(url, keys, beside)
    workers = [
        asyncio.create_task(people.agent(name, 3 * place + number))
        for place, (name, count) in enumerate(AGENTS.items())
        for number in range(count)
    ]
    workers.append(asyncio.create_task(people.batch()))
    before = await used(url, keys)
    await people.person(seconds, "trade")
    after = await used(url, keys)
    beside.engine = {name: after[name] - before.get(name, 0.0) for name in after}
    failed = [task.exception() for task in workers if task.done()]
    for task in workers:
        task.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    if failed:
        raise RuntimeError(f"somebody was refused: {failed[0]}")
    slow, quick = beside.p95(PERSON), alone.p95(PERSON)
    waits = [beside.p95(name) for name in (*AGENTS, BATCH)]
    return [
        f"{beside.jain():.3f}",
        f"{quick * 1000:.0f} ms",
        f"{slow * 1000:.0f} ms",
        f"{slow / quick:.2f} ×",
        f"{beside.tokens.total() / seconds:.0f}",
        f"{max(waits):.1f} s",
    ]


async def used(url: str, keys: dict[str, str]) -> dict[str, float]:
    """The engine's seconds of each key, where the server tells them."""
    if "admin" not in keys:
        return {}
    headers = {"Authorization": f"Bearer {keys['admin']}"}
    async with httpx.AsyncClient(base_url=url, headers=headers) as client:
        seconds: dict[str, float] = (await client.get("/queue")).json()["engine_seconds"]
        return seconds


@contextmanager
def with_keys(load: Load) -> Generator[tuple[str, dict[str, str]]]:
    """Shepherd with a key for each; yields its URL and the keys."""
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": os.environ["PATH"], "HOME": home}
        kinds = {PERSON: "interactive", BATCH: "batch", "admin": "agent"}
        keys: dict[str, str] = {}
        for name in (*AGENTS, *kinds):
            command = [SHEPHERD, "apikey", "add", name, "--kind", kinds.get(name, "agent")]
            command += ["--scope", "admin"] if name == "admin" else []
            keys[name] = subprocess.run(
                command, env=env, capture_output=True, text=True, check=True
            ).stdout.strip()
        command = [SHEPHERD, "--server", "--port", "0", "--auth-mode", "json"]
        command += ["--model", str(load.model), "--context-size", str(load.context)]
        for setting in (f"threads={load.cores}", f"parallel={load.parallel}"):
            command += ["--set", f"llamacpp.{setting}"]
        with served(command, env) as url:
            yield url, keys


@contextmanager
def without_keys(server: AbstractContextManager[str]) -> Generator[tuple[str, dict[str, str]]]:
    """A server that knows nobody."""
    with server as url:
        yield url, {}


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser("python -m bench.fair")
    parser.add_argument("--model", default=PUP)
    parser.add_argument("--seconds", type=float, default=90.0, help="beside all")
    parser.add_argument("--sides", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args(arguments)
    file = model_file(options.model)
    assert file is not None, f"{options.model} is not installed"
    print(machine(), flush=True)
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        model = with_context(file, Path(folder) / "model.gguf", CONTEXT)
        for number, (side, server) in enumerate(_sides(Load(model, CONTEXT, PARALLEL))):
            if number in options.sides:
                with ExitStack() as stack:
                    url, keys = stack.enter_context(server)
                    rows.append([side, *asyncio.run(measure(url, keys, options.seconds))])
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    print(f"\n{markdown(HEADER, rows)}")
    return 0


def _sides(
    load: Load,
) -> Iterator[tuple[str, AbstractContextManager[tuple[str, dict[str, str]]]]]:
    yield "Shepherd, a key for each", with_keys(load)
    yield "Shepherd, first come", without_keys(shepherd_server(load))
    yield "llama.cpp's server", without_keys(llama_server(load))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
