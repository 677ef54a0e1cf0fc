"""Vectors for Ollama's own client."""

import math
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest

from tests.patience import PATIENCE
from tests.server.harness import RunningServer, Scripted, scripted
from tests.server.held import HeldBackend
from tests.server.ollama.harness import client_of

LONG = "dog " * 101


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with scripted("context: 100\ntext: hi") as running:
        yield running


def post(server: RunningServer[Any], path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(server.url + path, json={"model": "m", **body}, timeout=PATIENCE)


def test_the_client_gets_vectors(server: Scripted) -> None:
    with client_of(server) as client:
        answer: ollama.EmbedResponse = client.embed(model="m:latest", input=["a dog", "cat"])
        one: ollama.EmbedResponse = client.embed(model="m", input="a dog")
        short: ollama.EmbedResponse = client.embed(model="m", input="a dog", dimensions=8)
        older: ollama.EmbeddingsResponse = client.embeddings(model="m", prompt="a dog")
    assert answer.model == "m:latest"
    assert answer.prompt_eval_count == 3
    assert answer.total_duration is not None
    first, second = answer.embeddings
    assert math.hypot(*first) == pytest.approx(1)
    assert first != second
    assert list(one.embeddings) == [first]
    assert older.embedding == first
    assert len(short.embeddings[0]) == 8


def test_long_texts_are_cut_unless_that_is_refused(server: Scripted) -> None:
    cut = post(server, "/api/embed", {"input": LONG}).json()
    assert cut["prompt_eval_count"] == 100
    assert post(server, "/api/embeddings", {"prompt": LONG}).status_code == 200
    refused = post(server, "/api/embed", {"input": LONG, "truncate": False})
    assert refused.status_code == 400
    assert "101 tokens" in refused.json()["error"]


def test_nothing_to_embed_only_loads(server: Scripted) -> None:
    assert post(server, "/api/embed", {}).json()["embeddings"] == []
    assert post(server, "/api/embeddings", {"prompt": ""}).json() == {"embedding": []}


@pytest.mark.parametrize(
    "body", [{"input": 3}, {"input": [3]}, {"input": [[1]]}, {"dimensions": True}, {"model": ""}]
)
def test_what_is_wrong_is_refused(server: Scripted, body: dict[str, Any]) -> None:
    response = post(server, "/api/embed", body)
    assert response.status_code == 400
    assert response.json()["error"]


def test_a_model_without_embeddings_says_so() -> None:
    with RunningServer(HeldBackend()) as server:
        response = post(server, "/api/embed", {"input": "a"})
    assert response.status_code == 400
    assert "no embeddings" in response.json()["error"]
