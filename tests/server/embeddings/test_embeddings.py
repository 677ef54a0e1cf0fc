"""Vectors over HTTP, for OpenAI's client and llama.cpp's."""

import base64
import json
import math
from array import array
from collections.abc import Iterator
from functools import partial
from operator import mul
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import CreateEmbeddingResponse

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from tests.patience import PATIENCE
from tests.server.harness import RunningServer, Scripted, scripted
from tests.server.held import HeldBackend

TEXTS = ["The dog sleeps.", "A cat", "The dog sleeps."]


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with scripted("context: 100\ntext: hi") as running:
        yield running


def post(server: RunningServer[Any], path: str, body: object) -> httpx.Response:
    return httpx.post(server.url + path, json=body, timeout=PATIENCE)


def vectors(response: httpx.Response) -> list[list[float]]:
    assert response.status_code == 200, response.text
    answer = CreateEmbeddingResponse.model_validate(response.json())
    assert [item.index for item in answer.data] == list(range(len(answer.data)))
    return [item.embedding for item in answer.data]


def test_the_sdk_gets_the_same_vectors_in_both_formats(server: Scripted) -> None:
    with server.client() as client:
        packed = client.embeddings.create(model="text-embedding-3-small", input=TEXTS)
        plain = client.embeddings.create(model="any", input=TEXTS, encoding_format="float")
    assert packed.model == "text-embedding-3-small"
    assert packed.usage == plain.usage
    assert plain.usage.prompt_tokens == plain.usage.total_tokens == 4 + 2 + 4
    for ours, theirs in zip(packed.data, plain.data, strict=True):
        assert ours.embedding == pytest.approx(theirs.embedding, abs=1e-7)
        assert math.hypot(*theirs.embedding) == pytest.approx(1)
    first, second, third = (item.embedding for item in plain.data)
    assert first == third != second


def test_base64_has_32_bit_numbers(server: Scripted) -> None:
    body = {"input": "a dog", "encoding_format": "base64"}
    packed = post(server, "/v1/embeddings", body).json()["data"][0]["embedding"]
    numbers = array("f", base64.b64decode(packed))
    [plain] = vectors(post(server, "/v1/embeddings", {"input": "a dog"}))
    assert list(numbers) == pytest.approx(plain, abs=1e-7)


def test_dimensions_shorten_the_vectors(server: Scripted) -> None:
    with server.client() as client:
        create = partial(client.embeddings.create, model="m", encoding_format="float")
        [whole] = create(input="a b c d").data
        [short] = create(input="a b c d", dimensions=32).data
        with pytest.raises(openai.BadRequestError) as refused:
            create(input="a", dimensions=65)
    assert len(short.embedding) == 32
    assert math.hypot(*short.embedding) == pytest.approx(1)
    length = math.hypot(*whole.embedding[:32])
    assert short.embedding == pytest.approx([value / length for value in whole.embedding[:32]])
    assert refused.value.param == "dimensions"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": "a", "dimensions": None}),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "top_n": None}),
    ],
)
def test_null_is_no_limit(server: Scripted, path: str, body: object) -> None:
    assert post(server, path, body).status_code == 200


SAME: list[tuple[object, object]] = [
    ("a dog", ["a dog"]),
    ([1, 2, 3], [[1, 2, 3]]),
    ([1, "dog", 3], [[1, "dog", 3]]),
    ({"prompt_string": "a dog"}, "a dog"),
    ([{"content": [{"type": "text", "text": "a "}, {"type": "text", "text": "dog"}]}], "a dog"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_an_input_has_several_forms(server: Scripted, one: object, other: object) -> None:
    first = vectors(post(server, "/v1/embeddings", {"input": one}))
    assert first == vectors(post(server, "/v1/embeddings", {"input": other}))
    assert len(first) == 1


def test_many_inputs_give_what_each_gives_alone(server: Scripted) -> None:
    inputs: list[Any] = ["a", [1, 2], "", ["x", 7], "a"]
    together = vectors(post(server, "/v1/embeddings", {"input": inputs}))
    alone = [vectors(post(server, "/v1/embeddings", {"input": [i]}))[0] for i in inputs]
    assert together == alone


def test_llama_cpps_paths_have_its_shape(server: Scripted) -> None:
    [vector] = vectors(post(server, "/v1/embeddings", {"input": "a dog"}))
    expected = [{"index": 0, "embedding": [vector]}]
    assert post(server, "/embedding", {"content": "a dog"}).json() == expected
    assert post(server, "/embedding", {"input": "a dog", "model": "m"}).json() == expected
    assert post(server, "/embeddings", {"input": "a dog"}).json() == expected
    assert post(server, "/v1/embeddings", {"content": "a dog"}).json() == expected
    assert vectors(post(server, "/embeddings", {"input": "a dog", "model": "m"})) == [vector]
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
        [item] = client.embeddings.create(model="m", input="a dog").data
    assert item.embedding == pytest.approx(vector, abs=1e-7)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embeddings"])
def test_a_long_input_is_refused_with_both_numbers(server: Scripted, path: str) -> None:
    response = post(server, path, {"input": ["short", "dog " * 101], "model": "m"})
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (101, 100)
    assert "100 tokens" in error["message"]
    assert "101 tokens" in error["message"]
    assert vectors(post(server, path, {"input": "dog " * 100, "model": "m"}))


WRONG: list[tuple[object, str | None]] = [
    ({}, "input"),
    ({"input": []}, "input"),
    ({"input": [[]]}, "input.0"),
    ({"input": None}, "input"),
    ({"input": [True]}, "input.0"),
    ({"input": 3}, "input"),
    ({"input": ["a"] * 2049}, "input"),
    ({"input": [{"content": "a"}]}, "input.0"),
    ({"input": [{"content": [{"type": "image_url"}]}]}, "input.0"),
    ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ({"input": "a", "dimensions": 0}, "dimensions"),
    ({"input": "a", "dimensions": True}, "dimensions"),
    ({"input": "a", "embd_normalize": -1}, None),
    ({"input": "a", "input_type": "query"}, "input_type"),
    ({"input": "a", "late_chunking": True}, "late_chunking"),
    ({"input": "a", "truncate_prompt_tokens": 5}, "truncate_prompt_tokens"),
]


@pytest.mark.parametrize(("body", "param"), WRONG)
def test_what_is_wrong_is_named(server: Scripted, body: object, param: str | None) -> None:
    response = post(server, "/v1/embeddings", body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["content", "text", "type", "prompt_string"]), inner)
    ),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.sampled_from(
        ["input", "content", "model", "encoding_format", "dimensions", "embd_normalize", "query",
         "documents", "texts", "top_n", "return_documents", "return_text", "user", "truncate"]
    ),
    JSON,
)  # fmt: skip
PATHS = ["/v1/embeddings", "/embedding", "/embeddings", "/v1/rerank", "/rerank"]


@given(path=st.sampled_from(PATHS), body=FIELDS)
def test_no_request_fails_the_server(server: Scripted, path: str, body: dict[str, object]) -> None:
    data = json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    response = httpx.post(server.url + path, content=data, headers=headers, timeout=PATIENCE)
    assert response.status_code in (200, 400)
    if response.status_code == 400:
        assert response.json()["error"]["message"]


def test_a_model_without_embeddings_says_so() -> None:
    with RunningServer(HeldBackend()) as server:
        for path in ("/v1/embeddings", "/embedding"):
            response = post(server, path, {"input": "a"})
            error = response.json()["error"]
            assert response.status_code == 400
            assert (error["code"], error["param"]) == ("unsupported_model", "model")
            assert "held" in error["message"]


def test_words_make_texts_similar() -> None:
    backend = ScriptedBackend(parse_script("text: hi"))
    with RunningServer(backend) as server:
        inputs = ["the dog sleeps", "a dog sleeps", "taxes rise"]
        dog, other, far = vectors(post(server, "/v1/embeddings", {"input": inputs}))
    assert sum(map(mul, dog, other)) > 0.5 > sum(map(mul, dog, far))
