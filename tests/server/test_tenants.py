"""Keys share a model: each has places of its own, knows its place, and an admin sees all."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from msgspec.structs import replace

from shepherd.backends.base import Prefilled
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.tenant import Tenant, TenantKind, serving_tenant
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.messages import Message
from shepherd.models import builtin_model
from shepherd.sampling import Sampling
from shepherd.server.access.key import KeyScope
from shepherd.server.access.keys import KeyStore
from shepherd.server.generation import log_warnings
from shepherd.server.settings import ServerSettings
from shepherd.session import Session
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer

Engine = RunningServer[LlamaCppBackend]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> KeyStore:
    return KeyStore(tmp_path_factory.mktemp("keys") / "keys.json")


@pytest.fixture(scope="module")
def keys(store: KeyStore) -> dict[str, str]:
    kinds = {"person": TenantKind.INTERACTIVE, "agent": TenantKind.AGENT}
    made = {
        name: store.add(name, lambda key, kind=kind: replace(key, kind=kind, share=2.0))
        for name, kind in kinds.items()
    }
    admin = frozenset({KeyScope.ADMIN})
    return made | {"admin": store.add("admin", lambda key: replace(key, scopes=admin))}


@pytest.fixture(scope="module")
def engine(store: KeyStore) -> Iterator[Engine]:
    """One request at a time, and one place for each key."""
    settings = LlamaCppSection(threads=1, max_queue=0)

    async def load() -> LlamaCppBackend:
        return await LlamaCppBackend.load(builtin_model(), settings, Sampling(temperature=0.0))

    loop = asyncio.new_event_loop()
    backend = loop.run_until_complete(load())
    with RunningServer(backend, ServerSettings(port=0), store, loop=loop) as running:
        yield running


async def hold(backend: LlamaCppBackend) -> Prefilled:
    """A prompt that keeps the only sequence, and that nobody comes before."""
    with serving_tenant(Tenant("holder", kind=TenantKind.INTERACTIVE)):
        return await backend.prefill_session(Session(messages=[Message.user("hi")]), log_warnings)


def post(engine: Engine, key: str, *, stream: bool = False) -> httpx.Response:
    body = {"messages": HI, "stream": stream, "max_tokens": 5}
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(f"{engine.url}{CHAT}", json=body, headers=headers, timeout=PATIENCE)


def queue(engine: Engine, key: str) -> httpx.Response:
    return httpx.get(f"{engine.url}/queue", headers={"Authorization": f"Bearer {key}"})


@pytest.mark.parametrize("stream", [False, True])
def test_each_key_has_its_places(engine: Engine, keys: dict[str, str], *, stream: bool) -> None:
    held = engine.do(hold(engine.backend))
    with ThreadPoolExecutor(2) as pool:
        try:
            first = pool.submit(post, engine, keys["agent"], stream=stream)
            engine.until(lambda: engine.backend.running == 2)
            assert post(engine, keys["agent"]).status_code == 503  # its own place is taken
            second = pool.submit(post, engine, keys["person"])
            engine.until(
                lambda: sorted(r.place for r in engine.backend.status.requests) == [0, 1, 2]
            )
            rows = queue(engine, keys["admin"]).json()["requests"]
            shown = [(row["key"], row["state"], row["position"]) for row in rows]
            assert shown == [("holder", "runs", 0), ("person", "waits", 1), ("agent", "waits", 2)]
        finally:
            engine.do(held.__aexit__(None, None, None))
        assert second.result(PATIENCE).headers["x-shepherd-queue"].startswith("position=1, ")
        answer = first.result(PATIENCE)
    assert answer.status_code == 200
    assert answer.headers["x-shepherd-queue"].startswith("position=1, ")
    engine.until(lambda: engine.backend.running == 0)


def test_who_does_not_wait_has_no_place(engine: Engine, keys: dict[str, str]) -> None:
    assert "x-shepherd-queue" not in post(engine, keys["agent"]).headers


@pytest.mark.parametrize("name", ["agent", "person"])
def test_only_an_admin_sees_the_queue(engine: Engine, keys: dict[str, str], name: str) -> None:
    assert queue(engine, keys[name]).status_code == 403


def test_a_stream_tells_the_place_while_it_waits(engine: Engine, keys: dict[str, str]) -> None:
    held = engine.do(hold(engine.backend))
    headers = {"Authorization": f"Bearer {keys['agent']}"}
    body = {"messages": HI, "stream": True, "max_tokens": 5}
    with httpx.stream(
        "POST", f"{engine.url}{CHAT}", json=body, headers=headers, timeout=PATIENCE
    ) as response:
        lines = response.iter_lines()
        assert next(lines).startswith(": waiting, position 1 in the queue")
        engine.do(held.__aexit__(None, None, None))
        assert any(line == "data: [DONE]" for line in lines)
