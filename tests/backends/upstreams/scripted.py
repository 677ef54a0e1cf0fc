"""Servers that a test can break and repair, and a provider that has all of them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shepherd.backends.api.http.retry import RetryPolicy
from shepherd.backends.upstream import CheckPolicy
from shepherd.backends.upstreams import UpstreamsBackend, open_upstreams, single_opener
from shepherd.config.paths import Paths
from shepherd.config.provider import make_provider
from shepherd.config.provider_book import ProviderBook
from shepherd.events import ignore_events
from shepherd.messages import Message
from shepherd.session import Session
from tests.backends.api.upstream import Received, Reply, Upstream, sse_event
from tests.backends.openai_server import chunk
from tests.patience import PATIENCE

AFTER_FAILURES = CheckPolicy(first_pause=0.05, max_pause=0.2, interval=0)
"""No failure is seen before a request meets it."""
ALWAYS = CheckPolicy(first_pause=0.05, max_pause=0.2, interval=0.2)
QUICK = RetryPolicy(max_attempts=2, initial_delay=0.01)


@dataclass
class Server:
    """One server: it answers with its name, or with `failure`; `answered` are the prompts.

    The next `broken` requests get no answer. With `held`, an answer stops in the middle until the
    event is set; with `stuck`, none begins until then. `checked` counts the requests for its list
    of models.
    """

    name: str
    failure: Reply | None = None
    held: asyncio.Event | None = None
    stuck: asyncio.Event | None = None
    context: int = 4096
    cut: bool = False
    broken: int = 0
    answered: list[Any] = field(default_factory=list[Any])
    checked: int = 0
    url: str = ""

    def reply(self, request: Received) -> Reply:
        if request.method == "GET":
            self.checked += 1
            if self.failure is not None:
                return self.failure
            return Reply({"data": [{"id": "small", "max_model_len": self.context}]})
        self.answered.append(request.json["messages"])
        if self.failure is not None:
            return self.failure
        if self.broken:
            self.broken -= 1
            return GONE
        if self.stuck is not None:
            return Reply([self.stuck])
        first, last = chunk(self.name, None), chunk("", "stop")
        details = {"prompt_tokens_details": {"cached_tokens": 5}}
        usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11, **details}
        pieces = [first, *([self.held] if self.held else []), {**last, "usage": usage}]
        if self.cut:
            body = [sse_event(first)]
            headers = {"content-type": "text/event-stream"}
            return Reply(body, headers=headers, until_close=True)
        return Reply.sse(pieces)


GONE = Reply("", cut_after=-1)
FAILING = Reply({"error": {"message": "out of order"}}, status=500)
BUSY = Reply({"error": {"message": "slow down"}}, status=429, headers={"retry-after": "30"})


@asynccontextmanager
async def cluster(
    home: Path,
    *servers: Server,
    type: str = "openai",
    checks: CheckPolicy = AFTER_FAILURES,
    **settings: Any,
) -> AsyncGenerator[UpstreamsBackend]:
    """A provider with all servers as its upstreams."""
    async with AsyncExitStack() as stack:
        urls = [await serve(stack, server) for server in servers]
        provider = make_provider("cluster", {"type": type, "base_urls": urls, **settings})
        book = ProviderBook(Paths.from_env({"HOME": str(home)}), {})
        backend = await open_upstreams(provider, single_opener(book), checks=checks, retry=QUICK)
        stack.push_async_callback(backend.aclose)
        yield backend


async def serve(stack: AsyncExitStack, server: Server) -> str:
    upstream = await stack.enter_async_context(Upstream(server.reply))
    server.url = f"{upstream.url}/v1"
    return server.url


def conversation(*texts: str) -> Session:
    """A session in which the user and the model have spoken in turn."""
    makers = (Message.user, Message.assistant)
    return Session("system", [makers[i % 2](text) for i, text in enumerate(texts)])


async def ask(backend: UpstreamsBackend, *texts: str) -> str:
    generation = await backend.generate_from_session(conversation(*texts), ignore_events)
    return generation.message.content


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a state."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)
