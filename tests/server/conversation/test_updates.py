"""Watching a session: resuming loses and repeats nothing, whoever watches, however slowly."""

import asyncio
import json
import socket
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from shepherd.conversation.shared.updates import UpdateKind, UpdateLog
from shepherd.server.settings import ServerSettings
from tests.server.conversation.harness import PATIENCE, Seen, Served, serving, until
from tests.server.held import HeldBackend

SLOW_BYTES = 8_000_000
"""More than the kernel takes for a receiver that does not read."""

TURNS = """\
think: hm
text: Let me look.
call: read_file {"path": "notes.txt"}
---
chunk: 3
text: Buy milk.
---
chunk: 2
text: Nothing else.
"""


async def watched(served: Served, prompts: list[str], client: str = "") -> list[Seen]:
    """Everything that a watcher sees of these prompts, asked by "me"."""
    async with served.updates(client) as watcher:
        for prompt in prompts:
            await served.ask(prompt, "me")
        await watcher.until("response_complete", len(prompts))
        return watcher.seen


async def test_resuming_at_every_update_continues_exactly_there(work: Path) -> None:
    async with serving(TURNS, work) as served:
        seen = await watched(served, ["what is to do?", "and else?"])
        assert len(seen) > 25
        for cut in range(len(seen)):
            async with served.updates(after=seen[cut].id) as resumed:
                for expected in seen[cut + 1 :]:
                    assert await resumed.next() == expected


async def test_resuming_while_it_happens(work: Path) -> None:
    async with serving(TURNS, work) as served, served.updates() as whole:
        request = asyncio.create_task(served.ask("what is to do?"))
        pieces: list[Seen] = []
        last = ""
        while not pieces or pieces[-1].kind != "response_complete":
            async with served.updates(after=last or served.conversation.log.id_of(0)) as part:
                pieces.append(await part.next())
                last = pieces[-1].id
        await request
        await whole.until("response_complete")
        assert pieces == whole.seen


async def test_the_parameter_resumes_like_the_header(work: Path) -> None:
    async with serving(TURNS, work) as served:
        seen = await watched(served, ["what is to do?"])
        path = f"/updates?after={seen[4].id}"
        async with served.http.stream("GET", path) as response:
            text = ""
            async for chunk in response.aiter_text():
                text += chunk
                if "response_complete" in text:
                    break
        assert f"id: {seen[5].id}\n" in text
        assert f"id: {seen[4].id}\n" in text.partition("event: connected")[0]
        assert text.count(f"id: {seen[4].id}\n") == 1


async def test_two_watchers_see_the_same_and_ones_own_prompt_is_no_news(work: Path) -> None:
    async with serving(TURNS, work) as served, served.updates("other") as other:
        mine = await watched(served, ["what is to do?"], "me")
        await other.until("response_complete")
        echo = [update for update in other.seen if update not in mine]
        assert [u.kind for u in echo] == ["message_added"]
        assert echo[0].data["message"] == {"role": "user", "content": "what is to do?"}
        assert [update for update in other.seen if update in mine] == mine
        async with served.updates("me", after=served.conversation.log.id_of(0)) as again:
            await again.until("response_complete")
            assert again.seen == mine


@pytest.mark.parametrize("stale", ["0badc0de-3", "nonsense", "-", "{epoch}-999", "{epoch}-²", "1"])
async def test_an_id_of_another_time_is_recognised(work: Path, stale: str) -> None:
    async with serving(TURNS, work) as served:
        await served.ask("what is to do?")
        after = stale.format(epoch=served.conversation.log.epoch)
        async with served.http.stream("GET", "/updates", params={"after": after}) as response:
            text = ""
            async for chunk in response.aiter_text():
                text += chunk
                if "event: snapshot" in text:
                    break
        last = (await served.session())["update_id"]
        assert f"id: {last}\nevent: snapshot\n" in text


async def test_who_was_away_too_long_is_told_and_goes_on_from_the_session(work: Path) -> None:
    log = UpdateLog(max_updates=8)
    async with serving(TURNS, work, log=log) as served:
        await served.ask("what is to do?")
        async with served.updates(after=log.id_of(1)) as watcher:
            told = await watcher.next()
            session = await served.session()
            assert (told.kind, told.id) == ("snapshot", session["update_id"])
            await served.ask("and else?")
            assert (await watcher.until("response_complete")).data["content"] == "Nothing else."
            assert watcher.kinds.count("snapshot") == 1


async def test_a_slow_watcher_holds_nobody_up(work: Path) -> None:
    log = UpdateLog(max_updates=16)
    script = 'chunk: 100000\ntext: "' + "x" * SLOW_BYTES + '"\n---\ntext: end'
    async with serving(script, work, log=log) as served:
        reader, writer = await asyncio.open_connection(sock=narrow_socket(served.port), limit=4096)
        writer.write(b"GET /updates HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"connected")
        assert len((await served.ask("go")).json()["content"]) == SLOW_BYTES
        text = b""
        while b"event: snapshot" not in text:
            text += await asyncio.wait_for(reader.read(1_000_000), PATIENCE)
        assert len(text) < SLOW_BYTES
        await served.ask("again")
        while b'"content":"end"' not in text:
            text += await asyncio.wait_for(reader.read(1_000_000), PATIENCE)
        writer.close()


def narrow_socket(port: int) -> socket.socket:
    """A connection whose receiver takes little before it reads."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 131_072)
    sock.connect(("127.0.0.1", port))
    return sock


async def test_the_session_and_what_follows_are_the_whole(work: Path) -> None:
    """At any moment: the snapshot, and the updates behind its id, give the final state."""
    async with serving(TURNS, work) as served, served.updates() as watcher:
        request = asyncio.create_task(served.ask("what is to do?"))
        snapshots: list[dict[str, Any]] = []
        while not request.done():
            snapshots.append(await served.session())
        await watcher.until("response_complete")
        final = await served.session()
        for snapshot in snapshots:
            number = _number(snapshot["update_id"])
            messages: list[Any] = list(snapshot["messages"])
            running = snapshot["running"]
            partial = "".join(p["text"] for p in running["partial"]) if running else ""
            for update in watcher.seen:
                if _number(update.id) <= number:
                    continue
                if update.kind in ("delta", "thinking", "codeblock"):
                    partial += update.data["text"]
                elif update.kind == "message_added":
                    message = update.data["message"]
                    assert update.data["index"] == len(messages)
                    messages.append(message)
                    if message["role"] == "assistant":
                        assert partial == message.get("reasoning", "") + message["content"]
                        partial = ""
            assert messages == final["messages"]


def _number(update_id: str) -> int:
    return int(update_id.partition("-")[2])


async def test_eviction_is_told_so_that_watchers_can_follow(work: Path) -> None:
    script = "context: 120\ntext: " + "word " * 20
    async with serving(script, work) as served, served.updates() as watcher:
        for number in range(6):
            assert (await served.ask(f"say {number} " + "again " * 10)).status_code == 200
        await watcher.until("response_complete", 6)
        messages: list[Any] = []
        for update in watcher.seen:
            if update.kind == "message_added":
                messages.append(update.data["message"])
            elif update.kind == "eviction":
                gone = {i for a, b in update.data["removed"] for i in range(a, b)}
                assert gone
                messages = [m for i, m in enumerate(messages) if i not in gone]
        assert "eviction" in watcher.kinds
        assert messages == (await served.session())["messages"]
        notices = [u.data["topic"] for u in watcher.seen if u.kind == "notice"]
        assert "eviction" in notices


async def test_silence_is_filled_with_comments(work: Path) -> None:
    settings = ServerSettings.model_construct(port=0, keepalive=0.01)
    async with (
        serving("text: hi", work, settings=settings) as served,
        served.http.stream("GET", "/updates") as response,
    ):
        lines = response.aiter_lines()
        while not (await anext(lines)).startswith(":"):
            pass


async def test_draining_ends_the_watchers_when_the_last_request_has_ended(work: Path) -> None:
    backend = HeldBackend(hold_generation=True)
    async with serving(backend, work) as served, served.updates() as watcher:
        await served.in_background("one")
        waiting = await served.in_background("two")
        await watcher.until("delta")
        served.conversation.drain()
        ended = await watcher.until("response_complete")
        assert (ended.data["request"], ended.data["finish_reason"]) == (waiting, "cancelled")
        refused = await served.ask("three")
        assert refused.status_code == 503
        backend.go.set()
        seen = await watcher.rest()
        assert (seen[-1].kind, seen[-1].data["finish_reason"]) == ("response_complete", "stop")
        await until(lambda: served.conversation.log.closed)


async def test_what_a_model_says_stays_in_its_frame(work: Path) -> None:
    evil = "a\n\nid: 1\ndata: {}\r\n\u2028\u0085x"
    async with serving(f"text: {json.dumps(evil)}", work) as served:
        seen = await watched(served, ["go"])
    assert "".join(u.data["text"] for u in seen if u.kind == "delta") == evil


@pytest.mark.parametrize("text", ["word ", "слово "])
def test_updates_take_bounded_memory(text: str) -> None:
    log = UpdateLog(max_bytes=500_000)
    log.publish(UpdateKind.DELTA, {"text": ""})
    tracemalloc.start()
    try:
        for _ in range(1500):
            log.publish(UpdateKind.DELTA, {"text": text * 100})
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 50_000 < kept < 1_250_000
    assert log.since(log.last - 100) is not None
