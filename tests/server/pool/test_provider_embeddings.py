"""Embeddings and rerankings of a provider's other models."""

import asyncio
from pathlib import Path

import httpx
import pytest

from shepherd.conversation.build import backend_opener
from tests.patience import PATIENCE
from tests.server.harness import RunningServer
from tests.server.pool.places import PROVIDERS, Home


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": ["a dog", "a cat"]}),
        ("/v1/rerank", {"query": "dog", "documents": ["a cat", "the dog"]}),
        ("/api/embed", {"input": ["a dog"]}),
    ],
)
def test_the_model_is_the_requested_one(tmp_path: Path, path: str, body: dict[str, object]) -> None:
    behind = Home(tmp_path / "behind")
    loop = asyncio.new_event_loop()
    aliases = {"emb-3": "pup"}
    pool = loop.run_until_complete(behind.open(behind.config(aliases=aliases)))
    with RunningServer(pool, loop=loop) as upstream:
        home = Home(tmp_path / "home")
        providers = home.path / ".config" / "shepherd" / "providers.toml"
        text = PROVIDERS.replace("http://127.0.0.1:1/v1", f"{upstream.url}/v1")
        providers.write_text(text.replace('model = "gpt-4o"', 'model = "gpt-4o"\napi_key = "none"'))
        loop = asyncio.new_event_loop()
        config = home.config(name="pup")
        pool = loop.run_until_complete(home.open(config, backend_opener(home.book)))
        with RunningServer(pool, loop=loop) as server:
            for name, status in (("cloud/emb-3", 200), ("cloud", 400)):
                sent = {"model": name, **body}
                answer = httpx.post(server.url + path, json=sent, timeout=PATIENCE)
                assert answer.status_code == status, answer.text
                if status == 200:
                    assert answer.json()["model"] == name
