"""All sequences of a context: where a prompt starts from, and what goes when there is no room."""

from array import array
from collections.abc import Collection
from collections.abc import Sequence as Tokens
from time import monotonic, perf_counter, time

from shepherd.backends.base import CacheTier
from shepherd.backends.llamacpp.cache.disk_cache import DiskCache
from shepherd.backends.llamacpp.cache.host_cache import HostCache, StoredSequence
from shepherd.backends.llamacpp.cache.mirror import Mirror
from shepherd.backends.llamacpp.cache.prefixes import Gap, common_prefix, find_gap, packed
from shepherd.backends.llamacpp.cache.sequence import Sequence
from shepherd.backends.llamacpp.cache.tiers import CacheCounts, Found, Held, Tiers, cache_tiers
from shepherd.backends.llamacpp.native.context import NativeContext, Span

REPLACEABLE = 32
"""A sequence may lose this many tokens without being worth a copy."""

CROWDING = 1024 * 1024
"""New tokens times an idle conversation's: from here on it is brought to host memory first. That
and the way back cost less than attention over what is masked, by far on a processor."""

MOST_GAPS = 4
"""Evicted parts between which what stays is moved up, one after the other."""

MOST_SAVED_TOKENS = 100_000
"""Of earlier runs, that are looked at when a model is loaded; that takes some 0.2 s, aside."""

CLOSING_SECONDS = 5.0
"""No conversation is begun to be saved later than this after closing began."""


class SequencePool:
    """Finds prompts' beginnings and makes room for them; a running sequence is never touched.

    Owner thread only, but for `tiers`, which anybody may ask for.
    """

    def __init__(
        self,
        context: NativeContext,
        window: int,
        controls: Collection[int] = frozenset(),
        host: HostCache | None = None,
        *,
        disk: DiskCache | None = None,
        shifts: bool = False,
    ) -> None:
        """`window` is the sliding window's size or 0, `controls` what messages begin with.

        `shifts` lets tokens be moved where messages before them left the conversation.
        """
        self.counts = CacheCounts()
        self._mirror = Mirror(context, window, controls)
        self._stores = Tiers(HostCache(0) if host is None else host, disk)
        self._controls = controls
        self._most = context.sequences
        self._sequences = [Sequence(i) for i in range(self._most)]
        self._clock = 0
        # llama.cpp aborts if either half of a windowed cache has no layers, so no shift there
        self.shifts = shifts and self.rolls_back and context.can_shift and not window
        self.tiers: tuple[CacheTier, ...] = ()
        """What each tier holds and has saved, as of the last request's end."""
        self._report()

    def begin_with(self, count: int) -> None:
        """Use so many sequences until more are needed at once; before the first request only."""
        del self._sequences[count:]

    @property
    def sequences(self) -> Tokens[Sequence]:
        return self._sequences

    @property
    def host(self) -> HostCache:
        """The second tier."""
        return self._stores.host

    @property
    def disk(self) -> DiskCache | None:
        """The third tier, if it is on."""
        return self._stores.disk

    @property
    def rolls_back(self) -> bool:
        """Whether memory can forget the end of a sequence without a checkpoint."""
        return self._mirror.rolls_back

    def has_free(self) -> bool:
        """Whether a sequence is free, or another one can be opened."""
        return bool(self._free()) or len(self._sequences) < self._most

    def acquire(self, prompt: Tokens[int], speed: float = 0.0) -> Sequence:
        """A free sequence that holds as much of the prompt's beginning as can be had.

        At least the prompt's last token is left to be decoded. There must be a free one; one more
        is opened only where all are busy. `speed` is how many tokens a second would be decoded
        otherwise, 0 if nobody knows.
        """
        if not self._free():
            self._sequences.append(Sequence(len(self._sequences)))
        chosen = self._choose(packed(prompt), speed)
        chosen.busy = True
        self._clear_the_way(chosen, len(prompt))
        self._mirror.plan_checkpoints(chosen, prompt)
        self._touch(chosen)
        self.counts.note(len(chosen.tokens), restored=bool(chosen.restored))
        return chosen

    def release(self, sequence: Sequence) -> None:
        """Give a sequence back; its tokens stay for whoever can use them."""
        sequence.busy = False
        sequence.restored = 0
        self._touch(sequence)
        sequence.bytes = self._mirror.state_size(sequence)
        self._report()

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
        self._mirror.extend(sequence, tokens)

    def truncate(self, sequence: Sequence, count: int) -> bool:
        """Forget the last `count` tokens; False, and nothing is changed, if memory can't.

        Memory that rolls back can, recurrent memory can't.
        """
        keep = len(sequence.tokens) - count
        if not self._mirror.can_cut(sequence, keep):
            return False
        self._mirror.trim(sequence, keep)
        return len(sequence.tokens) == keep

    def trim(self, sequence: Sequence, keep: int) -> None:
        """Forget the tokens from `keep` on, or all where memory can't forget just them."""
        self._mirror.trim(sequence, keep)

    def clear(self, sequence: Sequence) -> None:
        """Forget the whole sequence, which never fails."""
        self._mirror.clear(sequence)

    def resync(self, sequence: Sequence) -> None:
        """After a failed decode: go back to what the mirror says, or to nothing."""
        self._mirror.resync(sequence)

    def put_away(self, sequence: Sequence) -> None:
        """Clear a sequence; another tier keeps what is in it if that is worth it."""
        if sequence.tokens:
            self.counts.cleared += 1
        self._store(sequence)
        self._mirror.clear(sequence)

    def drop_idle(self) -> bool:
        """Put away the idle sequence that was used longest ago; False if there is none."""
        idle = [s for s in self._sequences if not s.busy and s.tokens]
        if not idle:
            return False
        self.put_away(min(idle, key=_age))
        return True

    def saved_prompts(self) -> list["array[int]"]:
        """What is on disk, what was used last first, as far as it is not too much to go through."""
        disk = self.disk
        return disk.prompts(MOST_SAVED_TOKENS) if disk is not None else []

    def save_all(self) -> None:
        """Before all is freed: bring to the disk what is worth it, what was used last first."""
        disk = self.disk
        if disk is None:
            return
        disk.close()
        deadline = monotonic() + CLOSING_SECONDS
        for _, kept in sorted(self._kept(), key=lambda pair: pair[0], reverse=True):
            if monotonic() > deadline:
                break
            if isinstance(kept, StoredSequence):
                disk.save(kept)
            elif disk.wants(kept.packed, self._mirror.state_size(kept)):
                entry = self._mirror.save(kept)
                if entry is not None:
                    disk.save(entry)

    def _kept(self) -> list[tuple[float, Sequence | StoredSequence]]:
        live = [(s.used, s) for s in self._sequences if s.tokens]
        return [*live, *((entry.used, entry) for entry in self.host.entries)]

    def _choose(self, prompt: "array[int]", speed: float) -> Sequence:
        usable = {s: self._mirror.usable(s, prompt) for s in self._sequences}
        best = max(self._sequences, key=lambda s: (usable[s], not s.busy, _age(s)))
        known = usable[best]
        found = self._stores.find(prompt, rolls_back=self._mirror.stored_rolls_back)
        shifted = self._close_gaps(prompt, max(known, found.length if found else 0))
        if shifted is not None:
            return shifted
        oldest = min(self._free(), key=lambda s: (bool(s.tokens), _age(s)))
        if found is not None and self._pays(found, known, speed):
            fetched = self._fetch(found, prompt, oldest)
            if fetched:
                return oldest
            known = self._mirror.usable(best, prompt)  # it may have made room
        return self._reuse(best, known, oldest)

    def _clear_the_way(self, chosen: Sequence, length: int) -> None:
        """Bring idle conversations to host memory before a long prompt is read beside them.

        Attention computes over all cells in use and masks what is another sequence's.
        """
        if not self.rolls_back:
            return
        new = length - len(chosen.tokens)
        for other in self._free():
            foreign = len(other.tokens) - common_prefix(other.packed, chosen.packed)
            if new * foreign >= CROWDING and self._has_place(other):
                self.put_away(other)

    def _has_place(self, sequence: Sequence) -> bool:
        """Whether host memory has the sequence, or would take it."""
        host, size = self.host, self._mirror.state_size(sequence)
        return host.holds(sequence.packed) or host.wants(sequence.packed, size)

    def _free(self) -> list[Sequence]:
        return [sequence for sequence in self._sequences if not sequence.busy]

    def _reuse(self, best: Sequence, usable: int, oldest: Sequence) -> Sequence:
        """Go on from what is in memory: in place, or sharing it with the oldest free sequence."""
        in_place = not best.busy and len(best.tokens) - usable <= REPLACEABLE
        if usable and (in_place or best is oldest):
            if not in_place:
                self._store(best, usable)
            self._mirror.trim(best, usable)
            return best
        self.put_away(oldest)
        if usable:
            self._mirror.share(best, oldest, usable)
        return oldest

    def _pays(self, found: Found, known: int, speed: float) -> bool:
        gain = found.length - known
        return gain > REPLACEABLE and (not speed or gain / speed > found.seconds)

    def _fetch(self, found: Found, prompt: "array[int]", target: Sequence) -> bool:
        """Bring a prompt's beginning back into memory; idle sequences make room for it."""
        entry = self._stores.take(found)
        if entry is None:
            return False
        self.put_away(target)
        started = perf_counter()
        while not self._mirror.restore(entry, target):
            if not self.drop_idle():
                if not any(sequence.tokens for sequence in self._sequences):
                    self._stores.discard(found)
                return False
        self.host.note_restore(len(entry.state), perf_counter() - started)
        self._mirror.trim(target, self._mirror.usable(target, prompt))
        target.restored = len(target.tokens)
        self.counts.note_restored(target.restored, on_disk=found.on_disk)
        return bool(target.tokens)

    def _close_gaps(self, prompt: "array[int]", known: int) -> Sequence | None:
        """The idle sequence that the prompt continues but for evicted messages, moved up."""
        moved: Sequence | None = None
        for _ in range(MOST_GAPS if self.shifts else 0):
            idle = [s for s in self._free() if s.tokens]
            found = [(s, gap) for s in idle if (gap := find_gap(s.packed, prompt, self._controls))]
            if not found:
                break
            sequence, gap = max(found, key=lambda pair: pair[1].usable)
            if gap.usable - known <= REPLACEABLE or not self._close(sequence, gap):
                break
            moved, known = sequence, gap.usable
        if moved is not None:
            self._mirror.trim(moved, self._mirror.usable(moved, prompt))
        return moved

    def _close(self, sequence: Sequence, gap: Gap) -> bool:
        """Move what is behind the gap; False if a running sequence shares it."""
        sharing = [
            other
            for other in self._sequences
            if other is not sequence and common_prefix(other.packed, sequence.packed) > gap.end
        ]
        if any(other.busy for other in sharing):
            return False
        for other in sharing:
            self.put_away(other)
        self._mirror.close(sequence, gap)
        self.counts.gaps_closed += 1
        return bool(sequence.tokens)

    def _store(self, sequence: Sequence, keep: int = 0) -> None:
        """Let another tier have what is in a sequence of which only `keep` tokens will be left."""
        if len(sequence.tokens) <= REPLACEABLE or not self._stores.exist:
            return
        if not self._stores.wants(sequence.packed, self._mirror.state_size(sequence)):
            return
        entry = self._mirror.save(sequence, keep)
        if entry is not None:
            self._stores.put(entry)
            self.counts.put_away += 1

    def _touch(self, sequence: Sequence) -> None:
        self._clock += 1
        sequence.last_used = self._clock
        sequence.used = time()

    def _report(self) -> None:
        held = [sequence for sequence in self._sequences if sequence.tokens]
        size = sum(sequence.bytes for sequence in held)
        memory = Held(len(held), size, self.counts.cleared)
        self.tiers = cache_tiers(self.counts, memory, *self._stores.held())


def _age(sequence: Sequence) -> int:
    return sequence.last_used
