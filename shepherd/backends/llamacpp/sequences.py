"""The token-exact mirror of what llama.cpp holds in memory, sequence by sequence."""

from collections.abc import Collection
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

from shepherd.backends.llamacpp.checkpoints import Checkpoint, Checkpoints, marks
from shepherd.backends.llamacpp.context import NativeContext, Span
from shepherd.errors import BackendError

REPLACEABLE = 32
"""A sequence may lose this many tokens without being worth a copy."""

_BLOCK = 1024


@dataclass(slots=True, eq=False)
class Sequence:
    """One sequence of the context; `tokens` is exactly what is in memory for it.

    `marks` are the lengths at which a checkpoint is to be taken.
    """

    id: int
    tokens: list[int] = field(default_factory=list[int])
    marks: list[int] = field(default_factory=list[int])
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    busy: bool = False
    last_used: int = 0


class SequencePool:
    """All sequences of a context. Every change is checked against llama.cpp's own positions."""

    def __init__(
        self, context: NativeContext, window: int, controls: Collection[int] = frozenset()
    ) -> None:
        """`window` is the sliding window's size or 0, `controls` what messages begin with."""
        self._context = context
        self._window = window
        self._controls = controls
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
        if not self.rolls_back:
            chosen.marks = marks(prompt, self._controls, len(chosen.tokens))
        self._touch(chosen)
        return chosen

    def release(self, sequence: Sequence) -> None:
        """Give a sequence back; its tokens stay for whoever can use them."""
        sequence.busy = False
        self._touch(sequence)

    def span(self, sequence: Sequence, tokens: Tokens[int], *, wants_logits: bool) -> Span:
        """The batch part that continues the sequence."""
        return Span(sequence.id, len(sequence.tokens), tokens, wants_logits)

    def chunk(self, sequence: Sequence, room: int) -> int:
        """How many of `room` tokens may come next, so that no checkpoint is passed."""
        length = len(sequence.tokens)
        return next((min(room, m - length) for m in sequence.marks if m > length), room)

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
        if len(sequence.tokens) in sequence.marks:
            self._keep_checkpoint(sequence)

    def trim(self, sequence: Sequence, keep: int) -> None:
        """Forget the tokens from `keep` on, or all where memory can't forget just them."""
        if keep == len(sequence.tokens):
            return
        if keep == 0 or not self._cut_memory(sequence, keep):
            self.clear(sequence)
            return
        del sequence.tokens[keep:]
        sequence.checkpoints.cut(keep)
        first, last = self._context.position_range(sequence.id)
        if last != keep - 1 or first > max(0, keep - max(1, self._window)):
            self.clear(sequence)

    def clear(self, sequence: Sequence) -> None:
        """Forget the whole sequence, which never fails."""
        self._context.remove(sequence.id, 0)
        sequence.tokens.clear()
        sequence.checkpoints.cut(0)

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
        if usable:
            self._share(best, oldest, usable)
        return oldest

    def _usable(self, sequence: Sequence, prompt: Tokens[int]) -> int:
        """How many tokens of the sequence the prompt can start from."""
        common = min(common_prefix(sequence.tokens, prompt), len(prompt) - 1)
        if self.rolls_back or common == len(sequence.tokens):
            return common
        checkpoint = sequence.checkpoints.reach(common)
        return checkpoint.length if checkpoint else 0

    def _share(self, source: Sequence, target: Sequence, length: int) -> None:
        """Let an empty sequence begin with tokens of another."""
        self._context.copy(source.id, target.id, length)
        target.tokens = source.tokens[:length]
        target.checkpoints = source.checkpoints.shared(length)
        if length < len(source.tokens) and not self._cut_memory(target, length):
            self.clear(target)
        self.resync(target)

    def _cut_memory(self, sequence: Sequence, keep: int) -> bool:
        """Let llama.cpp forget what is behind `keep` tokens; False if it can't."""
        if not self.rolls_back:
            checkpoint = sequence.checkpoints.reach(keep)
            if checkpoint is None or checkpoint.length != keep:
                return False
            if not self._context.restore(sequence.id, checkpoint.state, partial=True):
                return False
        return self._context.remove(sequence.id, keep)

    def _keep_checkpoint(self, sequence: Sequence) -> None:
        state = self._context.save(sequence.id, partial=True)
        if state:
            sequence.checkpoints.add(Checkpoint(len(sequence.tokens), state))

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
