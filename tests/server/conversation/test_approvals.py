"""Approvals: asked at the client whose request it is, answered by it alone, denied without it."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from shepherd.cli.connect.remote import approval_request
from shepherd.config.section import SandboxMode
from shepherd.conversation.shared.approvals import AWAY_SECONDS
from shepherd.server.access.key import ApiKey, KeyScope
from shepherd.server.access.keys import KeyStore
from shepherd.tools.sandbox.sandbox import Finding, Sandbox
from tests.server.conversation.harness import ManualClock, Seen, Served, serving, until
from tests.tools.sandbox.boxes import LAYERED, need

WRITES = """\
call: write_file {"path": "new.txt", "content": "hello\\n"}
---
text: done
"""
RUNS = 'call: execute_command {"command": "touch made"}\n---\ntext: done'


async def decide(
    served: Served, question: Seen, decision: str, client: str, **more: Any
) -> tuple[int, Any]:
    path = f"/approvals/{question.data['id']}"
    answer = await served.post(path, {"decision": decision, **more}, client)
    return answer.status_code, answer.json()


def result_of(seen: list[Seen]) -> str:
    [result] = [update.data["content"] for update in seen if update.kind == "tool_result"]
    return result


async def test_the_client_that_asked_is_asked(work: Path) -> None:
    async with (
        serving(WRITES, work) as served,
        served.updates("me") as mine,
        served.updates("other") as others,
    ):
        await served.in_background("write it", "me")
        question = await mine.until("approval_needed")
        assert question.data["tool"] == "write_file"
        assert question.data["arguments"] == {"path": "new.txt", "content": "hello\n"}
        assert "+hello" in question.data["preview"]
        [rule] = question.data["always"]
        assert rule["pattern"] == "{cwd}/new.txt"
        assert "new.txt" in rule["text"]
        waiting = (await served.session("me"))["approvals"]
        assert waiting == [question.data]
        assert (await served.session("other"))["approvals"] == []
        (seen,) = (await served.session("other"))["others_approvals"]
        assert seen["id"] == question.data["id"]
        assert "always" not in seen
        for stranger in ("other", ""):
            status, body = await decide(served, question, "once", stranger)
            assert (status, body["error"]["code"]) == (403, "not_your_request")
        assert not (work / "new.txt").exists()
        assert (await decide(served, question, "once", "me"))[0] == 200
        await mine.until("response_complete")
        await others.until("response_complete")
        assert (work / "new.txt").read_text() == "hello\n"
        assert "approval_needed" not in others.kinds
        [decided] = [update for update in others.seen if update.kind == "approval_decided"]
        assert (decided.data["decision"], decided.data["id"]) == ("once", question.data["id"])
        assert (await decide(served, question, "once", "me"))[0] == 404


async def test_the_answer_may_come_through_the_requests_own_stream(work: Path) -> None:
    async with serving(RUNS, work) as served, served.streamed("run it") as stream:
        client = stream.response.headers["x-client-id"]
        question = await stream.until("approval_needed")
        assert question.data["preview"] == "touch made"
        assert (await decide(served, question, "once", client))[0] == 200
        await stream.rest()
        assert (work / "made").exists()


async def test_the_question_holds_all_of_a_change(work: Path) -> None:
    (work / "f").write_text("".join(f"old {n}\n" for n in range(3000)))
    content = "".join(f"new {n}\u200b\n" for n in range(3000))
    arguments = json.dumps({"path": "f", "content": content})
    script = f"call: write_file {arguments}\n---\ntext: done"
    async with serving(script, work) as served, served.streamed("go", "me") as stream:
        question = await stream.until("approval_needed")
        preview = question.data["preview"]
        assert preview.count("\n-old ") == preview.count("\u200b") == 3000
        assert question.data["accesses"] == [
            {"kind": "write", "target": str(work / "f"), "claim": "exact"}
        ]
        await decide(served, question, "deny", "me")
        await stream.rest()


async def test_a_no_is_told_with_its_reason(work: Path) -> None:
    async with serving(RUNS, work) as served, served.streamed("run it", "me") as stream:
        question = await stream.until("approval_needed")
        await decide(served, question, "deny", "me", reason="use a temporary directory")
        text = result_of(await stream.rest())
        assert text == "Error: denied by the user: use a temporary directory"
        assert not (work / "made").exists()


async def test_always_stores_the_rule_that_was_shown(work: Path) -> None:
    async with serving(RUNS, work) as served:
        async with served.streamed("run it", "me") as stream:
            question = await stream.until("approval_needed")
            await decide(served, question, "always", "me")
            await stream.rest()
        rule = question.data["always"][0]["pattern"]
        assert rule in (work.parent / "permissions.toml").read_text()
        async with served.streamed("run it", "me") as stream:
            await stream.rest()
            assert "approval_needed" not in stream.kinds


async def test_what_no_rule_can_stand_for_is_not_stored(work: Path) -> None:
    script = 'call: execute_command {"command": "echo $(date)"}\n---\ntext: done'
    async with serving(script, work) as served, served.streamed("run it", "me") as stream:
        question = await stream.until("approval_needed")
        assert question.data["always"] == []
        status, body = await decide(served, question, "always", "me")
        assert (status, body["error"]["param"]) == (400, "decision")
        assert (await decide(served, question, "maybe", "me"))[0] == 400
        assert (await decide(served, question, "deny", "me"))[0] == 200
        await stream.rest()


async def test_nobody_to_ask_is_a_no(work: Path) -> None:
    async with serving(RUNS, work) as served, served.updates() as watcher:
        assert (await served.ask("run it")).json()["content"] == "done"
        await watcher.until("response_complete")
        text = result_of(watcher.seen)
        assert "the client that sent the request does not listen" in text
        assert not (work / "made").exists()


async def test_a_client_that_stays_away_is_not_waited_for(work: Path) -> None:
    clock = ManualClock()
    async with serving(RUNS, work, clock=clock) as served, served.updates() as watcher:
        async with served.streamed("run it", "me") as stream:
            await stream.until("approval_needed")
            clock.advance(10 * AWAY_SECONDS)
            assert served.conversation.approver.pending("me")
        await until(
            lambda: served.conversation.presence.seconds_away("me") == 0 and bool(clock.sleeping)
        )
        clock.advance(AWAY_SECONDS - 1)
        async with served.updates("me") as back:
            await until(lambda: served.conversation.presence.is_listening("me"))
            clock.advance(10 * AWAY_SECONDS)
            session = await served.session("me")
            assert len(session["approvals"]) == 1
            del back
        await until(lambda: not served.conversation.presence.is_listening("me"))
        await until(lambda: bool(clock.sleeping))
        clock.advance(AWAY_SECONDS)
        await watcher.until("response_complete")
        assert "does not listen" in result_of(watcher.seen)
        [decided] = [u.data for u in watcher.seen if u.kind == "approval_decided"]
        assert decided["decision"] == "deny"


async def test_a_request_is_cancelled_while_it_waits_for_an_answer(work: Path) -> None:
    async with serving(RUNS, work) as served, served.streamed("run it", "me") as stream:
        question = await stream.until("approval_needed")
        answer = await served.http.delete(f"/request/{question.data['request']}")
        assert answer.status_code == 202
        seen = await stream.rest()
        assert seen[-1].data["finish_reason"] == "cancelled"
        assert [u.data["decision"] for u in seen if u.kind == "approval_decided"] == ["cancelled"]
        messages = (await served.session("me"))["messages"]
        assert messages[-1]["content"] == "Error: interrupted by the user"
        assert (await decide(served, question, "once", "me"))[0] == 404


async def test_who_comes_back_is_asked_again(work: Path) -> None:
    async with serving(RUNS, work) as served:
        async with served.updates("me") as first:
            await served.in_background("run it", "me")
            asked = await first.until("approval_needed")
            before = first.seen[-2].id
        async with served.updates("me", after=before) as second:
            assert await second.next() == asked
            await decide(served, asked, "once", "me")
            await second.until("response_complete")
        assert (work / "made").exists()


@pytest.mark.parametrize("name", ["has space", "x" * 129, "é"])
async def test_odd_names_of_clients_are_refused(work: Path, name: str) -> None:
    async with serving("text: ok", work) as served:
        answer = await served.http.get("/session", params={"client": name})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "X-Client-ID")


async def test_what_the_sandbox_refused_is_asked_about_with_the_rights_that_it_takes(
    work: Path,
) -> None:
    line = "cat < /dev/tcp/host.test/80"
    script = f"call: execute_command {json.dumps({'command': line})}\n---\ntext: done"
    async with serving(script, work, sandbox=Sandbox()) as served, served.updates("me") as mine:
        await served.in_background("fetch it", "me")
        first = await mine.until("approval_needed")
        assert first.data["sandbox"] == ""
        assert (await decide(served, first, "once", "me"))[0] == 200
        second = await mine.until("approval_needed")
        assert second.data["call_id"] == first.data["call_id"]
        expected = "The sandbox has no network. Run it again with network?"
        assert second.data["sandbox"] == expected
        assert approval_request(second.data).sandbox == expected
        assert (await decide(served, second, "deny", "me"))[0] == 200
        await mine.until("response_complete")
        assert "[the sandbox has no network; not run again" in result_of(mine.seen)
        [notice] = [update.data["text"] for update in mine.seen if update.kind == "notice"]
        assert "the sandbox has no network" in notice


def _with_all_scopes(key: ApiKey) -> ApiKey:
    return structs.replace(key, scopes=frozenset(KeyScope))


async def test_another_key_s_client_of_the_same_name_is_another_client(work: Path) -> None:
    keys = KeyStore(work.parent / "keys.json")
    secrets = [keys.add(name, _with_all_scopes) for name in ("mine", "other")]
    mine, others = ({"Authorization": f"Bearer {secret}"} for secret in secrets)
    async with serving(WRITES, work, keys=keys) as served:
        served.headers.update(mine)
        async with served.updates("me") as updates:
            await served.in_background("write it", "me")
            question = await updates.until("approval_needed")
            served.headers.update(others)
            assert (await served.session("me"))["approvals"] == []
            status, body = await decide(served, question, "once", "me")
            assert (status, body["error"]["code"]) == (403, "not_your_request")
            served.headers.update(mine)
            assert (await served.session("me"))["approvals"] == [question.data]
            assert (await decide(served, question, "once", "me"))[0] == 200
            await updates.until("response_complete")
    assert (work / "new.txt").read_text() == "hello\n"


async def test_a_client_keeps_some_parts(work: Path, tmp_path: Path) -> None:
    box = LAYERED[0]
    need(box)
    layers = (tmp_path / "layers",)
    sandbox = Sandbox(SandboxMode.REQUIRED, layers=layers, find=lambda: Finding(box, ()))
    script = 'call: execute_command {"command": "touch made; echo 2 > other"}\n---\ntext: done'
    async with serving(script, work, sandbox=sandbox) as served, served.updates("me") as stream:
        await served.in_background("go", "me")
        question = await stream.until("approval_needed")
        assert question.data["parts"] == [
            {
                "path": "made",
                "title": "made made (0 bytes)",
                "diff": "made: made (0 bytes)",
                "hunk": "",
            },
            {
                "path": "other",
                "title": "made other (2 bytes)",
                "diff": "--- other\n+++ other\n@@ -0,0 +1 @@\n+2",
                "hunk": "",
            },
        ]
        request = approval_request(question.data)
        assert [part.path for part in request.parts] == ["made", "other"]
        for decision, parts in (("once", [3]), ("once", [0]), ("session", [1]), ("deny", [1])):
            status, answer = await decide(served, question, decision, "me", parts=parts)
            assert (status, answer["error"]["code"]) == (400, "invalid_value")
        assert (await decide(served, question, "once", "me", parts=[2]))[0] == 200
        await stream.until("response_complete")
        assert "the user dropped: made made" in result_of(stream.seen)
    assert not (work / "made").exists()
    assert (work / "other").exists()
