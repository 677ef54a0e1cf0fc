"""How likely a model found the tokens of an answer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenProbability:
    """A token's bytes, which may be a part of a character, and its natural log probability."""

    piece: bytes
    logprob: float

    @property
    def text(self) -> str:
        """The bytes as text; a part of a character becomes the replacement character."""
        return self.piece.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class TokenLogprob(TokenProbability):
    """A token of an answer, and the likeliest tokens at its place, best first."""

    top: tuple[TokenProbability, ...] = ()
