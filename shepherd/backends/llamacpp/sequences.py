"""The token-exact mirror of what llama.cpp holds in memory, sequence by sequence."""

from collections.abc import Collection
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from time import perf_counter

from shepherd.backends.llamacpp.checkpoints import Checkpoint, Checkpoints, marks
from shepherd.backends.llamacpp.context import NativeContext, Span
from shepherd.backends.llamacpp.gaps import Gap, find_gap
from shepherd.backends.llamacpp.host_cache import HostCache, StoredSequence
from shepherd.backends.llamacpp.prefixes import common_prefix, usable_prefix
from shepherd.errors import BackendError

REPLACEABLE = 32
"""A sequence may lose this many tokens without being worth a copy."""


MOST_GAPS = 4
"""Evicted parts between which what stays is moved up, one after the other."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One sequence of the context; `tokens` is exactly what is in memory for it.

    `marks` are the lengths at which a checkpoint is to be taken, `restored` is how many tokens
    came from host memory for the present request.
    """

    id: int
    tokens: list[int] = field(default_factory=list[int])
    marks: list[int] = field(default_factory=list[int])
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    busy: bool = False
    restored: int = 0
    last_used: int = 0


@dataclass(slots=True)
class CacheCounts:
    """What the cache did since the model was loaded."""

    memory_hits: int = 0
    memory_tokens: int = 0
    host_hits: int = 0
    host_tokens: int = 0
    misses: int = 0
    put_away: int = 0
    gaps_closed: int = 0


class SequencePool:
    """All sequences of a context. Every change is checked against llama.cpp's own positions."""

    def __init__(
        self,
        context: NativeContext,
        window: int,
        controls: Collection[int] = frozenset(),
        host: HostCache | None = None,
        *,
        shifts: bool = False,
    ) -> None:
        """`window` is the sliding window's size or 0, `controls` what messages begin with.

        `shifts` lets tokens be moved where messages before them left the conversation.
        """
        self.host = HostCache(0) if host is None else host
        self.counts = CacheCounts()
        self._context = context
        self._window = window
        self._controls = controls
        self._sequences = [Sequence(i) for i in range(context.sequences)]
        self._clock = 0
        self._unmoved = False
        self.rolls_back = self._probe_rollback()
        # llama.cpp aborts if either half of a windowed cache has no layers, so no shift there
        self.shifts = shifts and self.rolls_back and context.can_shift and not window

    @property
    def sequences(self) -> Tokens[Sequence]:
        return self._sequences

    def has_free(self) -> bool:
        """Whether a sequence is free."""
        return any(not sequence.busy for sequence in self._sequences)

    def acquire(self, prompt: Tokens[int], speed: float = 0.0) -> Sequence:
        """A free sequence that holds as much of the prompt's beginning as can be had.

        At least the prompt's last token is left to be decoded. There must be a free one. `speed`
        is how many tokens a second would be decoded otherwise, 0 if nobody knows.
        """
        chosen = self._choose(prompt, speed)
        chosen.busy = True
        if not self.rolls_back:
            chosen.marks = marks(prompt, self._controls, len(chosen.tokens))
        self._touch(chosen)
        self._count(chosen)
        return chosen

    def release(self, sequence: Sequence) -> None:
        """Give a sequence back; its tokens stay for whoever can use them."""
        sequence.busy = False
        sequence.restored = 0
        self._touch(sequence)

    def span(
        self, sequence: Sequence, tokens: Tokens[int], *, wants_logits: bool, outputs: int = 1
    ) -> Span:
        """The batch part that continues the sequence; `outputs` of its last tokens give logits."""
        return Span(sequence.id, len(sequence.tokens), tokens, wants_logits, outputs)

    def chunk(self, sequence: Sequence, room: int) -> int:
        """How many of `room` tokens may come next, so that no checkpoint is passed."""
        length = len(sequence.tokens)
        return next((min(room, m - length) for m in sequence.marks if m > length), room)

    def extend(self, sequence: Sequence, tokens: Tokens[int]) -> None:
        """Note tokens that were decoded; raises BackendError when llama.cpp disagrees."""
        self._unmoved = False
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
        self._check(sequence)

    def clear(self, sequence: Sequence) -> None:
        """Forget the whole sequence, which never fails."""
        self._context.remove(sequence.id, 0)
        sequence.tokens.clear()
        sequence.checkpoints.cut(0)

    def put_away(self, sequence: Sequence) -> None:
        """Clear a sequence; host memory keeps what is in it if that is worth it."""
        self._store(sequence)
        self.clear(sequence)

    def resync(self, sequence: Sequence) -> None:
        """After a failed decode: go back to what the mirror says, or to nothing."""
        length = len(sequence.tokens)
        if self._context.last_position(sequence.id) >= length:
            self._context.remove(sequence.id, length)
        if self._context.last_position(sequence.id) != length - 1:
            self.clear(sequence)

    def drop_idle(self) -> bool:
        """Put away the idle sequence that was used longest ago; False if there is none."""
        idle = [s for s in self._sequences if not s.busy and s.tokens]
        if not idle:
            return False
        self.put_away(min(idle, key=_age))
        return True

    def _choose(self, prompt: Tokens[int], speed: float) -> Sequence:
        free = [sequence for sequence in self._sequences if not sequence.busy]
        best = max(self._sequences, key=lambda s: (self._usable(s, prompt), not s.busy, _age(s)))
        usable = self._usable(best, prompt)
        oldest = min(free, key=lambda s: (bool(s.tokens), _age(s)))
        shifted = self._close_gaps(prompt, max(usable, self._find_stored(prompt)[1]))
        if shifted is not None:
            return shifted
        if self._fetch(prompt, oldest, usable, speed):
            return oldest
        in_place = not best.busy and len(best.tokens) - usable <= REPLACEABLE
        if usable and (in_place or best is oldest):
            if not in_place:
                self._store(best)
            self.trim(best, usable)
            return best
        self.put_away(oldest)
        if usable:
            self._share(best, oldest, usable)
        return oldest

    def _usable(self, sequence: Sequence, prompt: Tokens[int]) -> int:
        return usable_prefix(
            sequence.tokens, sequence.checkpoints, prompt, rolls_back=self.rolls_back
        )

    def _close_gaps(self, prompt: Tokens[int], known: int) -> Sequence | None:
        """The idle sequence that the prompt continues but for evicted messages, moved up."""
        moved: Sequence | None = None
        for _ in range(MOST_GAPS if self.shifts else 0):
            idle = [s for s in self._sequences if not s.busy and s.tokens]
            found = [(s, gap) for s in idle if (gap := find_gap(s.tokens, prompt, self._controls))]
            if not found:
                break
            sequence, gap = max(found, key=lambda pair: pair[1].usable)
            if gap.usable - known <= REPLACEABLE or not self._close(sequence, gap):
                break
            moved, known = sequence, gap.usable
        if moved is not None:
            self.trim(moved, self._usable(moved, prompt))
        return moved

    def _close(self, sequence: Sequence, gap: Gap) -> bool:
        """Move what is behind the gap; False if a running sequence shares it."""
        sharing = [
            other
            for other in self._sequences
            if other is not sequence and common_prefix(other.tokens, sequence.tokens) > gap.end
        ]
        if any(other.busy for other in sharing):
            return False
        for other in sharing:
            self.put_away(other)
        self._context.close_gap(sequence.id, gap.start, gap.end)
        self._unmoved = True  # until the next decode the keys are those of the old positions
        del sequence.tokens[gap.start : gap.end]
        self._check(sequence)
        self.counts.gaps_closed += 1
        return bool(sequence.tokens)

    def _fetch(self, prompt: Tokens[int], target: Sequence, known: int, speed: float) -> bool:
        """Bring a prompt's beginning back from host memory if that beats what is `known`."""
        entry, length = self._find_stored(prompt)
        gain = length - known
        if entry is None or gain <= REPLACEABLE:
            return False
        if speed and gain / speed <= self.host.seconds(entry):
            return False
        self.host.touch(entry)
        self.put_away(target)
        started = perf_counter()
        if not self._restore(entry, target):
            return False
        self.host.note_restore(entry, perf_counter() - started)
        self.trim(target, length)
        target.restored = len(target.tokens)
        return bool(target.tokens)

    def _find_stored(self, prompt: Tokens[int]) -> tuple[StoredSequence | None, int]:
        """The best entry of host memory, and how far; of a window only its end is there."""
        return self.host.find(prompt, rolls_back=self.rolls_back and not self._window)

    def _restore(self, entry: StoredSequence, target: Sequence) -> bool:
        """Fill an empty sequence; idle ones make room where there is too little."""
        while not self._context.restore(target.id, entry.state, partial=False):
            self.clear(target)
            if not self.drop_idle():
                return False
        target.tokens = list(entry.tokens)
        target.checkpoints = entry.checkpoints.shared(len(entry.tokens))
        self._check(target)
        return bool(target.tokens)

    def _store(self, sequence: Sequence) -> None:
        if len(sequence.tokens) <= REPLACEABLE or not self.host.capacity or self._unmoved:
            return
        if not self.host.wants(sequence.tokens, self._context.state_size(sequence.id)):
            return
        state = self._context.save(sequence.id, partial=False)
        if state:
            checkpoints = sequence.checkpoints.shared(len(sequence.tokens))
            self.host.put(StoredSequence(list(sequence.tokens), state, checkpoints))
            self.counts.put_away += 1

    def _count(self, sequence: Sequence) -> None:
        counts, tokens = self.counts, len(sequence.tokens)
        if sequence.restored:
            counts.host_hits += 1
            counts.host_tokens += tokens
        elif tokens:
            counts.memory_hits += 1
            counts.memory_tokens += tokens
        else:
            counts.misses += 1

    def _share(self, source: Sequence, target: Sequence, length: int) -> None:
        """Let an empty sequence begin with tokens of another."""
        self._context.copy(source.id, target.id, length)
        target.tokens = source.tokens[:length]
        target.checkpoints = source.checkpoints.shared(length)
        if length < len(source.tokens) and not self._cut_memory(target, length):
            self.clear(target)
        self._check(target)

    def _check(self, sequence: Sequence) -> None:
        """Clear a sequence that has not all that its next token needs, window included.

        Memory that can't roll back brings its window along, from a checkpoint or whole.
        """
        first, last = self._context.position_range(sequence.id)
        length = len(sequence.tokens)
        cut_off = self.rolls_back and first > max(0, length - max(1, self._window))
        if last != length - 1 or cut_off:
            self.clear(sequence)

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


def _age(sequence: Sequence) -> int:
    return sequence.last_used
