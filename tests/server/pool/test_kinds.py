"""What each model can do, in the lists of all APIs; and lists for keys that are limited."""

import asyncio
from collections.abc import Iterator
from typing import Any

import gguf
import httpx
import pytest
from msgspec.structs import replace

from shepherd.server.access.keys import KeyStore
from shepherd.server.pool.pool import ModelPool
from tests.backends.llamacpp.embedders import write_bert
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer
from tests.server.pool.places import Home

KINDS = {"pup": "completion", "bert": "embedding", "ranker": "rerank", "gpt-4o": "embedding"}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyStore:
    return KeyStore(tmp_path_factory.mktemp("keys") / "keys.json")


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, keys: KeyStore
) -> Iterator[RunningServer[ModelPool]]:
    home = Home(tmp_path_factory.mktemp("kinds") / "home")
    write_bert(home.models / "bert.gguf")
    write_bert(home.models / "ranker.gguf", gguf.PoolingType.RANK)
    loop = asyncio.new_event_loop()
    config = home.config(aliases={"gpt-4o": "bert"})
    pool = loop.run_until_complete(home.open(config))
    with RunningServer(pool, keys=keys, loop=loop) as running:
        yield running


def get(server: RunningServer[ModelPool], key: str, path: str, **headers: str) -> Any:
    sent = {"Authorization": f"Bearer {key}", **headers}
    return httpx.get(server.url + path, headers=sent, timeout=PATIENCE).json()


def test_lists_tell_what_a_model_makes(server: RunningServer[ModelPool], keys: KeyStore) -> None:
    key = keys.add("all")
    body = get(server, key, "/v1/models")
    for entries, name in ((body["data"], "id"), (body["models"], "name")):
        listed = {entry[name]: entry["capabilities"] for entry in entries}
        assert {name: listed[name] for name in KINDS} == {k: [v] for k, v in KINDS.items()}
    google = {m["baseModelId"]: m for m in get(server, key, "/v1beta/models")["models"]}
    assert google["bert"]["supportedGenerationMethods"] == ["embedContent", "batchEmbedContents"]
    assert "generateContent" in google["pup"]["supportedGenerationMethods"]
    ours = get(server, key, "/v1/models", **{"anthropic-version": "1"})["data"]
    assert {m["id"]: m["capabilities"] for m in ours}["bert"] is None
    shown = httpx.post(
        f"{server.url}/api/show",
        json={"model": "bert"},
        headers={"Authorization": f"Bearer {key}"},
        timeout=PATIENCE,
    )
    assert shown.json()["capabilities"] == ["embedding"]


def test_a_key_learns_of_no_other_model(server: RunningServer[ModelPool], keys: KeyStore) -> None:
    key = keys.add("few", lambda key: replace(key, models=("bert", "gpt*")))
    names = [model["id"] for model in get(server, key, "/v1/models")["data"]]
    assert names == ["bert", "gpt-4o"]
    for path in ("/v1/models/pup", "/v1beta/models/pup"):
        assert get(server, key, path)["error"]["code"] in ("model_not_found", 404)
    for path, body in (
        (CHAT, {"model": "nothing", "messages": HI}),
        ("/api/show", {"model": "pup"}),
    ):
        headers = {"Authorization": f"Bearer {key}"}
        answer = httpx.post(server.url + path, json=body, headers=headers, timeout=PATIENCE)
        assert answer.status_code == 404
        assert "pup' and" not in answer.text
        assert "ranker" not in answer.text
    assert "'bert', 'gpt-4o'." in httpx.post(
        server.url + CHAT,
        json={"model": "nothing", "messages": HI},
        headers={"Authorization": f"Bearer {key}"},
        timeout=PATIENCE,
    ).text  # fmt: skip
