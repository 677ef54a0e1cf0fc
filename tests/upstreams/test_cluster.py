"""Three of llama.cpp's own servers as one provider, each in a process of its own."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from shepherd.backends.base import Backend
from shepherd.backends.upstreams import UpstreamsBackend, open_upstreams, single_opener
from shepherd.config.paths import Paths
from shepherd.config.provider import make_provider
from shepherd.config.provider_book import ProviderBook
from shepherd.events import ignore_events
from shepherd.messages import Message
from tests.patience import PATIENCE
from tests.server.harness import CHAT, RunningServer
from tests.upstreams.asking import asking, provider
from tests.upstreams.llama_servers import killable_server

CONVERSATIONS, TURNS = 6, 4
PARALLEL = 2
TOPICS = ("sheep", "rivers", "letters", "winter", "clocks", "bread")
CLIENTS, LONG = 18, 120
"""The requests when a server is killed, and the tokens of each answer."""

Servers = dict[str, "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Four processes by their address: three for the provider, and one alone."""
    with ExitStack() as stack:
        sizes = [PARALLEL] * 3 + [CONVERSATIONS]
        started = [stack.enter_context(killable_server(8192, size)) for size in sizes]
        yield {f"{url}/v1": process for process, url in started}


async def cluster(urls: list[str]) -> UpstreamsBackend:
    settings = {"type": "openai", "base_urls": urls, "api_key": "none", "check_seconds": 0.2}
    env = {"HOME": "/nonexistent"}
    book = ProviderBook(Paths.from_env(env), env)
    return await open_upstreams(make_provider("cluster", settings), single_opener(book))


async def cached_and_read(backend: Backend) -> tuple[int, int]:
    """The cached and all tokens of the prompts of several conversations at once."""
    counts = await asyncio.gather(*(talk(backend, topic) for topic in TOPICS[:CONVERSATIONS]))
    return sum(cached for cached, _ in counts), sum(read for _, read in counts)


async def talk(backend: Backend, topic: str) -> tuple[int, int]:
    session, cached, read = asking(), 0, 0
    for turn in range(TURNS):
        session.add(Message.user(f"Tell me more about {topic}, please: part {turn}."))
        generation = await backend.generate_from_session(session, ignore_events, 8)
        session.add(generation.message)
        cached += generation.stats.cached_tokens
        read += generation.stats.prompt_tokens
    return cached, read


async def test_conversations_meet_their_caches_as_in_one_server(servers: Servers) -> None:
    *three, alone = servers
    one = await provider("openai", alone)
    alone_cached, alone_read = await cached_and_read(one)
    several = await cluster(three)
    cached, read = await cached_and_read(several)
    used = [state.requests for state in several.status.upstreams]
    await asyncio.gather(one.aclose(), several.aclose())
    assert min(used) > 0
    assert cached / read >= 0.95 * alone_cached / alone_read > 0


@dataclass
class Answer:
    """A streamed answer: its text, how it ended, and whether it was an error."""

    text: str = ""
    finish: str = ""
    error: Any = None
    status: int = 0
    done: bool = False


async def stream(client: httpx.AsyncClient, prompt: str, answer: Answer) -> None:
    body = {"messages": [{"role": "user", "content": prompt}], "stream": True, "max_tokens": LONG}
    async with client.stream("POST", CHAT, json=body) as response:
        answer.status = response.status_code
        async for line in response.aiter_lines():
            take(line.removeprefix("data: "), answer)


def take(data: str, answer: Answer) -> None:
    if not data or data == "[DONE]":
        answer.done = answer.done or bool(data)
        return
    event = json.loads(data)
    answer.error = event.get("error", answer.error)
    for choice in event.get("choices", ()):
        answer.text += choice["delta"].get("content") or ""
        answer.finish = choice["finish_reason"] or answer.finish


def test_no_request_is_lost_when_a_server_is_killed(servers: Servers) -> None:
    loop = asyncio.new_event_loop()
    backend = loop.run_until_complete(cluster(list(servers)[:3]))
    with RunningServer(backend, loop=loop) as running:
        answers = asyncio.run(kill_under_load(running, servers))
        states = backend.status.upstreams
        running.do(backend.aclose())
    assert [answer.status for answer in answers] == [200] * len(answers)
    whole = [answer for answer in answers if answer.error is None]
    broken = [answer for answer in answers if answer.error is not None]
    assert all(answer.text and answer.finish == "length" and answer.done for answer in whole)
    assert all(answer.text for answer in broken)
    assert all(answer.error["message"] and answer.error["type"] for answer in broken)
    [dead] = [state for state in states if servers[state.url].poll() is not None]
    assert dead.failures > len(broken)  # the others went elsewhere
    assert (dead.health, dead.running) == ("down", 0)
    assert sum(state.failures for state in states) == dead.failures


async def kill_under_load(
    running: RunningServer[UpstreamsBackend], servers: Servers
) -> list[Answer]:
    """The answers of many clients, one of whose servers ends with more requests than it can run."""
    answers = [Answer() for _ in range(CLIENTS)]
    async with httpx.AsyncClient(base_url=running.url, timeout=PATIENCE) as client:
        tasks = [
            asyncio.create_task(stream(client, f"Tell me about number {n}.", answer))
            for n, answer in enumerate(answers)
        ]
        async with asyncio.timeout(PATIENCE):
            while not (any(a.text for a in answers) and (full := _full(running.backend))):
                await asyncio.sleep(0.01)
        servers[full].kill()
        await asyncio.gather(*tasks)
    return answers


def _full(backend: UpstreamsBackend) -> str:
    """The address of a server that runs some requests, while others wait; "" for none."""
    return next((s.url for s in backend.status.upstreams if s.running > 2 * PARALLEL), "")
