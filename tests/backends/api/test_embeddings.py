"""Embeddings of providers, in each API that has them."""

from typing import Any

import pytest

from shepherd.backends.api.adapter import Adapter
from shepherd.backends.api.anthropic.adapter import AnthropicAdapter
from shepherd.backends.api.gemini import GeminiAdapter
from shepherd.backends.api.ollama import OllamaAdapter
from shepherd.backends.api.openai.chat_adapter import OpenAIChatAdapter
from shepherd.backends.api.openai.responses import OpenAIResponsesAdapter
from shepherd.backends.embedding import EmbeddingInput
from shepherd.errors import BackendError, InvalidRequestError
from tests.backends.api.support import backend_at
from tests.backends.api.upstream import Reply, Upstream

BOTH = EmbeddingInput([("a ", "dog"), ("cat",)], dimensions=2, truncate=True)
OPENAI: dict[str, Any] = {
    "data": [
        {"index": 1, "embedding": [0.0, 1.0]},
        {"index": 0, "embedding": [1.0, 0.0]},
    ],
    "usage": {"prompt_tokens": 5, "total_tokens": 5},
}
OLLAMA: dict[str, Any] = {"embeddings": [[1.0, 0.0], [0.0, 1.0]], "prompt_eval_count": 5}
GEMINI: dict[str, Any] = {"embeddings": [{"values": [2.0, 0.0]}, {"values": [0.0, 0.5]}]}
OPENAI_BODY: dict[str, Any] = {"model": "m1", "input": ["a dog", "cat"], "dimensions": 2}
CASES: list[tuple[Adapter, str, dict[str, Any], dict[str, Any], int]] = [
    (OpenAIChatAdapter(), "/embeddings", OPENAI_BODY, OPENAI, 5),
    (OpenAIResponsesAdapter(), "/embeddings", OPENAI_BODY, OPENAI, 5),
    (OllamaAdapter(), "/api/embed", OPENAI_BODY | {"truncate": True}, OLLAMA, 5),
    (
        GeminiAdapter(),
        "/v1beta/models/m1:batchEmbedContents",
        {
            "requests": [
                {
                    "model": "models/m1",
                    "content": {"parts": [{"text": text}]},
                    "outputDimensionality": 2,
                }
                for text in ("a dog", "cat")
            ]
        },
        GEMINI,
        2,
    ),
]


@pytest.mark.parametrize(("adapter", "path", "body", "answer", "tokens"), CASES)
async def test_vectors_come_from_the_provider(
    adapter: Adapter, path: str, body: dict[str, Any], answer: dict[str, Any], tokens: int
) -> None:
    async with Upstream([Reply(answer)]) as up:
        backend = backend_at(up, adapter)
        assert backend.info.embedder is not None
        result = await backend.info.embedder.embed(BOTH)
        await backend.aclose()
    [received] = up.requests
    assert (received.path, received.json) == (path, body)
    assert [list(vector) for vector in result.vectors] == [[1.0, 0.0], [0.0, 1.0]]
    assert result.tokens == tokens


async def test_tokens_go_only_where_they_are_understood() -> None:
    async with Upstream([Reply({"data": [{"index": 0, "embedding": [1.0]}]})]) as up:
        backend = backend_at(up, OpenAIChatAdapter())
        assert backend.info.embedder is not None
        result = await backend.info.embedder.embed(EmbeddingInput([(1, 2, 3)]))
        assert up.requests[0].json["input"] == [[1, 2, 3]]
        assert result.tokens == 3
        with pytest.raises(InvalidRequestError):
            await backend.info.embedder.embed(EmbeddingInput([(1, "dog")]))
        await backend.aclose()
        for adapter in (OllamaAdapter(), GeminiAdapter()):
            other = backend_at(up, adapter)
            assert other.info.embedder is not None
            with pytest.raises(InvalidRequestError, match="texts only"):
                await other.info.embedder.embed(EmbeddingInput([(1, 2)]))
            await other.aclose()


async def test_many_inputs_are_divided() -> None:
    def answer(received: Any) -> Reply:
        texts = received.json["input"]
        return Reply({"embeddings": [[float(text)] for text in texts], "prompt_eval_count": 1})

    async with Upstream(answer) as up:
        backend = backend_at(up, OllamaAdapter())
        assert backend.info.embedder is not None
        result = await backend.info.embedder.embed(EmbeddingInput([(str(i),) for i in range(300)]))
        await backend.aclose()
    assert [vector[0] for vector in result.vectors] == list(range(300))
    assert result.tokens == len(up.requests) == 3


BROKEN: list[dict[str, Any]] = [
    {},
    {"data": [{"index": 0, "embedding": [1.0]}]},
    {"data": [{"index": 0, "embedding": "AAAA"}, {"index": 1, "embedding": [1.0]}]},
    {"data": [{"index": 0, "embedding": [1e300]}, {"index": 1, "embedding": [None]}]},
    {"data": [{"index": 0, "embedding": [10**400]}, {"index": 1, "embedding": [1.0]}]},
]


@pytest.mark.parametrize("body", BROKEN)
async def test_an_answer_without_vectors_is_an_error(body: dict[str, Any]) -> None:
    async with Upstream([Reply(body)]) as up:
        backend = backend_at(up, OpenAIChatAdapter())
        assert backend.info.embedder is not None
        with pytest.raises(BackendError, match="2 inputs"):
            await backend.info.embedder.embed(BOTH)
        await backend.aclose()


async def test_documents_are_ranked_by_the_provider() -> None:
    results = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": -0.5}]
    bodies = [{"results": results, "usage": {"total_tokens": 9}}, {"results": results[:1]}]
    async with Upstream([Reply(body) for body in bodies]) as up:
        backend = backend_at(up, OpenAIChatAdapter())
        assert backend.info.embedder is not None
        ranking = await backend.info.embedder.rank("dog", ["a", "b"])
        with pytest.raises(BackendError, match="score"):
            await backend.info.embedder.rank("dog", ["a", "b"])
        await backend.aclose()
        assert up.requests[0].json == {"model": "m1", "query": "dog", "documents": ["a", "b"]}
        assert (list(ranking.scores), ranking.tokens) == ([-0.5, 0.9], 9)
        other = backend_at(up, OllamaAdapter())
        assert other.info.embedder is not None
        with pytest.raises(InvalidRequestError, match="rerank"):
            await other.info.embedder.rank("dog", ["a"])
        await other.aclose()


async def test_an_api_without_embeddings_has_no_embedder() -> None:
    async with Upstream() as up:
        backend = backend_at(up, AnthropicAdapter())
        assert backend.info.embedder is None
        await backend.aclose()
