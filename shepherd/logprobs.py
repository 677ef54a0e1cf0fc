"""The log probabilities of an answer's tokens."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TokenProbability:
    """A token's bytes, which may be a part of a character, and its natural log probability.

    `id` is the token's number, -1 if it is unknown.
    """

    piece: bytes
    logprob: float
    id: int = field(default=-1, kw_only=True, compare=False)

    @property
    def text(self) -> str:
        """The bytes as text; a part of a character becomes the replacement character."""
        return self.piece.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class TokenLogprob(TokenProbability):
    """A token of an answer, and the most likely tokens at its position, best first."""

    top: tuple[TokenProbability, ...] = ()
