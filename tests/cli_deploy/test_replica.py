"""A replica without Ray: the server's application, opened from the settings."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from shepherd.affinity import Prefix
from shepherd.cli.deploy import replica as replica_module
from shepherd.cli.deploy.arguments import DeployArguments
from shepherd.cli.deploy.replica import Replica, run_app
from shepherd.cli.deploy.request import ReplicaRequest
from shepherd.config.paths import Paths
from shepherd.errors import BackendError, ShepherdError
from shepherd.models import BUILTIN_NAME
from shepherd.server.access.key import KeyLimits
from shepherd.server.access.keys import KeyStore
from shepherd.server.app import create_app
from shepherd.server.models import ModelState
from tests.server.held import HeldBackend

CHAT = "/v1/chat/completions"


def request(path: str, body: object = None, method: str = "POST") -> ReplicaRequest:
    content = b"" if body is None else json.dumps(body).encode()
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"method": method, "path": path, "query_string": b"", "headers": headers}
    return ReplicaRequest.of(
        {**scope, "client": ("127.0.0.1", 1), "scheme": "http"}, content, Prefix()
    )


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    script = tmp_path / "script"
    script.write_text("text: one\n---\ntext: two\n")
    settings = {"model.name": f"script:{script}"}
    made = Replica(DeployArguments(settings=settings, directory=str(tmp_path)), "name")
    await made.check_health()
    yield made
    await made.close()


async def test_a_replica_answers_as_the_server_does(replica: Replica) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    reply = await replica.answer(request(CHAT, body))
    assert (reply.status, reply.replica) == (200, "name")
    assert json.loads(reply.body)["choices"][0]["message"]["content"]
    messages = [
        m async for batch in replica.serve(request(CHAT, {**body, "stream": True})) for m in batch
    ]
    assert messages[0]["type"] == "http.response.start"
    assert b"[DONE]" in b"".join(m.get("body", b"") for m in messages)
    metrics = await replica.answer(request("/metrics", method="GET"))
    assert b'status="200"' in metrics.body


async def test_a_response_has_the_id_that_the_router_chose(replica: Replica) -> None:
    created = request("/v1/responses", {"input": "hi"})
    reply = await replica.answer(replace(created, response_id="resp_chosen"))
    assert json.loads(reply.body)["id"] == "resp_chosen"
    following = {"input": "more", "previous_response_id": "resp_chosen"}
    reply = await replica.answer(request("/v1/responses", following))
    assert reply.status == 200
    assert json.loads(reply.body)["id"] not in ("", "resp_chosen")


async def test_orders_need_a_key(replica: Replica) -> None:
    reply = await replica.answer(request("/admin/drain"))
    assert reply.status == 403


async def test_a_replica_that_drains_is_healthy(replica: Replica) -> None:
    """Otherwise Ray would replace it by one that takes requests."""
    assert replica.app is not None
    replica.app.context.lifecycle.drain()
    ready = await replica.answer(request("/ready", method="GET"))
    assert ready.status == 503
    await replica.check_health()


async def test_the_default_model_is_loaded_before_the_first_request(tmp_path: Path) -> None:
    """Else the first one would load it, while Ray's checks fail."""
    settings = {"model.name": BUILTIN_NAME, "llamacpp.threads": 1, "llamacpp.context_size": 512}
    made = Replica(DeployArguments(settings=settings, directory=str(tmp_path)), "name")
    await made.check_health()
    assert made.app is not None
    [model] = [each for each in made.app.context.models.every() if each.info.id == BUILTIN_NAME]
    assert model.state is ModelState.LOADED
    made.app.context.lifecycle.begin_load()  # as when another one takes its place
    await made.check_health()
    await made.close()


async def test_a_silent_application_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "BEAT_SECONDS", 0.01)
    app = create_app(HeldBackend(hold_prefill=True))
    body = {"messages": [{"role": "user", "content": "hi"}]}
    async with aclosing(run_app(app, request(CHAT, body))) as batches:
        assert [await anext(batches) for _ in range(3)] == [[], [], []]


async def test_a_failed_model_is_not_healthy(replica: Replica) -> None:
    backend = HeldBackend()
    backend.failed = True
    replica.app = create_app(backend)
    with pytest.raises(BackendError, match="not ready"):
        await replica.check_health()


async def test_wrong_settings_fail_at_the_start(tmp_path: Path) -> None:
    arguments = DeployArguments(settings={"llamacpp.threads": -5}, directory=str(tmp_path))
    with pytest.raises(ShepherdError, match="threads"):
        await Replica(arguments).check_health()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_the_work(*, stream: bool) -> None:
    backend = HeldBackend(hold_prefill=True)
    app = create_app(backend)
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": stream}

    async def read() -> None:
        async with aclosing(run_app(app, request(CHAT, body))) as batches:
            async for _ in batches:
                pass

    reading = asyncio.create_task(read())
    while not backend.working:
        await asyncio.sleep(0.001)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert backend.stopped == 1


async def test_an_error_of_the_application_is_raised() -> None:
    async def app(*_: object) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        async for _ in run_app(app, request("/")):
            pass


async def test_two_replicas_keep_a_key_to_one_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share a file, as replicas on one machine do."""
    monkeypatch.setenv("HOME", str(tmp_path))
    script = tmp_path / "script"
    script.write_text("".join(f"text: {n}\n---\n" for n in range(4)))
    limits = KeyLimits(requests_per_minute=3)
    keys = KeyStore(Paths.from_env(os.environ).keys_file)
    key = keys.add("limited", lambda entry: structs.replace(entry, limits=limits))
    settings = {"model.name": f"script:{script}", "server.auth_mode": "json"}
    arguments = DeployArguments(settings=settings, directory=str(tmp_path))
    replicas = [Replica(arguments), Replica(arguments)]
    body = {"messages": [{"role": "user", "content": "hi"}]}
    plain = request(CHAT, body)
    headers = [*plain.plain_scope["headers"], (b"authorization", f"Bearer {key}".encode())]
    asked = replace(plain, plain_scope={**plain.plain_scope, "headers": headers})
    try:
        replies = [await replicas[turn % 2].answer(asked) for turn in range(5)]
    finally:
        for replica in replicas:
            await replica.close()
    assert [reply.status for reply in replies] == [200, 200, 200, 429, 429]
    left = [dict(reply.headers)[b"x-ratelimit-remaining-requests"] for reply in replies]
    assert left == [b"2", b"1", b"0", b"0", b"0"]
