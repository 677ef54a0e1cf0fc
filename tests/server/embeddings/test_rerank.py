"""The order of documents over HTTP, in Jina's shape and in Hugging Face's."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.patience import PATIENCE
from tests.server.harness import Scripted, scripted

QUERY = "where does the dog sleep"
DOCUMENTS = ["taxes rise", "the dog likes to sleep there", "the cat"]
BEST_FIRST = [1, 2, 0]
PATHS = ["/v1/rerank", "/rerank", "/v1/reranking", "/reranking"]


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with scripted("context: 100\ntext: hi") as running:
        yield running


def post(server: Scripted, body: dict[str, Any], path: str = "/v1/rerank") -> httpx.Response:
    body = {"query": QUERY, **body}
    return httpx.post(server.url + path, json=body, timeout=PATIENCE)


@pytest.mark.parametrize("path", PATHS)
def test_the_best_documents_come_first(server: Scripted, path: str) -> None:
    answer = post(server, {"documents": DOCUMENTS, "model": "m"}, path).json()
    scores = [result["relevance_score"] for result in answer["results"]]
    assert [result["index"] for result in answer["results"]] == BEST_FIRST
    assert scores == sorted(scores, reverse=True)
    tokens = 3 * 5 + 2 + 6 + 2
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert answer["model"] == "m"
    assert all(result.keys() == {"index", "relevance_score"} for result in answer["results"])


def test_documents_come_back_where_they_are_wanted(server: Scripted) -> None:
    documents = [{"text": text} for text in DOCUMENTS]
    body = {"documents": documents, "return_documents": True, "top_n": 2}
    results = post(server, body).json()["results"]
    assert [result["document"]["text"] for result in results] == [
        DOCUMENTS[index] for index in BEST_FIRST[:2]
    ]


def test_texts_are_answered_in_their_own_shape(server: Scripted) -> None:
    answer = post(server, {"texts": DOCUMENTS, "return_text": True}, "/rerank").json()
    assert [item["index"] for item in answer] == BEST_FIRST
    assert [item["text"] for item in answer] == [DOCUMENTS[index] for index in BEST_FIRST]
    assert answer[0]["score"] > answer[-1]["score"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "documents"),
    ({"documents": []}, "documents"),
    ({"documents": [3]}, "documents.0"),
    ({"documents": [{"title": "a"}]}, "documents.0"),
    ({"documents": ["a"], "top_n": 0}, "top_n"),
    ({"documents": ["a"], "query": 3}, "query"),
    ({"documents": ["a"], "max_chunks_per_doc": 2}, "max_chunks_per_doc"),
    ({"documents": ["a", "dog " * 100]}, "documents"),
    ({"texts": ["dog " * 100]}, "texts"),
]


@pytest.mark.parametrize(("body", "param"), WRONG)
def test_what_is_wrong_is_named(server: Scripted, body: dict[str, Any], param: str) -> None:
    response = post(server, body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_an_error_has_llama_cpps_type_without_v1(server: Scripted) -> None:
    error = post(server, {"documents": ["dog " * 100]}, "/rerank").json()["error"]
    assert error["type"] == "exceed_context_size_error"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (105, 100)
