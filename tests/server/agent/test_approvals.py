"""Calls of the agent that clients approve: only with the scope, once, in time, or not at all."""

import json
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import structs

from shepherd.cli.connect.remote import approval_request
from shepherd.messages import Role
from shepherd.server.access.key import ApiKey, KeyScope
from shepherd.server.access.keys import KeyStore
from shepherd.server.agent.agent import Agent
from shepherd.server.agent.approvals import NOBODY, ClientApprovals
from shepherd.server.settings import ServerSettings
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, PermissionStore, Rule
from shepherd.tools.registry import default_registry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import ToolContext
from tests.patience import PATIENCE
from tests.server.agent.support import Recorded, RecordingBackend, agent_of, directory
from tests.server.harness import CHAT, HI, RunningServer

WRITES = 'call: write_file {"path": "new.txt", "content": "hello\\n"}\n---\ntext: done'


@dataclass
class Place:
    """A server with an agent in `work`, and a key for each role."""

    server: Recorded
    work: Path
    approvals: ClientApprovals
    asker: str
    approver: str

    def chat(self, *, stream: bool = False) -> httpx.Response:
        body = {"messages": HI, "stream": stream}
        return self.call("POST", CHAT, self.asker, body)

    def call(self, method: str, path: str, key: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        url = self.server.url + path
        return httpx.request(method, url, json=body, headers=headers, timeout=PATIENCE)

    def decide(self, id: str, decision: str, **more: Any) -> httpx.Response:
        body = {"decision": decision, **more}
        return self.call("POST", f"/approvals/{id}", self.approver, body)

    def question(self) -> dict[str, Any]:
        """The next question; reading the list makes the client count as connected."""
        for _ in range(int(PATIENCE / 0.01)):
            waiting = self.call("GET", "/approvals", self.approver).json()["approvals"]
            if waiting:
                return waiting[0]
            time.sleep(0.01)
        raise AssertionError("no question came")

    @property
    def result(self) -> str:
        """What the model was told about its last call."""
        messages = self.server.backend.prompts[-1].messages
        return [m.content for m in messages if m.role is Role.TOOL][-1]


@contextmanager
def serving(
    tmp_path: Path,
    script: str = WRITES,
    *,
    seconds: float = PATIENCE,
    rules: Sequence[Rule] = (),
    settings: ServerSettings | None = None,
) -> Generator[Place]:
    work = directory(tmp_path)
    keys = KeyStore(tmp_path / "keys.json")
    approvals = ClientApprovals(seconds)
    store = PermissionStore(tmp_path / "permissions.toml")
    policy = PermissionPolicy(work, user=list(rules), store=store)
    context = ToolContext(cwd=work, spill_dir=tmp_path / "spill")
    tools = ToolRunner(default_registry(), policy, approvals, context)
    agent: Agent = structs.replace(agent_of(tools), approvals=approvals)
    settings = settings or ServerSettings(port=0)
    asker = keys.add("asker")
    approver = keys.add("boss", lambda key: _scoped(key, KeyScope.APPROVE))
    with RunningServer(RecordingBackend(script), settings, keys, agent=agent) as server:
        yield Place(server, work, approvals, asker, approver)


def _scoped(key: ApiKey, *scopes: KeyScope) -> ApiKey:
    return structs.replace(key, scopes=frozenset(scopes))


@contextmanager
def asking(place: Place, *, stream: bool = False) -> Generator[Future[httpx.Response]]:
    """A request that runs while an approver is connected."""
    with place.approvals.listening(), ThreadPoolExecutor(1) as pool:
        yield pool.submit(place.chat, stream=stream)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_with_the_scope_approves_what_it_sees(tmp_path: Path, *, stream: bool) -> None:
    with serving(tmp_path) as place, asking(place, stream=stream) as answer:
        question = place.question()
        assert not (place.work / "new.txt").exists()
        shown = approval_request(question)
        assert shown.call.arguments == {"path": "new.txt", "content": "hello\n"}
        assert "+hello" in shown.preview
        assert [(a.kind.value, a.target) for a in shown.accesses] == [
            ("write", str(place.work / "new.txt"))
        ]
        assert shown.always[0].describe() == question["always"][0]["text"]
        assert (question["key"], question["path"]) == ("asker", CHAT)
        assert question["request"].startswith("req_")
        assert question["model"] == place.server.backend.info.id
        assert place.decide(question["id"], "once", reason="be quick").status_code == 200
        response = answer.result(PATIENCE)
        assert response.status_code == 200
        assert response.headers["x-request-id"] == question["request"]
        assert "done" in response.text
        assert (place.work / "new.txt").read_text() == "hello\n"
        assert "[the user adds: be quick]" in place.result
        assert place.decide(question["id"], "once").status_code == 404
        assert place.call("GET", "/approvals", place.approver).json()["approvals"] == []


def test_who_asks_cannot_approve_without_the_scope(tmp_path: Path) -> None:
    with serving(tmp_path) as place, asking(place) as answer:
        question = place.question()
        for method, path in (("GET", ""), ("GET", "/updates"), ("POST", f"/{question['id']}")):
            body = {"decision": "once"} if method == "POST" else None
            refused = place.call(method, f"/approvals{path}", place.asker, body)
            assert refused.status_code == 403
            assert refused.json()["error"]["code"] == "insufficient_scope"
            assert place.call(method, f"/approvals{path}", "none", body).status_code == 401
        assert not answer.done()
        assert place.decide(question["id"], "deny", reason="use a temporary file").is_success
        answer.result(PATIENCE)
        assert place.result == "Error: denied by the user: use a temporary file"
        assert not (place.work / "new.txt").exists()


def test_nobody_connected_is_a_no_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as place:
        assert place.chat().status_code == 200
        assert place.result == f"Error: {NOBODY}"
        assert place.approvals.log.last == 0


def test_the_wait_has_a_limit(tmp_path: Path) -> None:
    with serving(tmp_path, seconds=0.2) as place, asking(place) as answer:
        answer.result(PATIENCE)
        assert place.result.endswith("nobody has answered within 0.2 seconds")
        assert place.decide("approval_0", "once").status_code == 404


def test_a_stream_is_kept_alive_while_it_waits(tmp_path: Path) -> None:
    settings = ServerSettings.model_construct(port=0, keepalive=0.05)
    with serving(tmp_path, settings=settings) as place, place.approvals.listening():
        headers = {"Authorization": f"Bearer {place.asker}"}
        body = {"messages": HI, "stream": True}
        url = place.server.url + CHAT
        with httpx.stream("POST", url, json=body, headers=headers, timeout=PATIENCE) as stream:
            lines = stream.iter_lines()
            for _ in range(3):
                assert ": keep-alive" in lines
            place.decide(place.question()["id"], "once")
            assert list(lines)[-2:] == ["data: [DONE]", ""]


def test_of_two_answers_exactly_one_counts(tmp_path: Path) -> None:
    with serving(tmp_path) as place, asking(place) as answer:
        question, barrier = place.question(), threading.Barrier(6)

        def decide(decision: str) -> tuple[str, int]:
            barrier.wait(PATIENCE)
            return decision, place.decide(question["id"], decision).status_code

        with ThreadPoolExecutor(6) as pool:
            outcomes = list(pool.map(decide, ["once", "deny"] * 3))
        assert sorted(status for _, status in outcomes) == [200] + [404] * 5
        [winner] = [decision for decision, status in outcomes if status == 200]
        answer.result(PATIENCE)
        assert (place.work / "new.txt").exists() is (winner == "once")


@pytest.mark.parametrize("lifetime", ["session", "always"])
def test_a_rule_that_was_shown_is_added(tmp_path: Path, lifetime: str) -> None:
    with serving(tmp_path) as place:
        with asking(place) as answer:
            question = place.question()
            assert place.decide(question["id"], lifetime).status_code == 200
            answer.result(PATIENCE)
        (place.work / "new.txt").unlink()
        place.chat()
        assert (place.work / "new.txt").exists()
        stored = tmp_path / "permissions.toml"
        rule = question[lifetime][0]["pattern"]
        assert (stored.exists() and rule in stored.read_text()) is (lifetime == "always")


def test_choices_that_the_question_lacks_are_refused(tmp_path: Path) -> None:
    script = 'call: execute_command {"command": "echo $(date)"}\n---\ntext: done'
    with serving(tmp_path, script) as place, asking(place) as answer:
        question = place.question()
        for decision in ("always", "session", "maybe", "", None, 1):
            refused = place.call(
                "POST", f"/approvals/{question['id']}", place.approver, {"decision": decision}
            )
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "decision")
        long = place.decide(question["id"], "once", reason="x" * 20_000)
        assert (long.status_code, long.json()["error"]["param"]) == (400, "reason")
        assert not answer.done()
        place.decide(question["id"], "deny")
        answer.result(PATIENCE)


def test_no_approval_overrides_a_rule_that_denies(tmp_path: Path) -> None:
    denied = Rule("write", "**/new.txt", Decision.DENY)
    with serving(tmp_path, rules=[denied]) as place, asking(place) as answer:
        answer.result(PATIENCE)
        assert place.result.startswith("Error: denied by rule")
        assert place.approvals.log.last == 0


@pytest.mark.parametrize("stream", [False, True])
def test_hanging_up_withdraws_the_question(tmp_path: Path, *, stream: bool) -> None:
    with serving(tmp_path) as place, place.approvals.listening():
        body = json.dumps({"messages": HI, "stream": stream}).encode()
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {place.asker}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        with place.server.connect() as sock:
            sock.sendall(head.encode() + body)
            question = place.question()
        place.server.until(lambda: not place.approvals.questions())
        place.server.until(lambda: place.server.backend.active == 0)
        assert place.decide(question["id"], "once").status_code == 404
        assert not (place.work / "new.txt").exists()


def test_the_end_of_the_server_is_a_no(tmp_path: Path) -> None:
    async def close(place: Place) -> None:
        place.approvals.close()

    with serving(tmp_path) as place, asking(place) as answer:
        question = place.question()
        place.server.do(close(place))
        assert answer.result(PATIENCE).status_code == 200
        assert place.result.endswith("the server is ending")
        assert place.decide(question["id"], "once").status_code == 404
        place.call("GET", "/approvals", place.approver)
        place.chat()
        assert place.result.endswith("the server is ending")
        assert not (place.work / "new.txt").exists()


def test_questions_and_decisions_come_as_updates(tmp_path: Path) -> None:
    with serving(tmp_path) as place:
        headers = {"Authorization": f"Bearer {place.approver}"}
        url = f"{place.server.url}/approvals/updates"
        with httpx.stream("GET", url, headers=headers, timeout=PATIENCE) as updates:
            lines = updates.iter_lines()
            _until(lines, "connected")
            with asking(place) as answer:
                question = _until(lines, "approval_needed")
                assert question == place.question()
                place.decide(question["id"], "once")
                decided = _until(lines, "approval_decided")
                expected = {"tool": "write_file", "decision": "once", "by": "boss"}
                assert decided == {"id": question["id"], **expected}
                answer.result(PATIENCE)


def _until(lines: Iterator[str], kind: str) -> dict[str, Any]:
    for line in lines:
        if line == f"event: {kind}":
            return json.loads(next(lines).removeprefix("data: "))
    raise AssertionError(f"no {kind} came")


def test_an_approver_that_leaves_is_a_no(tmp_path: Path) -> None:
    with serving(tmp_path) as place:
        headers = {"Authorization": f"Bearer {place.approver}"}
        url = f"{place.server.url}/approvals/updates"
        with ThreadPoolExecutor(1) as pool:
            with httpx.stream("GET", url, headers=headers, timeout=PATIENCE) as updates:
                lines = updates.iter_lines()
                _until(lines, "connected")
                answer = pool.submit(place.chat)
                _until(lines, "approval_needed")
            answer.result(PATIENCE)
        assert place.result == f"Error: {NOBODY}"


def test_without_keys_nobody_approves(tmp_path: Path) -> None:
    work, approvals = directory(tmp_path), ClientApprovals(PATIENCE)
    context = ToolContext(cwd=work, spill_dir=tmp_path / "spill")
    tools = ToolRunner(default_registry(), PermissionPolicy(work), approvals, context)
    agent = structs.replace(agent_of(tools), approvals=approvals)
    with RunningServer(RecordingBackend(WRITES), agent=agent) as server:
        for method, path in (("GET", "/approvals"), ("POST", "/approvals/1")):
            answer = httpx.request(method, server.url + path, json={}, timeout=PATIENCE)
            assert answer.status_code == 404
        assert httpx.post(server.url + CHAT, json={"messages": HI}, timeout=PATIENCE).is_success
        assert not (work / "new.txt").exists()
