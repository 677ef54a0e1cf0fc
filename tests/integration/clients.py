"""Clients that ask at random, and sometimes leave or change their mind."""

import asyncio
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx

from shepherd.backends.base import Generation, Prefilled
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.prefilled import LlamaPrefilled
from shepherd.events import Event, EventCallback, FinishReason
from shepherd.messages import Message
from shepherd.session import Session
from tests.flat_events import TEXT_KINDS, flat
from tests.patience import PATIENCE
from tests.server.harness import CHAT, RunningServer

PARALLEL = 4
SYSTEMS = ["", "Be brief.", " ".join(f"Rule {n} applies." for n in range(60))]
WORDS = [
    "read", "write", "list", "file", "notes", "todo", "sheep", "count", "the", "a", "is", "what",
    "where", "who", "hello", "thanks", "time", "date", "change", "find", "delete", "please",
    "name", "my", "you", "can", "tell", "joke", "folder", "error", "line", "test", "run", "again",
]  # fmt: skip

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A request that can be made many times."""

    system: str
    turns: tuple[str, ...]
    max_tokens: int

    @property
    def body(self) -> dict[str, Any]:
        """The chat request, without `stream`."""
        roles = ("user", "assistant")
        messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(self.turns)]
        if self.system:
            messages.insert(0, {"role": "system", "content": self.system})
        return {"messages": messages, "temperature": 0, "max_tokens": self.max_tokens}

    @property
    def session(self) -> Session:
        """The same for a backend."""
        session = Session(self.system)
        makers = (Message.user, Message.assistant)
        for i, text in enumerate(self.turns):
            session.add(makers[i % 2](text))
        return session


def random_case(random: Random) -> Case:
    """A conversation of one to seven messages, the last one from the user."""
    turns = tuple(random_text(random) for _ in range(random.choice([1, 1, 1, 3, 3, 5, 7])))
    return Case(random.choice(SYSTEMS), turns, random.randint(4, 32))


def random_text(random: Random) -> str:
    """Any words, or something with a name in it that the answer is about."""
    phrase = random.choice(["{}", "{}", "read {}{}.txt", "What is in {}{}.txt?", "run {} --{}"])
    if phrase == "{}":
        return " ".join(random.choices(WORDS, k=random.randint(1, 25)))
    return phrase.format(random.choice(WORDS), random.randint(1, 99))


class WatchedBackend(LlamaCppBackend):
    """The real engine, which remembers what tokens it answered to which prompt."""

    answers: dict[Tokens, set[Tokens]]

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        generation = await super().generate_from_prefilled(prefilled, callback, max_tokens)
        assert isinstance(prefilled, LlamaPrefilled)
        if generation.finish_reason is not FinishReason.CANCELLED:
            self.answers[tuple(prefilled.prompt.tokens)].add(tuple(prefilled.generated))
        return generation

    @classmethod
    def watch(cls, backend: LlamaCppBackend) -> "WatchedBackend":
        """What `load` gave, with an empty memory."""
        assert isinstance(backend, cls)
        backend.answers = defaultdict(set)
        return backend


@dataclass
class Crowd:
    """So many clients of one server; what they were told is in `texts`."""

    server: RunningServer[WatchedBackend]
    loop: asyncio.AbstractEventLoop
    cases: list[Case]
    random: Random
    clients: int
    texts: dict[Case, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))
    ends: Counter[str] = field(default_factory=Counter[str])
    memory: list[int] = field(default_factory=list[int])
    _left: int = 0

    async def run(self, requests: int) -> None:
        """Let all clients ask until there were so many requests; `memory` is taken at each end."""
        self._left = requests
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=self.server.url, timeout=10 * PATIENCE, limits=limits, trust_env=False
        ) as http:
            clients = [self._client(http) for _ in range(self.clients)]
            await asyncio.gather(*clients)

    async def _client(self, http: httpx.AsyncClient) -> None:
        ways = [self._whole, self._streamed, self._left_early, self._left_midway, self._cancelled]
        while self._left > 0:
            self._left -= 1
            way = self.random.choices(ways, [4, 4, 1, 1, 1])[0]
            end = await way(http, self.random.choice(self.cases))
            self.ends[end] += 1
            self.memory.append(resident_bytes())

    async def _whole(self, http: httpx.AsyncClient, case: Case) -> str:
        response = await http.post(CHAT, json=case.body)
        if response.status_code == 503:
            return await self._busy(response)
        assert response.status_code == 200, response.text
        self.texts[case][response.json()["choices"][0]["message"]["content"] or ""] += 1
        return "answered"

    async def _streamed(self, http: httpx.AsyncClient, case: Case, most: int = 10_000) -> str:
        """Read a stream, or hang up behind `most` pieces."""
        text = ""
        async with http.stream("POST", CHAT, json=case.body | {"stream": True}) as response:
            if response.status_code == 503:
                return await self._busy(response)
            assert response.status_code == 200, await response.aread()
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    self.texts[case][text] += 1
                    return "streamed"
                if line.startswith("data: "):
                    text += _piece(line)
                    most -= 1
                if most < 0:
                    return "hung up midway"
        raise AssertionError(f"a stream ended early, behind {text!r}")

    async def _left_early(self, http: httpx.AsyncClient, case: Case) -> str:
        try:
            async with asyncio.timeout(self.random.random() * 0.3):
                return await self._whole(http, case)
        except TimeoutError:
            return "hung up while waiting"

    async def _left_midway(self, http: httpx.AsyncClient, case: Case) -> str:
        return await self._streamed(http, case, self.random.randrange(20))

    async def _cancelled(self, _http: httpx.AsyncClient, case: Case) -> str:
        """Somebody in the same process whose callback says no."""
        no = _No(self.random.randrange(20))
        work = self.server.backend.generate_from_session(case.session, no, case.max_tokens)
        generation = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))
        if generation.finish_reason is FinishReason.CANCELLED:
            return "cancelled"
        self.texts[case][no.text] += 1
        return "answered in-process"

    async def _busy(self, response: httpx.Response) -> str:
        assert "retry-after" in response.headers
        self._left += 1
        await asyncio.sleep(0.05)
        return "told to come back"


@dataclass
class _No:
    """A callback that says no after so many events."""

    most: int
    text: str = ""

    def __call__(self, event: Event) -> bool:
        kind, content, _, _ = flat(event)
        self.text += content if kind in TEXT_KINDS else ""
        self.most -= 1
        return self.most >= 0


def resident_bytes() -> int:
    """What this process holds of the machine's memory; 0 where nobody tells."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0


def _piece(line: str) -> str:
    choices = json.loads(line[6:])["choices"]
    return choices[0]["delta"].get("content") or "" if choices else ""
