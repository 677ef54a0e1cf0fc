"""A prompt that is interrupted while it is on its way to a shared session."""

import asyncio
from collections.abc import Callable

from shepherd.cli.connect.client import SharedSessionClient
from shepherd.cli.connect.remote import RemoteSession
from shepherd.events import Event, FinishReason
from shepherd.messages import JsonObject
from tests.approvers import ScriptedApprover
from tests.backends.api.upstream import Received, Reply, Upstream
from tests.patience import PATIENCE

SESSION: JsonObject = {
    "id": "s1",
    "update_id": "e.0",
    "model": "m",
    "messages": [],
    "approvals": [],
}


class Viewer:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.ends: list[bool] = []

    def event(self, event: Event, *, mine: bool) -> None: ...

    def prompt(self, text: str) -> None: ...

    def queued(self, position: int) -> None: ...

    def ended(self, *, mine: bool) -> None:
        self.ends.append(mine)

    def notice(self, text: str) -> None:
        self.notices.append(text)


class Server:
    """A server that has a prompt at once and says so only when `gate` is open."""

    def __init__(self, status: int = 202) -> None:
        self.gate = asyncio.Event()
        self.status = status
        self.posted = [asyncio.Event(), asyncio.Event()]
        self.upstream = Upstream(self.answer)

    def answer(self, request: Received) -> Reply:
        match request.method, request.path:
            case "POST", "/request":
                number = len(self.of("POST"))
                self.posted[number - 1].set()
                return Reply([self.gate, f'{{"request": "r{number}"}}'], status=self.status)
            case "GET", "/updates":
                return Reply.sse(self.updates(), done=False)
            case "GET", "/session":
                return Reply(SESSION)
            case _:
                return Reply({})

    def updates(self) -> list[object]:
        """The end of each request, told as soon as it has come."""
        ends = [
            ("response_complete", {"request": f"r{number}", "finish_reason": reason})
            for number, reason in ((1, "cancelled"), (2, "stop"))
        ]
        return [self.posted[0], ends[0], self.posted[1], ends[1], asyncio.Event()]

    def of(self, method: str) -> list[Received]:
        return [r for r in self.upstream.requests if r.method == method]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)


def remote_on(server: Server) -> tuple[RemoteSession, Viewer, SharedSessionClient]:
    client, viewer = SharedSessionClient(server.upstream.url), Viewer()
    return RemoteSession(client, viewer, ScriptedApprover()), viewer, client


async def interrupted(asking: "asyncio.Task[FinishReason]") -> None:
    asking.cancel()
    await asyncio.wait([asking], timeout=PATIENCE)
    assert asking.cancelled()


async def test_the_prompt_is_back_at_once_and_the_server_is_told_later() -> None:
    server = Server()
    async with server.upstream:
        remote, viewer, client = remote_on(server)
        async with client, remote.following():
            asking = asyncio.create_task(remote.ask("one"))
            await until(lambda: len(server.of("POST")) == 1)
            await interrupted(asking)
            assert server.of("DELETE") == [], "nobody knows yet what to take back"
            following = asyncio.create_task(remote.ask("two"))
            server.gate.set()
            assert await following is FinishReason.STOP
            await until(lambda: len(server.of("DELETE")) == 1)
            assert [r.path for r in server.of("DELETE")] == ["/request/r1"]
            assert [r.json["prompt"] for r in server.of("POST")] == ["one", "two"]
            assert viewer.ends == [True, True], "it was known whose the first one was"
        assert viewer.notices == []


async def test_leaving_waits_until_the_server_is_told() -> None:
    server = Server()
    async with server.upstream:
        remote, _, client = remote_on(server)
        async with client:
            async with remote.following():
                asking = asyncio.create_task(remote.ask("one"))
                await until(lambda: len(server.of("POST")) == 1)
                await interrupted(asking)
                server.gate.set()
            assert [r.path for r in server.of("DELETE")] == ["/request/r1"]


async def test_what_waits_behind_another_is_never_sent() -> None:
    server = Server()
    async with server.upstream:
        remote, _, client = remote_on(server)
        async with client, remote.following():
            first = asyncio.create_task(remote.ask("one"))
            await until(lambda: len(server.of("POST")) == 1)
            second = asyncio.create_task(remote.ask("two"))
            await asyncio.sleep(0)
            await interrupted(second)
            server.gate.set()
            assert await first is FinishReason.CANCELLED
        assert [r.json["prompt"] for r in server.of("POST")] == ["one"]


async def test_that_the_server_did_not_take_it_is_told() -> None:
    server = Server(status=503)
    async with server.upstream:
        remote, viewer, client = remote_on(server)
        async with client, remote.following():
            asking = asyncio.create_task(remote.ask("one"))
            await until(lambda: len(server.of("POST")) == 1)
            await interrupted(asking)
            server.gate.set()
            await until(lambda: bool(viewer.notices))
        assert server.of("DELETE") == []
        assert viewer.notices[0].startswith("interrupted while it was sent: ")
