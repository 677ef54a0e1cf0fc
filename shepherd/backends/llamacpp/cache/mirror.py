"""A mirror of llama.cpp's memory: every change is checked against its positions."""

from collections.abc import Collection, Sequence

from shepherd.backends.llamacpp.cache.prefixes import Gap, common_prefix, reach, whole
from shepherd.backends.llamacpp.cache.sequence import (
    CachedSequence,
    Checkpoint,
    StoredSequence,
    marks,
)
from shepherd.backends.llamacpp.native.context import NativeContext, Span
from shepherd.errors import BackendError


class Mirror:
    """Changes sequences and their mirrors together; a sequence that can't be changed is cleared.

    `rolls_back` says whether memory can drop the end of a sequence. Recurrent memory can't, except
    for some of the tokens that were decoded last, which `trim` may drop once. A sliding window can,
    as far as the window is still in memory. Otherwise both return to checkpoints.
    """

    def __init__(
        self, context: NativeContext, window: int, controls: Collection[int] = frozenset()
    ) -> None:
        """`window` is the size of the sliding window or 0, `controls` the control tokens."""
        self._context = context
        self._controls = controls
        self._window = window
        self._only_window = bool(window) and not context.keeps_windows
        self._unmoved = False
        """Whether keys are still those of the positions before a gap was closed."""
        self.rolls_back = not context.rollback and self._probe_rollback()
        self.takes_checkpoints = not self.rolls_back or self._only_window

    @property
    def stored_states_roll_back(self) -> bool:
        """Whether stored states can be cut anywhere; with a window they can not."""
        return self.rolls_back and not self._window

    def plan_checkpoints(self, sequence: CachedSequence, prompt: Sequence[int]) -> None:
        """Note the lengths of the prompt for checkpoints.

        With `swa_full` they are taken when the sequence is saved.
        """
        needs_them = self.takes_checkpoints or self._window
        sequence.marks = marks(prompt, self._controls) if needs_them else []

    def next_stop(self, sequence: CachedSequence) -> int | None:
        """The length at which decoding must stop for a checkpoint; None if it need not."""
        if not self.takes_checkpoints:
            return None
        return next((mark for mark in sequence.marks if mark > len(sequence.tokens)), None)

    def usable(self, sequence: CachedSequence, prompt: Sequence[int]) -> int:
        """How many tokens the packed prompt can reuse, at most all but its last."""
        common = whole(prompt, min(common_prefix(sequence.packed, prompt), len(prompt) - 1))
        if self.can_cut(sequence, common):
            return common
        return reach(sequence.checkpoints.lengths, common)

    def can_cut(self, sequence: CachedSequence, keep: int) -> bool:
        """Whether all tokens after the first `keep` can be dropped without a checkpoint."""
        if keep == len(sequence.tokens):
            return True
        if not self.rolls_back or keep == 0:  # a whole sequence is cleared instead
            return False
        # The window before the new end must still be in memory.
        first = self._context.position_range(sequence.id)[0] if self._window else 0
        return first <= self._seen_from(sequence.position_at(keep))

    def extend(self, sequence: CachedSequence, tokens: Sequence[int], drafted: int = 0) -> None:
        """Note decoded tokens; the last `drafted` ones are a draft of the last batch.

        Raises BackendError if llama.cpp's memory differs.
        """
        self._unmoved = False  # the batch has moved them
        sequence.append(tokens)
        # llama.cpp keeps the states behind the last tokens of a batch
        sequence.forgettable = min(drafted, self._context.rollback)
        last = self._context.last_position(sequence.id)
        if not _ends_at(sequence, last):
            expected = sequence.position
            self.clear(sequence)
            raise BackendError(
                f"llama.cpp's memory holds {last + 1} positions where {expected} were computed"
            )

    def checkpoint(self, sequence: CachedSequence) -> None:
        """Take a checkpoint of the sequence if one is planned for its length."""
        if not self.takes_checkpoints or len(sequence.tokens) not in sequence.marks:
            return
        state = self._context.save(sequence.id, partial=True)
        if state:
            sequence.checkpoints.add(Checkpoint(len(sequence.tokens), state))

    def trim(self, sequence: CachedSequence, keep: int) -> None:
        """Drop the tokens from `keep` on, or all tokens if memory can't drop a part."""
        if keep == len(sequence.tokens):
            return
        is_forgettable = len(sequence.tokens) - keep <= sequence.forgettable
        cut = self._forget if is_forgettable else self._cut_memory
        if keep == 0 or not cut(sequence, keep):
            self.clear(sequence)
            return
        sequence.cut(keep)
        self._check(sequence)

    def clear(self, sequence: CachedSequence) -> None:
        """Drop the whole sequence; never fails."""
        self._context.remove(sequence.id, 0)
        sequence.cut(0)

    def resync(self, sequence: CachedSequence) -> None:
        """After a failed decode, return to the state of the mirror, or clear the sequence."""
        # A part of an image is of no use, and its rest would begin inside of it.
        self.trim(sequence, whole(sequence.tokens, len(sequence.tokens)))
        length = sequence.position
        if self._context.last_position(sequence.id) >= length:  # a part of the batch was kept
            self._context.remove(sequence.id, length)
        if not _ends_at(sequence, self._context.last_position(sequence.id)):
            self.clear(sequence)

    def share(self, source: CachedSequence, target: CachedSequence, length: int) -> None:
        """Share the first `length` tokens of a sequence with an empty one."""
        self._context.copy(source.id, target.id, source.position_at(length))
        target.begin(source.tokens[:length], source.checkpoints)
        # Some kinds of memory copy all of the source's tokens.
        is_cut = length == len(source.tokens) or self._cut_memory(target, length, source)
        if not is_cut or (self._only_window and not self._unshare_window(target)):
            self.clear(target)
        self._check(target)

    def join(self, target: CachedSequence, others: Sequence[CachedSequence]) -> None:
        """Free the cells of a restored beginning that another sequence has, too."""
        if not self.stored_states_roll_back:
            return
        shared = [(common_prefix(other.packed, target.packed), other) for other in others]
        longest, best = max(shared, key=lambda pair: pair[0], default=(0, target))
        length = whole(target.tokens, longest)
        if length:
            self._context.share_beginning(best.id, target.id, target.position_at(length))
            self._check(target)

    def close(self, sequence: CachedSequence, gap: Gap) -> None:
        """Remove a gap and move the tokens after it."""
        self._context.close_gap(sequence.id, gap.start, gap.end)
        self._unmoved = True  # llama.cpp moves them with the next batch
        sequence.close(gap.start, gap.end)
        self._check(sequence)

    def save(self, sequence: CachedSequence, keep: int = 0) -> StoredSequence | None:
        """The whole state, to be stored elsewhere; None if llama.cpp can't save it.

        The sequence may be cut to `keep` tokens: a state has only the end of a sliding window, and
        checkpoints for earlier positions are taken by cutting the sequence.
        """
        # Before they are moved, a state would have keys of other positions.
        state = bytearray() if self._unmoved else self._context.save(sequence.id, partial=False)
        if not state:
            return None
        tokens, checkpoints = sequence.packed[:], sequence.checkpoints.shared(len(sequence.tokens))
        entry = StoredSequence(
            tokens, state, checkpoints, sequence.used, sequence.returns, sequence.owner
        )
        if self._window and not self._only_window:
            for checkpoint in self._checkpoints_behind(sequence, keep):
                checkpoints.add(checkpoint)
        return entry

    def state_size(self, sequence: CachedSequence) -> int:
        """The size of the state that `save` returns."""
        return self._context.state_size(sequence.id)

    def restore(self, entry: StoredSequence, target: CachedSequence) -> bool:
        """Fill an empty sequence; False if there is no room, and it stays empty."""
        if not self._context.restore(target.id, entry.state, partial=False):
            self.clear(target)
            return False
        target.begin(entry.tokens, entry.checkpoints)
        self._check(target)
        return True

    def _check(self, sequence: CachedSequence) -> None:
        """Clear a sequence that lacks tokens which its next token attends to.

        Memory that can't roll back always has its window, from a checkpoint or completely.
        """
        first, last = self._context.position_range(sequence.id)
        lacks_window = self.rolls_back and first > self._seen_from(sequence.position)
        if not _ends_at(sequence, last) or lacks_window:
            self.clear(sequence)

    def _seen_from(self, position: int) -> int:
        """The first position that the token at `position` attends to in every layer."""
        return max(0, position - self._window + 1) if self._window else 0

    def _forget(self, sequence: CachedSequence, keep: int) -> bool:
        """Return to the state behind `keep` tokens, which is one of the last; False if it fails."""
        return self._context.remove(sequence.id, sequence.position_at(keep))

    def _cut_memory(
        self, target: CachedSequence, keep: int, like: CachedSequence | None = None
    ) -> bool:
        """Drop all tokens after `keep` from llama.cpp's memory; False if it can't.

        The target has the tokens of `like`, or a prefix of them.
        """
        if not self.can_cut(like or target, keep):
            checkpoint = target.checkpoints.at(keep)
            if checkpoint is None:
                return False
            # It has only what can't be cut, as a recurrent state; the rest is cut below.
            if not self._context.restore(target.id, checkpoint.state, partial=True):
                return False
        return self._context.remove(target.id, target.position_at(keep))

    def _unshare_window(self, sequence: CachedSequence) -> bool:
        """Copy shared cells: llama.cpp can't reuse them while the window moves."""
        state = self._context.save(sequence.id, partial=True)
        return bool(state) and self._context.restore(sequence.id, state, partial=True)

    def _checkpoints_behind(self, sequence: CachedSequence, keep: int) -> list[Checkpoint]:
        """Checkpoints behind `keep` tokens, taken by cutting the sequence from its end."""
        result: list[Checkpoint] = []
        length = len(sequence.tokens)
        for mark in reversed([mark for mark in sequence.marks if keep < mark < length]):
            self.trim(sequence, mark)
            state = self._context.save(sequence.id, partial=True)
            if len(sequence.tokens) != mark or not state:  # llama.cpp can't cut or save it
                break
            result.insert(0, Checkpoint(mark, state))
        return result

    def _probe_rollback(self) -> bool:
        """Try whether memory can drop the last one of two tokens; the memory must be empty."""
        context = self._context
        context.clear()
        context.decode([Span(0, 0, [0, 0], wants_logits=True)])
        rolls_back = context.remove(0, 1)
        context.clear()
        # The trial does not count.
        context.decoded_tokens = context.decoded_batches = context.decoded_parts = 0
        return rolls_back


def _ends_at(sequence: CachedSequence, last: int) -> bool:
    """Whether a sequence with these tokens has its last position in memory here.

    With M-RoPE all tokens of an image may have the position of its first.
    """
    if last == sequence.position - 1:
        return True
    tokens = sequence.tokens
    if not tokens or tokens[-1] >= 0 or last >= sequence.position:  # it does not end with an image
        return False
    # Behind the last token that is text.
    start = next((i + 1 for i in range(len(tokens) - 1, -1, -1) if tokens[i] >= 0), 0)
    return last >= sequence.position_at(start)
