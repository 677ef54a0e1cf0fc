"""Sequences as llama.cpp holds them: every change is checked against its own positions."""

from collections.abc import Collection
from collections.abc import Sequence as Tokens

from shepherd.backends.llamacpp.cache.host_cache import StoredSequence
from shepherd.backends.llamacpp.cache.prefixes import Gap, common_prefix, reach
from shepherd.backends.llamacpp.cache.sequence import Checkpoint, Sequence, marks
from shepherd.backends.llamacpp.native.context import NativeContext, Span
from shepherd.errors import BackendError


class Mirror:
    """Changes sequences and their mirrors together; what can't be changed is cleared, never lost.

    `rolls_back` says whether memory can forget the end of a sequence: recurrent memory can't. A
    sliding window that is not kept whole can as far as the window is still there. Beyond that
    both go back to checkpoints.
    """

    def __init__(
        self, context: NativeContext, window: int, controls: Collection[int] = frozenset()
    ) -> None:
        """`window` is the sliding window's size or 0, `controls` what messages begin with."""
        self._context = context
        self._controls = controls
        self._window = window
        self._only_window = bool(window) and not context.keeps_windows
        self._unmoved = False
        self.rolls_back = self._probe_rollback()
        self.takes_checkpoints = not self.rolls_back or self._only_window

    @property
    def stored_rolls_back(self) -> bool:
        """Whether stored states can be started from anywhere; they have only a window's end."""
        return self.rolls_back and not self._window

    def plan_checkpoints(self, sequence: Sequence, prompt: Tokens[int]) -> None:
        """Note where decoding the prompt has to stop for checkpoints, if memory needs any."""
        sequence.marks = []
        if self.takes_checkpoints:
            sequence.marks = marks(prompt, self._controls, len(sequence.tokens))

    def usable(self, sequence: Sequence, prompt: Tokens[int]) -> int:
        """How many tokens the packed prompt can start from, at least one short of all."""
        common = min(common_prefix(sequence.packed, prompt), len(prompt) - 1)
        return (
            common
            if self.can_cut(sequence, common)
            else reach(sequence.checkpoints.lengths, common)
        )

    def can_cut(self, sequence: Sequence, keep: int) -> bool:
        """Whether all behind the first `keep` tokens can be forgotten without a checkpoint."""
        if keep == len(sequence.tokens):
            return True
        if not self.rolls_back or keep == 0:
            return False
        first = self._context.position_range(sequence.id)[0] if self._window else 0
        return first <= self._seen_from(keep)

    def extend(self, sequence: Sequence, tokens: Tokens[int]) -> None:
        """Note tokens that were decoded; raises BackendError when llama.cpp disagrees."""
        self._unmoved = False
        sequence.append(tokens)
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
        sequence.cut(keep)
        self._check(sequence)

    def clear(self, sequence: Sequence) -> None:
        """Forget the whole sequence, which never fails."""
        self._context.remove(sequence.id, 0)
        sequence.cut(0)

    def resync(self, sequence: Sequence) -> None:
        """After a failed decode: go back to what the mirror says, or to nothing."""
        length = len(sequence.tokens)
        if self._context.last_position(sequence.id) >= length:
            self._context.remove(sequence.id, length)
        if self._context.last_position(sequence.id) != length - 1:
            self.clear(sequence)

    def share(self, source: Sequence, target: Sequence, length: int) -> None:
        """Let an empty sequence begin with tokens of another."""
        self._context.copy(source.id, target.id, length)
        target.begin(source.tokens[:length], source.checkpoints)
        cut = length == len(source.tokens) or self._cut_memory(target, length, source)
        if not cut or (self._only_window and not self._copy_window(target)):
            self.clear(target)
        self._check(target)

    def close(self, sequence: Sequence, gap: Gap) -> None:
        """Move what is behind a gap."""
        self._context.close_gap(sequence.id, gap.start, gap.end)
        self._unmoved = True  # until the next decode the keys are those of the old positions
        sequence.close(gap.start, gap.end)
        self._check(sequence)

    def save(self, sequence: Sequence, keep: int = 0) -> StoredSequence | None:
        """The whole state, to be kept elsewhere; None if it can't be had.

        The sequence must not be needed any more beyond `keep` tokens: of a sliding window a state
        has only the end, and checkpoints for the beginnings are had by cutting it back.
        """
        state = bytearray() if self._unmoved else self._context.save(sequence.id, partial=False)
        if not state:
            return None
        checkpoints = sequence.checkpoints.shared(len(sequence.tokens))
        entry = StoredSequence(sequence.packed[:], state, checkpoints, sequence.used)
        if self._window and not self._only_window:
            for checkpoint in self._checkpoints_behind(sequence, keep):
                checkpoints.add(checkpoint)
        return entry

    def state_size(self, sequence: Sequence) -> int:
        """The bytes that `save` would give."""
        return self._context.state_size(sequence.id)

    def restore(self, entry: StoredSequence, target: Sequence) -> bool:
        """Fill an empty sequence; False, and it is empty, if there is no room."""
        if not self._context.restore(target.id, entry.state, partial=False):
            self.clear(target)
            return False
        target.begin(entry.tokens, entry.checkpoints)
        self._check(target)
        return True

    def _check(self, sequence: Sequence) -> None:
        """Clear a sequence that has not all that its next token needs, window included.

        Memory that can't roll back brings its window along, from a checkpoint or whole.
        """
        first, last = self._context.position_range(sequence.id)
        length = len(sequence.tokens)
        cut_off = self.rolls_back and first > self._seen_from(length)
        if last != length - 1 or cut_off:
            self.clear(sequence)

    def _seen_from(self, length: int) -> int:
        """The first position that the token behind `length` tokens looks at in every layer."""
        return max(0, length - self._window + 1) if self._window else 0

    def _cut_memory(self, target: Sequence, keep: int, like: Sequence | None = None) -> bool:
        """Let llama.cpp forget what is behind `keep` tokens; False if it can't.

        The target holds what `like` holds, or at least its beginning.
        """
        if not self.can_cut(like or target, keep):
            checkpoint = target.checkpoints.at(keep)
            if checkpoint is None:
                return False
            if not self._context.restore(target.id, checkpoint.state, partial=True):
                return False
        return self._context.remove(target.id, keep)

    def _copy_window(self, sequence: Sequence) -> bool:
        """Give a sequence cells of its own: shared ones can't be used again as the window moves."""
        state = self._context.save(sequence.id, partial=True)
        return bool(state) and self._context.restore(sequence.id, state, partial=True)

    def _checkpoints_behind(self, sequence: Sequence, keep: int) -> list[Checkpoint]:
        found: list[Checkpoint] = []
        for mark in reversed(marks(sequence.tokens, self._controls, keep)):
            self.trim(sequence, mark)
            state = self._context.save(sequence.id, partial=True)
            if len(sequence.tokens) != mark or not state:
                break
            found.insert(0, Checkpoint(mark, state))
        return found

    def _keep_checkpoint(self, sequence: Sequence) -> None:
        state = self._context.save(sequence.id, partial=True)
        if state:
            sequence.checkpoints.add(Checkpoint(len(sequence.tokens), state))

    def _probe_rollback(self) -> bool:
        context = self._context
        context.clear()
        context.decode([Span(0, 0, [0, 0], wants_logits=True)])
        rolls_back = context.remove(0, 1)
        context.clear()
        context.decoded_tokens = context.decoded_batches = 0
        return rolls_back
