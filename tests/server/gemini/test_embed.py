"""Vectors for Google's client."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google.genai import errors, types

from tests.patience import PATIENCE
from tests.server.gemini.harness import google
from tests.server.harness import RunningServer, Scripted, scripted

TEXTS = ["The dog sleeps.", "A cat"]


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with scripted("context: 20\ntext: hi") as running:
        yield running


def post(server: RunningServer[Any], method: str, body: object) -> httpx.Response:
    return httpx.post(f"{server.url}/v1beta/models/m:{method}", json=body, timeout=PATIENCE)


def plain(server: RunningServer[Any], **body: Any) -> list[list[float]]:
    answer = httpx.post(f"{server.url}/v1/embeddings", json=body, timeout=PATIENCE).json()
    return [item["embedding"] for item in answer["data"]]


@pytest.mark.parametrize("version", ["v1", "v1beta"])
def test_the_client_gets_the_vectors_of_the_other_apis(server: Scripted, version: str) -> None:
    with google(server, version) as client:
        models: Any = client.models
        several = models.embed_content(model="m", contents=TEXTS)
        short = models.embed_content(
            model="m",
            contents=TEXTS[0],
            config=types.EmbedContentConfig(output_dimensionality=32),
        )
    assert [e.values for e in several.embeddings] == plain(server, input=TEXTS)
    assert [e.values for e in short.embeddings] == plain(server, input=TEXTS[0], dimensions=32)


def test_one_content_has_one_vector(server: Scripted) -> None:
    parts = [{"text": "The dog "}, {"text": "sleeps."}]
    answer = post(server, "embedContent", {"content": {"parts": parts}}).json()
    assert [answer["embedding"]["values"]] == plain(server, input=TEXTS[0])
    assert answer["usageMetadata"]["promptTokenCount"] > 0
    assert post(server, "batchEmbedContents", {"requests": []}).json() == {"embeddings": []}


CONTENT = {"content": {"parts": [{"text": "a"}]}}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "content"),
        (CONTENT | {"taskType": "RETRIEVAL_QUERY"}, "taskType"),
        (CONTENT | {"task_type": "RETRIEVAL_QUERY"}, "task_type"),
        (CONTENT | {"title": "A"}, "title"),
        (CONTENT | {"outputDimensionality": True}, "outputDimensionality"),
        ({"content": {"parts": []}}, "content"),
        ({"content": {"parts": [{"functionCall": {"name": "f"}}]}}, "content"),
        ({"content": {"parts": [{"text": "word " * 50}]}}, "maximum number of tokens"),
    ],
)
def test_what_would_change_a_vector_is_refused_by_name(
    server: Scripted, body: object, named: str
) -> None:
    refused = post(server, "embedContent", body)
    assert refused.status_code == 400
    assert named in refused.json()["error"]["message"]
    assert refused.json()["error"]["status"] == "INVALID_ARGUMENT"


def test_texts_are_shortened_only_if_the_request_says_so(server: Scripted) -> None:
    body = {"content": {"parts": [{"text": "word " * 50}]}, "autoTruncate": True}
    assert post(server, "embedContent", body).status_code == 200
    many = {"requests": [CONTENT, CONTENT | {"outputDimensionality": 8}]}
    refused = post(server, "batchEmbedContents", many)
    assert refused.status_code == 400
    assert "outputDimensionality" in refused.text


def test_a_wrong_size_is_googles_error(server: Scripted) -> None:
    with google(server) as client:
        models: Any = client.models
        with pytest.raises(errors.ClientError) as caught:
            models.embed_content(model="m", contents="a", config={"output_dimensionality": 65_000})
    assert caught.value.code == 400
