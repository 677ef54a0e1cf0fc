"""The client of a shared session, over connections that break."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import pytest

from shepherd.cli.connect.client import RemoteUpdate, SharedSessionClient
from shepherd.conversation.shared.updates import UpdateKind, UpdateLog
from shepherd.errors import AccessError, BackendError, InvalidRequestError, UnreachableError
from shepherd.server.access.keys import KeyStore
from tests.server.conversation.harness import PATIENCE, serving

SCRIPT = """\
think: hm
text: Let me look.
call: read_file {"path": "notes.txt"}
---
chunk: 4
text: Buy milk, «two» bottles.
"""
CONNECTION_KINDS = (UpdateKind.CONNECTED, UpdateKind.SNAPSHOT)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / "notes.txt").write_text("remember the milk\n")
    return directory


@asynccontextmanager
async def cut_after(port: int, limit: int) -> AsyncGenerator[str]:
    """A way to the server that breaks each connection after `limit` bytes of the answer."""

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, most: int) -> None:
        with suppress(ConnectionError):
            while most > 0 and (data := await source.read(min(most, 65_536))):
                most -= len(data)
                target.write(data)
                await target.drain()

    connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        connections.add(task)
        await asyncio.wait([task])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
        up = asyncio.create_task(pump(reader, upstream_writer, 1_000_000))
        try:
            await pump(upstream_reader, writer, limit)
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
            writer.close()
            upstream_writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def collect(client: SharedSessionClient, after: str) -> list[RemoteUpdate]:
    """What follows `after`, up to the end of a turn."""
    seen: list[RemoteUpdate] = []
    async with asyncio.timeout(PATIENCE), aclosing(client.updates(after)) as updates:
        async for update in updates:
            if update.kind not in CONNECTION_KINDS:
                seen.append(update)
            if update.kind is UpdateKind.RESPONSE_COMPLETE:
                return seen
    raise AssertionError("the updates ended")


async def test_no_update_is_lost_or_repeated_wherever_connections_break(work: Path) -> None:
    async with serving(SCRIPT, work) as served:
        begin = served.conversation.log.id_of(0)
        await served.ask("what is to do?", "somebody")
        async with SharedSessionClient(served.url, initial_pause=0) as client:
            whole = await collect(client, begin)
        assert len(whole) > 15
        for limit in (*range(900, 1800, 127), 4001):
            async with (
                cut_after(served.port, limit) as url,
                SharedSessionClient(url, initial_pause=0) as client,
            ):
                assert await collect(client, begin) == whole


async def test_a_client_prompts_watches_and_decides(work: Path) -> None:
    script = 'call: execute_command {"command": "touch made"}\n---\ntext: done'
    async with serving(script, work) as served, SharedSessionClient(served.url) as client:
        after = str((await client.session())["update_id"])
        request = await client.send("do it")
        async with aclosing(client.updates(after)) as updates:
            async for update in updates:
                if update.kind is UpdateKind.APPROVAL_NEEDED:
                    assert update.request == request
                    await client.decide(str(update.data["id"]), "once")
                    await client.decide(str(update.data["id"]), "once")
                if update.kind is UpdateKind.RESPONSE_COMPLETE:
                    break
        assert (work / "made").exists()
        assert (await client.request(request))["content"] == "done"
        await client.cancel(request)
        await client.clear()
        assert (await client.session())["messages"] == []
        with pytest.raises(InvalidRequestError, match="prompt"):
            await client.send(" ")
        with pytest.raises(BackendError, match="no such request"):
            await client.request("unknown")


async def test_what_was_missed_is_told(work: Path) -> None:
    async with serving(SCRIPT, work, log=UpdateLog(max_updates=4)) as served:
        await served.ask("what is to do?")
        async with (
            SharedSessionClient(served.url) as client,
            aclosing(client.updates(served.conversation.log.id_of(1))) as updates,
        ):
            kinds = [(await anext(updates)).kind for _ in range(2)]
        assert kinds == [UpdateKind.CONNECTED, UpdateKind.SNAPSHOT]


async def test_keys_and_absence_are_errors_that_say_what_to_do(work: Path) -> None:
    keys = KeyStore(work.parent / "keys.json")
    key = keys.add("laptop")
    async with serving(SCRIPT, work, keys=keys) as served:
        async with SharedSessionClient(served.url) as stranger:
            with pytest.raises(AccessError, match="--api-key"):
                await stranger.session()
            with pytest.raises(AccessError):
                await collect(stranger, "")
        async with SharedSessionClient(served.url, key) as client:
            assert (await client.session())["messages"] == []
    async with SharedSessionClient(served.url, key, initial_pause=0) as client:
        with pytest.raises(UnreachableError, match="--cliserver"):
            await client.session()
    with pytest.raises(InvalidRequestError):
        SharedSessionClient("http://host:port")
