"""Log probabilities from OpenAI's format."""

from typing import cast

from shepherd.backends.api.coerce import as_objects, as_text
from shepherd.logprobs import TokenLogprob, TokenProbability
from shepherd.messages import JsonObject


def token_logprobs(logprobs: JsonObject) -> tuple[TokenLogprob, ...]:
    """The tokens of a `logprobs` object; () if there are none."""
    return tuple(token_logprob(item) for item in as_objects(logprobs.get("content")))


def token_logprob(item: JsonObject) -> TokenLogprob:
    """One token with its alternatives."""
    top = tuple(
        TokenProbability(_piece(other), _probability(other))
        for other in as_objects(item.get("top_logprobs"))
    )
    return TokenLogprob(_piece(item), _probability(item), top)


def _piece(item: JsonObject) -> bytes:
    """The token's bytes; without a list of them, those of its text."""
    listed = item.get("bytes")
    if isinstance(listed, list):
        values = cast(list[object], listed)
        if all(isinstance(value, int) and 0 <= value < 256 for value in values):
            return bytes(cast(list[int], values))
    return as_text(item.get("token")).encode("utf-8", "replace")


def _probability(item: JsonObject) -> float:
    value: object = item.get("logprob")
    return float(value) if isinstance(value, int | float) else float("-inf")
