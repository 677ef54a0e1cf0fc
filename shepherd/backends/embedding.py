"""Vectors of texts, and how well documents fit a query."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from operator import mul

from msgspec import Struct

from shepherd.errors import InvalidRequestError

Parts = Sequence[str | int]
"""One input: texts and numbers of tokens, in order."""


class EmbeddingInput(Struct, frozen=True):
    """What to make vectors of, one for each item of `inputs`.

    `dimensions` is the length of the vectors, 0 for the model's own. With `truncate`, an input
    that does not fit is cut off at its end; otherwise it is an error.
    """

    inputs: Sequence[Parts]
    dimensions: int = 0
    truncate: bool = False


class RankingInput(Struct, frozen=True):
    """Documents that are compared with a query."""

    query: str
    documents: Sequence[str]


class Embeddings(Struct, frozen=True):
    """Vectors of length 1, in the order of the inputs, and the number of tokens of all inputs."""

    vectors: Sequence[Sequence[float]]
    tokens: int


class Ranking(Struct, frozen=True):
    """A score for each document, higher for a better fit, and the number of tokens read."""

    scores: Sequence[float]
    tokens: int


class Embedder(ABC):
    """Makes vectors of texts, or compares texts; re-entrant.

    If the awaiting task is cancelled, it stops the work and releases all resources.
    """

    @abstractmethod
    async def embed(self, request: EmbeddingInput) -> Embeddings:
        """The vectors of the inputs.

        Raises ContextFullError for an input that does not fit, InvalidRequestError for one that
        the model can't read, and BusyError when the queue is full.
        """

    @abstractmethod
    async def rank(self, query: str, documents: Sequence[str]) -> Ranking:
        """The scores of `documents`; raises the errors of `embed`."""

    @abstractmethod
    async def count(self, request: EmbeddingInput | RankingInput) -> int:
        """The tokens that `embed` or `rank` would read, an estimate if a provider counts them.

        Raises the errors of `embed` for the inputs.
        """


def shortened(vector: Sequence[float], dimensions: int) -> Sequence[float]:
    """The first `dimensions` numbers of a vector, scaled to length 1; 0 means all of them.

    Raises InvalidRequestError if the vector is shorter.
    """
    check_dimensions(dimensions, len(vector))
    return normalised(vector[:dimensions] if dimensions else vector)


def check_dimensions(dimensions: int, width: int) -> None:
    """Raise InvalidRequestError if vectors of `width` numbers can't have `dimensions`."""
    if dimensions > width:
        raise InvalidRequestError(
            f"dimensions is {dimensions}, but the model's vectors have {width} numbers",
            "dimensions",
        )


def normalised(vector: Sequence[float]) -> Sequence[float]:
    """The vector scaled to length 1; one of zeros stays as it is."""
    length = math.sqrt(sum(map(mul, vector, vector)))
    return [value / length for value in vector] if length else vector


def plain_texts(inputs: Sequence[Parts]) -> list[str]:
    """The inputs as texts; raises InvalidRequestError for numbers of tokens."""
    texts: list[str] = []
    for parts in inputs:
        if not all(isinstance(part, str) for part in parts):
            message = "The provider of this model takes texts only, not numbers of tokens."
            raise InvalidRequestError(message, "input")
        texts.append("".join(str(part) for part in parts))
    return texts
