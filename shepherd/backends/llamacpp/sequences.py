"""The token-exact mirror of what llama.cpp holds in memory, sequence by sequence."""

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

from shepherd.backends.llamacpp.context import NativeContext, Span
from shepherd.errors import BackendError

REPLACEABLE = 32
"""A sequence may lose this many tokens without being worth a copy."""

_BLOCK = 1024


@dataclass(slots=True, eq=False)
class Sequence:
    """One sequence of the context; `tokens` is exactly what is in memory for it."""

    id: int
    tokens: list[int] = field(default_factory=list[int])
    busy: bool = False
    last_used: int = 0


class SequencePool:
    """All sequences of a context. Every change is checked against llama.cpp's own positions."""

    def __init__(self, context: NativeContext, window: int) -> None:
        self._context = context
        self._window = window
        self._sequences = [Sequence(i) for i in range(context.sequences)]
        self._clock = 0
        self.rolls_back = self._probe_rollback()

    @property
    def sequences(self) -> Tokens[Sequence]:
        return self._sequences

    def has_free(self) -> bool:
        """Whether a sequence is free."""
        return any(not sequence.busy for sequence in self._sequences)

    def acquire(self, prompt: Tokens[int]) -> Sequence:
        """A free sequence that holds as much of the prompt's beginning as can be had.

        At least the prompt's last token is left to be decoded. There must be a free one.
        """
        free = [sequence for sequence in self._sequences if not sequence.busy]
        chosen = self._choose(free, prompt)
        chosen.busy = True
        self._touch(chosen)
        return chosen

    def release(self, sequence: Sequence) -> None:
        """Give a sequence back; its tokens stay for whoever can use them."""
        sequence.busy = False
        self._touch(sequence)

    def span(self, sequence: Sequence, tokens: Tokens[int], *, wants_logits: bool) -> Span:
        """The batch part that continues the sequence."""
        return Span(sequence.id, len(sequence.tokens), tokens, wants_logits)

    def extend(self, sequence: Sequence, tokens: Tokens[int]) -> None:
        """Note tokens that were decoded; raises BackendError when llama.cpp disagrees."""
        sequence.tokens.extend(tokens)
        last = self._context.last_position(sequence.id)
        if last != len(sequence.tokens) - 1:
            expected = len(sequence.tokens)
            self.clear(sequence)
            raise BackendError(
                f"llama.cpp's memory holds {last + 1} tokens where {expected} were computed"
            )

    def trim(self, sequence: Sequence, keep: int) -> None:
        """Forget the tokens from `keep` on, or all where memory can't forget a part."""
        if keep == len(sequence.tokens):
            return
        if keep == 0 or not self._context.remove(sequence.id, keep):
            self.clear(sequence)
            return
        del sequence.tokens[keep:]
        first, last = self._context.position_range(sequence.id)
        if last != keep - 1 or first > max(0, keep - max(1, self._window)):
            self.clear(sequence)

    def clear(self, sequence: Sequence) -> None:
        """Forget the whole sequence, which never fails."""
        self._context.remove(sequence.id, 0)
        sequence.tokens.clear()

    def resync(self, sequence: Sequence) -> None:
        """After a failed decode: go back to what the mirror says, or to nothing."""
        length = len(sequence.tokens)
        if self._context.last_position(sequence.id) >= length:
            self._context.remove(sequence.id, length)
        if self._context.last_position(sequence.id) != length - 1:
            self.clear(sequence)

    def drop_idle(self) -> bool:
        """Clear the idle sequence that was used longest ago; False if there is none to clear."""
        idle = [s for s in self._sequences if not s.busy and s.tokens]
        if not idle:
            return False
        self.clear(min(idle, key=_age))
        return True

    def _choose(self, free: list[Sequence], prompt: Tokens[int]) -> Sequence:
        best = max(self._sequences, key=lambda s: (self._usable(s, prompt), not s.busy, _age(s)))
        usable = self._usable(best, prompt)
        oldest = min(free, key=lambda s: (bool(s.tokens), _age(s)))
        in_place = not best.busy and len(best.tokens) - usable <= REPLACEABLE
        if usable and (in_place or best is oldest):
            self.trim(best, usable)
            return best
        self.clear(oldest)
        if usable and self.rolls_back:
            self._context.copy(best.id, oldest.id, usable)
            oldest.tokens = best.tokens[:usable]
            self.resync(oldest)
        return oldest

    def _usable(self, sequence: Sequence, prompt: Tokens[int]) -> int:
        """How many tokens of the sequence the prompt can start from."""
        common = min(common_prefix(sequence.tokens, prompt), len(prompt) - 1)
        return common if self.rolls_back or common == len(sequence.tokens) else 0

    def _touch(self, sequence: Sequence) -> None:
        self._clock += 1
        sequence.last_used = self._clock

    def _probe_rollback(self) -> bool:
        """Whether this memory can forget the end of a sequence: recurrent ones can't."""
        context = self._context
        context.clear()
        context.decode([Span(0, 0, [0, 0], wants_logits=True)])
        rolls_back = context.remove(0, 1)
        context.clear()
        context.decoded_tokens = 0
        return rolls_back


def common_prefix(a: Tokens[int], b: Tokens[int]) -> int:
    """How many tokens are the same from the start."""
    end = min(len(a), len(b))
    at = 0
    while at < end and a[at : at + _BLOCK] == b[at : at + _BLOCK]:
        at += _BLOCK
    at = min(at, end)
    while at < end and a[at] == b[at]:
        at += 1
    return at


def _age(sequence: Sequence) -> int:
    return sequence.last_used
