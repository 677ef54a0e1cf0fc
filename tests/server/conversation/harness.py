"""A shared session behind real HTTP, on the loop of the test."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, cast

import httpx

from shepherd.backends.base import Backend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.shared.approvals import Clock
from shepherd.conversation.shared.session import SessionActions, SharedSession
from shepherd.conversation.shared.updates import UpdateLog
from shepherd.errors import SessionError
from shepherd.knowledge.knowledge import NO_KNOWLEDGE, Knowledge
from shepherd.messages import Message
from shepherd.server.access.keys import KeyStore
from shepherd.server.app import create_conversation_app
from shepherd.server.listen import bind
from shepherd.server.settings import ServerSettings
from shepherd.server.transport.uvicorn_server import DrainingServer
from shepherd.session import Session, SessionJournal
from shepherd.tools.permissions.approval import Approver
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import PermissionStore
from shepherd.tools.registry import default_registry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.tools.tool import ToolContext
from shepherd.transcript import SessionSummary
from shepherd.turn import TurnLimits
from tests.patience import PATIENCE


class ManualClock(Clock):
    """A clock that a test winds on."""

    def __init__(self) -> None:
        self.time = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    @property
    def sleeping(self) -> int:
        """How many wait for a time that has not come."""
        return sum(not woken.done() for _, woken in self._sleepers)

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.time + seconds, woken))
        await woken

    def advance(self, seconds: float) -> None:
        self.time += seconds
        due = [woken for at, woken in self._sleepers if at <= self.time]
        self._sleepers = [(at, woken) for at, woken in self._sleepers if at > self.time]
        for woken in due:
            if not woken.done():
                woken.set_result(None)


@dataclass(frozen=True)
class Seen:
    """An update as it came over the wire."""

    id: str
    kind: str
    data: dict[str, Any]


class Stream:
    """A stream of updates that is read as far as a test wants."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.seen: list[Seen] = []
        self._updates = parse_events(response.aiter_lines())

    async def next(self) -> Seen:
        async with asyncio.timeout(PATIENCE):
            update = await anext(self._updates)
        self.seen.append(update)
        return update

    async def until(self, kind: str, count: int = 1) -> Seen:
        """Read up to the next update of this kind, or the `count`-th from here."""
        update = await self.next()
        while update.kind != kind or (count := count - 1):
            update = await self.next()
        return update

    async def rest(self) -> list[Seen]:
        """Read to the end of the stream."""
        with suppress(StopAsyncIteration):
            while True:
                await self.next()
        return self.seen

    @property
    def kinds(self) -> list[str]:
        return [update.kind for update in self.seen]


async def parse_events(lines: AsyncIterator[str]) -> AsyncGenerator[Seen]:
    fields: dict[str, str] = {}
    async for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            assert name not in fields
            fields[name] = value
        elif fields:
            yield Seen(fields.get("id", ""), fields["event"], json.loads(fields["data"]))
            fields = {}


@dataclass
class HeldConversation:
    """A session with real tools in a directory; `loader` opens its model again."""

    session: Session
    directory: Path
    backend: Backend
    loader: Callable[[], Awaitable[Backend]] | None = None
    sandbox: Sandbox | None = None
    limits: TurnLimits = field(default_factory=TurnLimits)
    saved: dict[str, Session] = field(default_factory=dict[str, Session])
    knowledge: Knowledge = NO_KNOWLEDGE

    @property
    def shared(self) -> Conversation:
        """This one, which has all that a shared session uses of a conversation."""
        return cast(Conversation, self)

    @property
    def slot(self) -> Self:
        """This one, which has all that a shared session uses of a slot."""
        return self

    @property
    def actions(self) -> SessionActions:
        return SessionActions(self.tool_runner, self.command)

    async def prompt(self, text: Message) -> Message:
        return text

    def tool_runner(self, approver: Approver) -> ToolRunner:
        return runner(self.directory, approver, self.sandbox)

    def clear(self) -> None:
        self.session.clear()

    async def command(self, text: str) -> str:
        if text == "/rewind 1":
            self.session.branch_off(0)
        return text

    def saved_sessions(self, limit: int) -> list[SessionSummary]:
        now = datetime.now(UTC)
        ids = [self.session.id, *self.saved][:limit]
        return [SessionSummary(i, str(self.directory), "m", now, 1, f"About {i}") for i in ids]

    def resume(self, id: str) -> None:
        if id not in self.saved:
            raise SessionError(f"No session {id}.")
        self.session = self.saved[id]

    async def reload(self) -> Backend:
        return await self.loader() if self.loader else self.backend

    async def before_turn(self) -> None:
        pass


@dataclass
class Served:
    """A running conversation and a way to talk to it."""

    conversation: SharedSession
    held: HeldConversation
    url: str
    http: httpx.AsyncClient
    server: DrainingServer
    headers: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def port(self) -> int:
        port = self.http.base_url.port
        assert port is not None
        return port

    async def post(self, path: str, body: Any = None, client: str = "") -> httpx.Response:
        return await self.http.post(path, json=body, headers=self._as(client))

    async def ask(self, prompt: str, client: str = "", **options: Any) -> httpx.Response:
        return await self.post("/request", {"prompt": prompt, **options}, client)

    async def in_background(self, prompt: str, client: str = "") -> str:
        """Send a prompt and return the request's id."""
        answer = await self.ask(prompt, client, **{"async": True})
        assert answer.status_code == 202
        return answer.json()["request"]

    async def session(self, client: str = "") -> dict[str, Any]:
        return (await self.http.get("/session", headers=self._as(client))).json()

    @asynccontextmanager
    async def updates(self, client: str = "", after: str = "") -> AsyncGenerator[Stream]:
        headers = self._as(client) | ({"Last-Event-ID": after} if after else {})
        async with self.http.stream("GET", "/updates", headers=headers) as response:
            assert response.status_code == 200
            stream = Stream(response)
            assert (await stream.next()).kind == "connected"
            stream.seen.clear()
            yield stream

    @asynccontextmanager
    async def streamed(self, prompt: str, client: str = "") -> AsyncGenerator[Stream]:
        body = {"prompt": prompt, "stream": True}
        headers = self._as(client)
        async with self.http.stream("POST", "/request", json=body, headers=headers) as response:
            assert response.status_code == 200
            yield Stream(response)

    def _as(self, client: str) -> dict[str, str]:
        return self.headers | ({"X-Client-ID": client} if client else {})


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)


@asynccontextmanager
async def serving(
    backend: Backend | str,
    directory: Path,
    *,
    session: Session | None = None,
    journal: SessionJournal | None = None,
    log: UpdateLog | None = None,
    clock: ManualClock | None = None,
    settings: ServerSettings | None = None,
    keys: KeyStore | None = None,
    sandbox: Sandbox | None = None,
) -> AsyncGenerator[Served]:
    """Serve a session in `directory`, with real tools under the usual rules."""
    if isinstance(backend, str):
        backend = ScriptedBackend(parse_script(backend))
    session = session or Session("You are a shepherd.", id="s1")
    session.journal = journal or session.journal
    settings = settings or ServerSettings(port=0)
    held = HeldConversation(session, directory, backend, sandbox=sandbox)
    conversation = SharedSession(held.shared, held.actions, backend, log=log, clock=clock)
    app = create_conversation_app(conversation, settings, keys)
    server = DrainingServer(app, conversation.drain, settings=settings)
    sock = bind(settings)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(conversation)
        task = asyncio.create_task(server.serve(sockets=[sock]))
        stack.push_async_callback(_end, server, conversation, task)
        await until(lambda: server.started)
        http = httpx.AsyncClient(base_url=url, timeout=PATIENCE)
        await stack.enter_async_context(http)
        yield Served(conversation, held, url, http, server)


def runner(directory: Path, approver: Approver, sandbox: Sandbox | None = None) -> ToolRunner:
    store = PermissionStore(directory.parent / "permissions.toml")
    policy = PermissionPolicy(directory, store=store)
    context = ToolContext(cwd=directory, spill_dir=directory.parent / "spill", sandbox=sandbox)
    return ToolRunner(default_registry(), policy, approver, context)


async def _end(
    server: DrainingServer, conversation: SharedSession, task: "asyncio.Task[None]"
) -> None:
    conversation.drain()
    server.end(force=True)
    await task
    await server.end_requests()
