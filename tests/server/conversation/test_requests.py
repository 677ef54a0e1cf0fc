"""Prompts over HTTP: waiting, streaming, in the background, in a queue, cancelled."""

from pathlib import Path

import pytest

from shepherd.conversation.shared.requests import MAX_WAITING
from tests.server.conversation.harness import serving, until
from tests.server.held import HeldBackend

TOOL_TURN = """\
think: hm
text: "Let me look.\\n```sh\\nls\\n```\\n"
call: read_file {"path": "notes.txt"}
---
chunk: 4
text: Buy milk.
"""


async def test_an_answer_is_waited_for(work: Path) -> None:
    async with serving(TOOL_TURN, work) as served:
        answer = await served.ask("what is to do?")
        assert answer.status_code == 200
        body = answer.json()
        assert body["content"] == "Buy milk."
        assert body["finish_reason"] == "stop"
        assert body["usage"]["completion_tokens"] > 0
        assert answer.headers["x-shepherd-request"] == body["request"]
        again = await served.http.get(f"/request/{body['request']}")
        assert again.json()["content"] == "Buy milk."


async def test_a_stream_has_the_turn_in_its_order(work: Path) -> None:
    async with serving(TOOL_TURN, work) as served, served.streamed("what is to do?") as stream:
        seen = await stream.rest()
    assert stream.kinds == [
        "queued", "started",
        "thinking", "delta", "codeblock", "stats", "stop", "tool_call",
        "message_added", "message_added", "tool_result",
        "delta", "delta", "delta", "stats", "stop", "message_added",
        "response_complete",
    ]  # fmt: skip
    numbers = [int(update.id.partition("-")[2]) for update in seen]
    assert numbers == sorted(set(numbers))
    assert "".join(u.data["text"] for u in seen[11:14]) == "Buy milk."
    assert {update.data["request"] for update in seen} == {seen[0].data["request"]}
    called, result = seen[7].data, seen[10].data
    assert called["arguments"] == {"path": "notes.txt"}
    assert (called["id"], result["content"]) == (result["id"], "remember the milk")


async def test_requests_wait_in_their_order_and_everybody_sees_it(work: Path) -> None:
    backend = HeldBackend(hold_generation=True)
    async with serving(backend, work) as served, served.updates() as watcher:
        ids = [await served.in_background(text, "me") for text in ("one", "two", "three")]
        await until(lambda: backend.working == 1)
        session = await served.session("me")
        assert session["running"]["request"] == ids[0]
        assert session["running"]["partial"] == [{"kind": "delta", "text": "done"}]
        assert [(q["request"], q["position"]) for q in session["queue"]] == [
            (ids[1], 1),
            (ids[2], 2),
        ]
        assert all(q["mine"] for q in session["queue"])
        assert not (await served.session("other"))["running"]["mine"]
        third = await served.http.get(f"/request/{ids[2]}")
        assert (third.json()["state"], third.json()["position"]) == ("queued", 2)
        backend.go.set()
        await watcher.until("response_complete", 3)
        ended = [u.data["request"] for u in watcher.seen if u.kind == "response_complete"]
        begun = [u.data["request"] for u in watcher.seen if u.kind == "started"]
        assert begun == ended == ids
        told = [u.data for u in watcher.seen if u.kind == "queued"]
        assert [q["position"] for q in told if q["request"] == ids[2]] == [2, 1]


async def test_a_waiting_request_is_taken_back(work: Path) -> None:
    backend = HeldBackend(hold_generation=True)
    async with serving(backend, work) as served:
        first = await served.in_background("one")
        await until(lambda: backend.working == 1)
        async with served.streamed("two") as stream:
            second = (await stream.until("queued")).data["request"]
            answer = await served.http.delete(f"/request/{second}")
            assert (answer.status_code, answer.json()["finish_reason"]) == (200, "cancelled")
            assert (await stream.rest())[-1].data["finish_reason"] == "cancelled"
        backend.go.set()
        await until(lambda: not served.conversation.queue.busy)
        contents = [m["content"] for m in (await served.session())["messages"]]
        assert contents == ["one", "done"]
        for request in (first, second):
            ended = await served.http.delete(f"/request/{request}")
            assert (ended.status_code, ended.json()["error"]["code"]) == (409, "request_ended")


async def test_the_running_request_is_stopped_and_what_there_is_stays(work: Path) -> None:
    backend = HeldBackend(hold_generation=True)
    async with serving(backend, work) as served, served.updates() as watcher:
        request = await served.in_background("one")
        await watcher.until("delta")
        assert (await served.http.delete(f"/request/{request}")).status_code == 202
        ended = await watcher.until("response_complete")
        assert (ended.data["finish_reason"], ended.data["content"]) == ("cancelled", "done")
        assert backend.stopped == 1
        contents = [m["content"] for m in (await served.session())["messages"]]
        assert contents == ["one", "done"]


async def test_hanging_up_stops_nothing(work: Path) -> None:
    backend = HeldBackend(hold_generation=True)
    async with serving(backend, work) as served, served.updates() as watcher:
        async with served.streamed("one") as stream:
            await stream.until("delta")
        backend.go.set()
        ended = await watcher.until("response_complete")
        assert ended.data["finish_reason"] == "stop"
        assert backend.stopped == 0


async def test_too_many_are_sent_away(work: Path) -> None:
    backend = HeldBackend(hold_generation=True)
    async with serving(backend, work) as served:
        await served.in_background("runs")
        await until(lambda: backend.working == 1)
        for number in range(MAX_WAITING):
            await served.in_background(str(number))
        refused = await served.ask("one too many")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_busy")
        assert int(refused.headers["retry-after"]) > 0


@pytest.mark.parametrize("stream", [True, False])
async def test_a_turn_that_fails_says_so_and_the_next_is_answered(
    work: Path, *, stream: bool
) -> None:
    async with serving("error: upstream is gone\n---\ntext: here again", work) as served:
        if stream:
            async with served.streamed("one") as events:
                seen = await events.rest()
            assert seen[-2].kind == "error"
            assert seen[-2].data["message"] == "upstream is gone"
            assert seen[-1].data["finish_reason"] == "error"
        else:
            failed = await served.ask("one")
            assert failed.status_code == 500
            assert failed.json()["error"]["message"] == "upstream is gone"
        assert (await served.ask("two")).json()["content"] == "here again"


async def test_what_does_not_fit_leaves_no_trace(work: Path) -> None:
    async with serving("context: 40\ntext: ok", work) as served, served.updates() as watcher:
        failed = await served.ask("word " * 60)
        assert failed.json()["error"]["code"] == "context_length_exceeded"
        assert (await served.session())["messages"] == []
        await watcher.until("response_complete")
        added = [u.data["index"] for u in watcher.seen if u.kind == "message_added"]
        [removed] = [u.data["removed"] for u in watcher.seen if u.kind == "eviction"]
        assert (added, removed) == ([0], [[0, 1]])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "  "}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": "x", "async": "maybe"}, "async"),
        ({"prompt": "x", "async": True, "stream": True}, None),
    ],
)
async def test_bad_bodies_are_refused(
    work: Path, body: dict[str, object], param: str | None
) -> None:
    async with serving("text: ok", work) as served:
        answer = await served.post("/request", body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param
        assert not served.conversation.queue.busy


async def test_clearing_waits_for_nobody(work: Path) -> None:
    backend = HeldBackend(hold_generation=True)
    async with serving(backend, work) as served, served.updates() as watcher:
        await served.in_background("one")
        await watcher.until("delta")
        refused = await served.post("/clear")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conversation_busy")
        backend.go.set()
        await watcher.until("response_complete")
        cleared = await served.post("/clear")
        assert cleared.status_code == 200
        assert (await watcher.until("cleared")).id == cleared.json()["update_id"]
        assert (await served.session())["messages"] == []


async def test_a_message_steers_the_running_request_of_its_client(work: Path) -> None:
    backend = HeldBackend(hold_generation=True)
    async with serving(backend, work) as served, served.updates() as watcher:
        first = await served.in_background("one", "me")
        await until(lambda: backend.working == 1)
        joined = await served.ask("also this", "me", **{"async": True, "steer": True})
        assert joined.json()["request"] == first
        other = await served.ask("mine", "other", **{"async": True, "steer": True})
        assert other.json()["request"] != first
        backend.go.set()
        await watcher.until("response_complete", 2)
        steering = [u for u in watcher.seen if u.data.get("topic") == "steering"]
        assert [u.data["text"] for u in steering] == ["also this"]
        messages = (await served.session())["messages"]
        users = [m["content"] for m in messages if m["role"] == "user"]
        assert users == ["one", "also this", "mine"]


async def test_clients_learn_that_earlier_messages_changed(work: Path) -> None:
    async with serving("text: ok", work) as served, served.updates() as watcher:
        await served.ask("one")
        await watcher.until("response_complete")
        assert (await served.post("/command", {"command": "/rewind 1"})).status_code == 200
        assert "changed" in (await watcher.until("snapshot")).data["message"]
        assert (await served.session())["messages"] == []
