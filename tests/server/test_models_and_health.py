"""Which model answers, and whether it can."""

from collections.abc import Iterator

import httpx
import pytest

from tests.patience import PATIENCE
from tests.server.harness import RunningServer
from tests.server.held import HeldBackend


@pytest.fixture
def server() -> Iterator[RunningServer[HeldBackend]]:
    with RunningServer(HeldBackend()) as running:
        yield running


def test_models_are_listed_and_found(server: RunningServer[HeldBackend]) -> None:
    with server.client() as client:
        listed = client.models.list().data
        found = client.models.retrieve("held")
    assert listed == [found]
    assert (found.id, found.object, found.owned_by) == ("held", "model", "shepherd")
    assert found.created > 0
    assert found.model_extra == {
        "max_model_len": 2048,
        "meta": {"n_ctx": 2048},
        "status": {"value": "loaded"},
        "capabilities": ["completion"],
    }


def test_health_tells_a_dead_backend(server: RunningServer[HeldBackend]) -> None:
    url = f"{server.url}/health"
    well = httpx.get(url, timeout=PATIENCE)
    server.backend.failed = True
    dead = httpx.get(url, timeout=PATIENCE)
    names = {"backend": "held", "model": "held", "model_state": "loaded"}
    body = {"status": "ok", "backend_connected": True, **names}
    assert (well.status_code, well.json()) == (200, body)
    assert (dead.status_code, dead.json()) == (
        503,
        body | {"status": "error", "backend_connected": False},
    )


def test_health_answers_while_the_model_works(server: RunningServer[HeldBackend]) -> None:
    server.backend.hold_prefill = True
    with server.connect_and_post({"messages": [{"role": "user", "content": "hi"}]}):
        server.until(lambda: server.backend.working == 1)
        assert httpx.get(f"{server.url}/health", timeout=PATIENCE).status_code == 200
