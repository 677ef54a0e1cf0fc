"""The application in front of the replicas, with replicas that a test makes up."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest
from starlette.types import Message

from shepherd.affinity import Prefix, body_prefix
from shepherd.cli.deploy import ingress
from shepherd.cli.deploy.ingress import Ingress, ReplicaLostError, ReplicasBusyError
from shepherd.cli.deploy.request import ReplicaReply, ReplicaRequest, is_for_all
from shepherd.server.api import ErrorShapes
from shepherd.server.app import APIS, OPENAI

CHAT = "/v1/chat/completions"
SSE = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-request-id", b"inner")]
JSON = [(b"content-type", b"application/json")]
HI: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
LOST = ReplicaLostError("The actor died.")
BUSY = ReplicasBusyError("Too many requests wait.")


def start(headers: list[tuple[bytes, bytes]], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers}


def part(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


STUCK: Message = {}
Script = Sequence[Message | Exception]


class ScriptedReplicas:
    """Each request is answered by the next script, and noted."""

    def __init__(self, *scripts: Script, replies: Sequence[ReplicaReply] = ()) -> None:
        self.requests: list[ReplicaRequest] = []
        self.closed = 0
        self._scripts = list(scripts)
        self._replies = replies

    async def send(self, request: ReplicaRequest) -> AsyncGenerator[Sequence[Message]]:
        self.requests.append(request)
        try:
            for step in self._scripts.pop(0):
                if isinstance(step, Exception):
                    raise step
                if step is STUCK:
                    await asyncio.Event().wait()
                yield [step]
        finally:
            self.closed += 1

    async def send_to_all(self, request: ReplicaRequest) -> Sequence[ReplicaReply]:
        self.requests.append(request)
        return self._replies


async def ask(
    replicas: ScriptedReplicas,
    body: bytes | Mapping[str, Any] = HI,
    path: str = CHAT,
    method: str = "POST",
    limit: int = 1000,
) -> tuple[int, Mapping[bytes, bytes], bytes]:
    """The status, the headers and the body of an answer; 0 for none."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    parts: list[Message] = [
        {"type": "http.request", "body": content[:10], "more_body": True},
        {"type": "http.request", "body": content[10:], "more_body": False},
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return parts.pop(0) if parts else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", None),
        "state": {},
    }
    served = Ingress(replicas, ErrorShapes(OPENAI.errors, APIS), limit, ["http://all"])
    await served(scope, receive, send)
    if not sent:
        return 0, {}, b""
    assert [message["type"] for message in sent].count("http.response.start") == 1
    assert not sent[-1].get("more_body", False)
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(m["body"] for m in sent[1:])


async def test_an_answer_passes_through() -> None:
    replicas = ScriptedReplicas(
        [start(SSE), part(b"data: 1\n\n"), part(b"data: 2\n\n", more=False)]
    )
    status, headers, body = await ask(replicas)
    assert (status, body) == (200, b"data: 1\n\ndata: 2\n\n")
    assert b"x-request-id" not in headers  # Ray's proxy sets it
    assert replicas.requests[0].body == json.dumps(HI).encode()
    assert replicas.requests[0].prefix == body_prefix(HI)


async def test_the_id_of_a_response_leads_to_its_replica() -> None:
    """The replica uses this id, and a request that continues it begins with the same block."""
    script: Script = [start(JSON), part(b"{}", more=False)]
    replicas = ScriptedReplicas(script, script, script)
    for body in ({"input": "hi"}, {"input": "hi"}, {"messages": HI["messages"]}):
        await ask(replicas, body, "/v1/responses" if "input" in body else CHAT)
    first, second, chat = replicas.requests
    assert first.scope()["state"] == {"response_id": first.response_id}
    assert first.response_id != second.response_id
    assert first.prefix.hashes[:-1] == second.prefix.hashes[:-1]
    following = body_prefix({"input": "more", "previous_response_id": first.response_id})
    assert following.hashes[0] == first.prefix.hashes[-1]
    assert (chat.response_id, chat.scope()["state"]) == ("", {})


async def test_no_request_of_a_replica_comes_over_a_unix_socket() -> None:
    """Such requests would need no key."""
    replicas = ScriptedReplicas([start(JSON), part(b"{}", more=False)])
    await ask(replicas)
    assert replicas.requests[0].scope()["server"] == ("shepherd", 0)


@pytest.mark.parametrize(
    "begun", [[], [start(SSE)], [start(SSE), part(b": keepalive\n\n")], [start(JSON)]]
)
async def test_a_request_without_content_goes_to_another_replica(begun: list[Message]) -> None:
    second = [start(begun[0]["headers"] if begun else SSE), part(b"data: 1\n\n", more=False)]
    replicas = ScriptedReplicas([*begun, LOST], second)
    status, _, body = await ask(replicas)
    assert (status, body.removeprefix(b": keepalive\n\n")) == (200, b"data: 1\n\n")
    assert len(replicas.requests) == replicas.closed == 2


async def test_a_stuck_replica_loses_its_request_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress, "SILENCE_SECONDS", 0.05)
    answer = part(b"data: 1\n\n", more=False)
    replicas = ScriptedReplicas([STUCK], [start(SSE), answer])
    status, _, body = await ask(replicas)
    assert (status, body) == (200, b"data: 1\n\n")
    first, second = replicas.requests
    assert first.prefix.hashes
    assert not second.prefix.hashes  # it would lead to the same replica
    _, _, cut = await ask(ScriptedReplicas([start(SSE), part(b"data: 1\n\n"), STUCK]))
    assert b"replica_lost" in cut


async def test_a_stream_that_has_begun_ends_with_the_error_of_its_api() -> None:
    script: Script = [start(SSE), part(b"data: 1\n\n"), LOST]
    status, _, body = await ask(ScriptedReplicas(script))
    assert status == 200
    error = json.loads(body.split(b"data: ")[2])["error"]
    assert error["code"] == "replica_lost"
    _, _, anthropic = await ask(ScriptedReplicas(script), path="/v1/messages")
    assert b"event: error\n" in anthropic
    lines = [(b"content-type", b"application/x-ndjson")]
    ollama: Script = [start(lines), part(b'{"done": false}\n'), LOST]
    _, _, body = await ask(ScriptedReplicas(ollama), path="/api/chat")
    assert "error" in json.loads(body.splitlines()[1])


async def test_two_lost_replicas_are_an_error_of_the_api() -> None:
    status, headers, body = await ask(ScriptedReplicas([LOST], [LOST]))
    assert (status, json.loads(body)["error"]["code"]) == (503, "replica_lost")
    assert headers[b"retry-after"] == b"1"


async def test_the_next_replica_may_refuse() -> None:
    first: Script = [start(SSE), part(b": keepalive\n\n"), LOST]
    refusal: Script = [start(JSON, 429), part(b"{}", more=False)]
    status, _, body = await ask(ScriptedReplicas(first, refusal))
    assert status == 200
    assert b"replica_lost" in body
    status, _, _ = await ask(ScriptedReplicas([LOST], refusal))
    assert status == 429


async def test_busy_replicas_are_an_error_of_the_api() -> None:
    status, _, body = await ask(ScriptedReplicas([BUSY]), path="/v1/messages")
    assert status == 503
    assert json.loads(body)["type"] == "error"


@pytest.mark.parametrize("body", [b"x" * 2000, b"x" * 1001, b"x" * 1000])
async def test_a_body_is_cut_after_the_limit(body: bytes) -> None:
    replicas = ScriptedReplicas([start(JSON, 413), part(b"{}", more=False)])
    await ask(replicas, body)
    assert replicas.requests[0].body == body[:1001]
    assert replicas.requests[0].prefix == Prefix()


@pytest.mark.parametrize("body", [b"", b"[" * 900, b'{"messages": 1', b"[NaN]", b"\xff", b"null"])
async def test_replicas_judge_wrong_bodies(body: bytes) -> None:
    replicas = ScriptedReplicas([start(JSON, 400), part(b"{}", more=False)])
    status, _, _ = await ask(replicas, body)
    assert status == 400
    assert replicas.requests[0].body == body


def reply(name: str, body: object, status: int = 200) -> ReplicaReply:
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return ReplicaReply(name, status, [(b"content-length", b"1")], content)


METRICS = """# HELP m_total Things.
# TYPE m_total counter
m_total 1.0
m_total{a="x y",b="{}"} 2.0
# HELP n Others.
# TYPE n gauge
"""


async def test_measurements_of_all_replicas() -> None:
    replicas = ScriptedReplicas(replies=[reply("one", METRICS), reply("two", METRICS + "n 3\n")])
    status, headers, body = await ask(replicas, b"", "/metrics", "GET")
    assert status == 200
    assert headers[b"content-length"] == str(len(body)).encode()
    assert body.decode().splitlines() == [
        "# HELP m_total Things.",
        "# TYPE m_total counter",
        'm_total{replica="one"} 1.0',
        'm_total{a="x y",b="{}",replica="one"} 2.0',
        'm_total{replica="two"} 1.0',
        'm_total{a="x y",b="{}",replica="two"} 2.0',
        "# HELP n Others.",
        "# TYPE n gauge",
        'n{replica="two"} 3.0',
    ]


async def test_measurements_keep_the_format_that_the_client_reads() -> None:
    headers = [(b"content-type", b"application/openmetrics-text; version=1.0.0; charset=utf-8")]
    text = b"# HELP m Things.\n# TYPE m counter\nm_total 1.0\n# EOF\n"
    replies = [ReplicaReply(name, 200, headers, text) for name in ("one", "two")]
    _, _, body = await ask(ScriptedReplicas(replies=replies), b"", "/metrics", "GET")
    assert body.decode().splitlines() == [
        "# HELP m Things.",
        "# TYPE m counter",
        'm_total{replica="one"} 1.0',
        'm_total{replica="two"} 1.0',
        "# EOF",
    ]


async def test_states_of_all_replicas() -> None:
    states = [
        {"status": "ready", "pid": 1, "addresses": [], "requests": {"running": 1}, "models": [1]},
        {
            "status": "draining",
            "pid": 2,
            "addresses": [],
            "requests": {"running": 2},
            "models": [1],
        },
    ]
    replies = [reply(str(n), state) for n, state in enumerate(states)]
    _, _, body = await ask(ScriptedReplicas(replies=replies), b"", "/admin/status", "GET")
    assert json.loads(body) == {
        "status": "draining",
        "pid": "1, 2",
        "addresses": ["http://all"],
        "requests": {"running": 3},
        "models": [1, 1],
    }


async def test_the_queue_is_that_of_all_replicas() -> None:
    states = [
        {"requests": [{"key": "a"}], "engine_seconds": {"a": 1.5}},
        {"requests": [{"key": "a"}, {"key": "b"}], "engine_seconds": {"a": 0.5, "b": 2.0}},
    ]
    replies = [reply(str(n), state) for n, state in enumerate(states)]
    _, _, body = await ask(ScriptedReplicas(replies=replies), b"", "/queue", "GET")
    assert json.loads(body) == {
        "requests": [{"key": "a"}, {"key": "a"}, {"key": "b"}],
        "engine_seconds": {"a": 2.0, "b": 2.0},
    }


async def test_the_logs_of_all_replicas_are_joined_and_keys_are_those_of_one() -> None:
    lines = [[{"message": "a"}], [{"message": "a"}, {"message": "b"}]]
    replies = [reply(str(n), {"lines": of_one}) for n, of_one in enumerate(lines)]
    _, _, body = await ask(ScriptedReplicas(replies=replies), b"", "/admin/log", "GET")
    assert json.loads(body) == {"lines": [*lines[0], *lines[1]]}
    scope: dict[str, Any] = {"method": "POST", "headers": [], "query_string": b""}
    places = {
        path: is_for_all(ReplicaRequest.of({**scope, "path": path}, b"", Prefix()))
        for path in ("/admin", "/admin/keys", "/admin/keys/ci/rotate", "/admin/log")
    }
    assert places == dict.fromkeys(places, False) | {"/admin/log": True}


async def test_one_refusal_of_an_order_counts() -> None:
    replies = [reply("1", {"status": "draining", "running": 0}), reply("2", {"error": {}}, 403)]
    status, _, _ = await ask(ScriptedReplicas(replies=replies), b"", "/admin/drain")
    assert status == 403


async def test_work_is_cancelled_by_the_replica_that_does_it() -> None:
    replies = [reply("1", {}, 404), reply("2", {"status": "cancelled"})]
    path = "/v1/responses/resp_1/cancel"
    for method, place in (("POST", path), ("GET", path[:-7]), ("DELETE", path[3:-7])):
        status, _, body = await ask(ScriptedReplicas(replies=replies), b"", place, method)
        assert (status, json.loads(body)) == (200, {"status": "cancelled"})
    status, _, _ = await ask(ScriptedReplicas(replies=replies[:1]), b"", path)
    assert status == 404


async def test_orders_need_replicas() -> None:
    status, _, _ = await ask(ScriptedReplicas(), b"", "/admin/status", "GET")
    assert status == 503
