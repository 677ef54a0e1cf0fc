"""Vectors and scores are those of llama.cpp's own server."""

import math
from operator import mul
from pathlib import Path
from typing import Any

import gguf
import httpx
import pytest

from shepherd.backends.embedding import EmbeddingInput
from shepherd.backends.llamacpp.embedding_backend import LlamaEmbeddingBackend
from shepherd.backends.llamacpp.embedding_engine import Pooling
from tests.backends.llamacpp.embedders import CONTEXT, write_bert
from tests.backends.llamacpp.support import settings
from tests.patience import PATIENCE
from tests.upstreams.llama_servers import embedding_server

INPUTS: list[Any] = [
    "the dog sleeps there",
    "",
    "Cats, [SEP] dogs & 100 unknown: 日本 é",
    "on " * (CONTEXT - 2),
    [1, 6, 7, 2],
    [8, "the house", 9],
]
SAME = 0.9999
"""The least cosine of vectors that are equal but for rounding."""


def post(url: str, path: str, body: dict[str, Any]) -> Any:
    response = httpx.post(url + path, json=body, timeout=PATIENCE)
    response.raise_for_status()
    return response.json()


@pytest.mark.parametrize("pooling", [Pooling.MEAN, Pooling.CLS, Pooling.LAST])
async def test_vectors(pooling: Pooling, tmp_path: Path) -> None:
    model = write_bert(tmp_path / "bert.gguf", gguf.PoolingType(pooling))
    with embedding_server(model, pooling, CONTEXT) as url:
        theirs = post(url, "/v1/embeddings", {"input": INPUTS})
    backend = await LlamaEmbeddingBackend.load(model, settings(), pooling)
    inputs = [(item,) if isinstance(item, str) else item for item in INPUTS]
    ours = await backend.embedder.embed(EmbeddingInput(inputs))
    await backend.aclose()
    assert ours.tokens == theirs["usage"]["prompt_tokens"]
    for vector, item in zip(ours.vectors, theirs["data"], strict=True):
        assert sum(map(mul, vector, item["embedding"])) > SAME
        assert math.hypot(*item["embedding"]) == pytest.approx(1)


@pytest.mark.parametrize("template", ["", "[CLS]{query}? the: {document}[SEP]"])
async def test_scores(template: str, tmp_path: Path) -> None:
    documents = ["the cat sleeps", "", "there is {query}", "the dog " * 30]
    model = write_bert(tmp_path / "bert.gguf", gguf.PoolingType.RANK, template=template)
    with embedding_server(model, Pooling.RANK, CONTEXT) as url:
        theirs = post(url, "/v1/rerank", {"query": "the dog", "documents": documents})
    backend = await LlamaEmbeddingBackend.load(model, settings(), Pooling.RANK)
    ours = await backend.embedder.rank("the dog", documents)
    await backend.aclose()
    assert ours.tokens == theirs["usage"]["prompt_tokens"]
    expected = {item["index"]: item["relevance_score"] for item in theirs["results"]}
    assert dict(enumerate(ours.scores)) == pytest.approx(expected, abs=0.01)
