"""One sequence of a context, as it is in memory."""

from array import array
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

from shepherd.backends.llamacpp.cache.checkpoints import Checkpoints
from shepherd.backends.llamacpp.cache.prefixes import packed


@dataclass(slots=True, eq=False)
class Sequence:
    """`tokens` is exactly what is in memory; it changes by `append`, `cut`, `close` and `begin`.

    `marks` are the lengths at which a checkpoint is to be taken, `restored` is how many tokens
    came from host memory or disk for the present request. `last_used` counts uses of the whole
    pool, `used` is in seconds since the epoch. `bytes` is the state's size after the last request.
    """

    id: int
    tokens: list[int] = field(default_factory=list[int])
    marks: list[int] = field(default_factory=list[int])
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    busy: bool = False
    restored: int = 0
    last_used: int = 0
    used: float = 0.0
    bytes: int = 0
    _packed: "array[int]" = field(default_factory=lambda: packed(()))

    @property
    def packed(self) -> "array[int]":
        """The tokens for comparing; only what is new is packed."""
        if len(self._packed) < len(self.tokens):
            self._packed.extend(self.tokens[len(self._packed) :])
        return self._packed

    def append(self, tokens: Tokens[int]) -> None:
        """More was decoded."""
        self.tokens.extend(tokens)

    def cut(self, keep: int) -> None:
        """Only the first `keep` tokens are left, and their checkpoints."""
        del self.tokens[keep:], self._packed[keep:]
        self.checkpoints.cut(keep)

    def close(self, start: int, end: int) -> None:
        """What was behind `end` follows what was before `start`."""
        del self._packed[start:]
        del self.tokens[start:end]
        self.checkpoints.cut(start)

    def begin(self, tokens: Tokens[int], checkpoints: Checkpoints) -> None:
        """Other tokens are there now."""
        self.tokens = list(tokens)
        self._packed = packed(tokens)
        self.checkpoints = checkpoints.shared(len(self.tokens))
