"""POST /api/pull: models from a hub over real HTTP, for those who may fill the disk."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest
from msgspec.structs import replace

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.access.key import KeyScope
from shepherd.server.access.keys import KeyStore
from shepherd.server.settings import ServerSettings
from tests.cli.hub import Hub, near_hub
from tests.patience import PATIENCE
from tests.server.harness import RunningServer, Scripted
from tests.server.ollama.harness import client_of

DATA = random.Random(3).randbytes(4_000_000)
NAME = "hf.co/team/model-GGUF:latest"


@pytest.fixture
def near() -> Iterator[Hub]:
    with near_hub({"model-Q4_K_M.gguf": DATA}) as running:
        yield running


def serving(models: Path, keys: KeyStore | None = None, *, pull: bool = True) -> Scripted:
    settings = ServerSettings(port=0, pull=pull, models_dir=models)
    return RunningServer(ScriptedBackend(parse_script("text: hi")), settings, keys)


def test_ollamas_client_sees_the_progress(tmp_path: Path, near: Hub) -> None:
    with serving(tmp_path) as server, client_of(server) as client:
        steps = list(client.pull(NAME, stream=True))
        again = client.pull(NAME)
    assert steps[0].status == "pulling manifest"
    assert steps[-1].status == again.status == "success"
    files = [step for step in steps if step.digest]
    assert {step.total for step in files} == {len(DATA)}
    assert files[-1].completed == len(DATA)
    assert (tmp_path / "model-GGUF" / "model-Q4_K_M.gguf").read_bytes() == DATA
    assert (tmp_path / "model-GGUF" / "LICENSE").exists()


def test_a_failure_is_told(tmp_path: Path, near: Hub) -> None:
    near.lies = True
    with serving(tmp_path) as server, client_of(server) as client:
        for name, why in ((NAME, "checksum"), ("team/none", "no model team/none"), ("x", "OWNER")):
            with pytest.raises(ollama.ResponseError, match=why):
                client.pull(name)
            with pytest.raises(ollama.ResponseError, match=why):
                list(client.pull(name, stream=True))
    assert not list(tmp_path.rglob("*.gguf"))


def status(url: str, key: str = "") -> int:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"model": NAME, "stream": False}
    return httpx.post(f"{url}/api/pull", json=body, headers=headers, timeout=PATIENCE).status_code


def test_only_who_may_fill_the_disk_pulls(tmp_path: Path, near: Hub) -> None:
    """Without keys the setting decides, with keys their scope does, whatever the setting says."""
    with serving(tmp_path / "models", pull=False) as server:
        assert status(server.url) == 403
    with RunningServer(ScriptedBackend(parse_script("text: hi"))) as server:
        assert status(server.url) == 403
    for pull in (True, False):
        store, models = KeyStore(tmp_path / f"keys{pull}.json"), tmp_path / f"models{pull}"
        secrets = {
            scope: store.add(scope.value, partial(replace, scopes=frozenset({scope})))
            for scope in KeyScope
        }
        with serving(models, store, pull=pull) as server:
            assert status(server.url) == 401
            for scope in set(KeyScope) - {KeyScope.ADMIN}:
                assert status(server.url, secrets[scope]) == 403
            assert not models.exists()
            assert status(server.url, secrets[KeyScope.ADMIN]) == 200
            assert list(models.rglob("*.gguf"))


def test_loading_tells_of_downloads_and_a_hang_up_ends_one(tmp_path: Path, near: Hub) -> None:
    near.cut, near.stalls = len(DATA) // 2, True
    with serving(tmp_path) as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as http:

        def downloads() -> list[dict[str, Any]]:
            return http.get("/models/loading").json()["downloading"]

        assert downloads() == []
        body = {"model": NAME}
        with http.stream("POST", "/api/pull", json=body) as response:
            assert response.status_code == 200
            server.until(
                lambda: any(s.completed for s in server.app.context.downloads.running.values())
            )
            (step,) = downloads()
            assert (step["model"], step["total"]) == ("hf.co/team/model-GGUF", len(DATA))
            assert 0 < step["completed"] < len(DATA)
            with httpx.Client(base_url=server.url, timeout=PATIENCE) as other:
                assert other.post("/api/pull", json=body).status_code == 409
        near.stalls = False
        near.go_on.set()
        server.until(lambda: not server.app.context.downloads.running)
        with client_of(server) as client:
            list(client.pull(NAME, stream=True))
    assert (tmp_path / "model-GGUF" / "model-Q4_K_M.gguf").read_bytes() == DATA
