"""Vectors and rankings in the shapes of OpenAI, llama.cpp, Jina and Hugging Face."""

import sys
from array import array
from base64 import b64encode
from collections.abc import Iterable, Sequence

from shepherd.backends.embedding import Embeddings, Ranking
from shepherd.json_text import to_json
from shepherd.messages import JsonObject
from shepherd.server.embeddings.requests import EmbeddingBody, RerankBody
from shepherd.server.wire.embedding import json_array


def embeddings_json(result: Embeddings, body: EmbeddingBody, model: str) -> str:
    """OpenAI's list of vectors; slow for many of them."""
    usage = to_json(_usage(result.tokens))
    head = f'{{"object":"list","model":{to_json(model)},"usage":{usage},"data":'
    return f"{head}{json_array(_items(result.vectors, body))}}}"


def plain_json(result: Embeddings) -> str:
    """llama.cpp's list: vectors, each in a list of its own."""
    items = enumerate(result.vectors)
    return json_array({"index": index, "embedding": [list(vector)]} for index, vector in items)


def rerank_json(
    result: Ranking, body: RerankBody, documents: Sequence[str], model: str
) -> JsonObject | list[JsonObject]:
    """The documents by their scores, the best first, in the shape that the request has."""
    scores = result.scores
    order = sorted(range(len(scores)), key=lambda index: scores[index], reverse=True)
    order = order[: body.top_n]
    if body.documents is None:
        texts: list[JsonObject] = [{"index": i, "score": scores[i]} for i in order]
        for item in texts if body.return_text else ():
            item["text"] = documents[item["index"]]
        return texts
    results: list[JsonObject] = [{"index": i, "relevance_score": scores[i]} for i in order]
    for item in results if body.return_documents else ():
        item["document"] = {"text": documents[item["index"]]}
    return {
        "object": "list",
        "model": model,
        "usage": _usage(result.tokens),
        "results": results,
    }


def _items(vectors: Sequence[Sequence[float]], body: EmbeddingBody) -> Iterable[JsonObject]:
    for index, vector in enumerate(vectors):
        numbers = _base64(vector) if body.encoding_format == "base64" else list(vector)
        yield {"object": "embedding", "index": index, "embedding": numbers}


def _base64(vector: Sequence[float]) -> str:
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return b64encode(numbers.tobytes()).decode()


def _usage(tokens: int) -> JsonObject:
    return {"prompt_tokens": tokens, "total_tokens": tokens}
