"""All sequences of a context: the reuse of prefixes, and the eviction of idle sequences."""

from array import array
from collections.abc import Collection, Sequence
from functools import partial
from time import monotonic, time

from shepherd.backends.base import CacheTier
from shepherd.backends.llamacpp.cache import tiers
from shepherd.backends.llamacpp.cache.disk_cache import DiskCache
from shepherd.backends.llamacpp.cache.mirror import Mirror
from shepherd.backends.llamacpp.cache.prefixes import (
    Gap,
    Query,
    common_prefix,
    find_gap,
    packed,
    reach,
    whole,
)
from shepherd.backends.llamacpp.cache.returns import Return, Sessions, last_to_return
from shepherd.backends.llamacpp.cache.sequence import CachedSequence, HostCache, StoredSequence
from shepherd.backends.llamacpp.native.context import NativeContext

MAX_DISCARDED_TOKENS = 32
"""A sequence is copied before it loses more tokens than this."""

MAX_GAPS = 4
"""Gaps that are closed for one prompt."""

MAX_SAVED_TOKENS = 100_000
"""Tokens of earlier runs that are learned after loading, in about 0.2 s on another thread."""

CLOSING_SECONDS = 5.0
"""Seconds after the start of closing in which conversations are saved."""


class SequencePool:
    """Finds the prefixes of prompts and makes room for them; never changes a running sequence.

    Owner thread only, except for `tiers`.
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
        """`window` is the size of the sliding window or 0, `controls` the control tokens.

        `shifts` allows to move tokens after messages that were evicted.
        """
        self.counts = tiers.CacheCounts()
        self.mirror = Mirror(context, window, controls)
        """What a job decodes or drops of its own sequence is noted there."""
        self._stopwatch = context.stopwatch
        self._crowding = tiers.Crowding(context.limits.crowding)
        self.host = HostCache(0) if host is None else host
        self.disk = disk
        self._stores = tiers.Tiers(self.host, disk)
        self._controls = controls
        self._max_sequences = context.sequences
        self._size = context.size
        self._rollback = context.rollback
        self._has_own_cells = context.has_streams
        """Whether each sequence has cells of its own, which the others do not slow down."""
        self.sequences = [CachedSequence(i) for i in range(self._max_sequences)]
        # What sessions have in memory and host memory, and do not work on.
        self.sessions = Sessions(
            lambda: [*(s for s in self._free() if s.tokens), *self.host.entries]
        )
        # llama.cpp aborts if either half of a windowed cache has no layers, so no shift there
        self.shifts = shifts and self.rolls_back and context.can_shift and not window
        self.tiers: tuple[CacheTier, ...] = ()
        """The report of all tiers, as of the end of the last request."""
        self._report()

    def set_initial_count(self, count: int) -> None:
        """Open `count` sequences first; more follow on demand. Only before the first request."""
        del self.sequences[count:]

    @property
    def rolls_back(self) -> bool:
        """Whether memory can drop the end of a sequence without a checkpoint."""
        return self.mirror.rolls_back

    @property
    def can_draft(self) -> bool:
        """Whether memory can drop rejected tokens of a draft."""
        return self.rolls_back or self._rollback > 0

    def has_free(self) -> bool:
        """Whether a sequence is free or can be opened."""
        return bool(self._free()) or len(self.sequences) < self._max_sequences

    @property
    def is_crowded_by_others(self) -> bool:
        """Whether a prompt is read more slowly beside the tokens of others, as on a CPU."""
        # Recurrent memory does not attend to cells, and a GPU measures instead.
        return self.rolls_back and not self._has_own_cells and not self._crowding.learns

    def known(self, query: Query) -> int:
        """How many tokens of a prompt are in some tier of the cache."""
        stored, live = self._find(query)
        return max(live, stored.length if stored is not None else 0)

    def bring_back(self) -> bool:
        """Restore the state of a session whose tool still runs, if there is room.

        Only while nothing runs. False if there is no such state.
        """
        for returns in self.sessions.awaited():
            # A prompt that continues with any token.
            query = Query(packed([*returns.tokens, 0]), returns.owner)
            stored, known = self._find(query)
            if stored is None or stored.length - known <= MAX_DISCARDED_TOKENS:
                continue
            in_time = stored.seconds < returns.remaining(time())
            target = self._empty() if in_time else None
            if target is None or len(stored.entry.tokens) > self._free_cells:
                continue
            returns.tokens = packed(())  # once, whatever comes of it
            if self._fetch(stored, query, target):
                self.sessions.take(target, returns)
                self.release(target)
                return True
        return False

    def acquire(
        self,
        query: Query,
        speed: float = 0.0,
        waited: float = 0.0,
        returns: Return | None = None,
    ) -> CachedSequence | None:
        """A free sequence with the longest prefix of the prompt; None if that has to wait.

        It waits for a running sequence if it does not fit beside those; a saved state that does not
        fit as long as reading it again would take. The last token of the prompt is always left to
        decode. `has_free` must be true. `speed` is the decoding speed in tokens per second, 0 if
        unknown, `waited` are the seconds since it was None first, and `returns` those of its
        session.
        """
        prompt = query.tokens
        chosen = self._choose(query, speed, waited)
        if chosen is None:
            return None
        chosen.busy, chosen.planned, chosen.owner = True, len(prompt), query.owner
        self.sessions.take(chosen, returns or Return())
        self._swap_out_idle(chosen, len(prompt))
        self.mirror.plan_checkpoints(chosen, prompt)
        chosen.used = time()
        if chosen.tokens and not chosen.restored:  # else the tier that had them is counted already
            self.counts.note_hit(tiers.MEMORY, len(chosen.tokens))
        return chosen

    def release(self, sequence: CachedSequence) -> None:
        """Mark a sequence as free; its tokens stay for later prompts."""
        sequence.busy = False
        sequence.restored = 0
        sequence.used = time()
        sequence.bytes = self.mirror.state_size(sequence)
        self._report()

    def chunk(self, sequence: CachedSequence, room: int) -> int:
        """How many of `room` tokens may follow before the next checkpoint."""
        stop = self.mirror.next_stop(sequence)
        return room if stop is None else min(room, stop - len(sequence.tokens))

    def note_batch(self, tokens: int, seconds: float) -> None:
        """Learn from a batch of prompts what cells in use cost."""
        if self._crowding.learns:
            cells = sum(len(sequence.tokens) for sequence in self.sequences)
            self._crowding.note(tokens, cells, seconds)

    def swap_out(self, sequence: CachedSequence) -> None:
        """Clear a sequence; another tier stores it if that is worth it."""
        if sequence.tokens:
            self.counts.cleared += 1
        self._store(sequence)
        self.mirror.clear(sequence)

    def is_kept(self, sequence: CachedSequence, *, evicts: bool = True) -> bool:
        """Whether host memory has the sequence or takes it; see `HostCache.wants`."""
        host, size = self.host, self.mirror.state_size(sequence)
        return host.holds(sequence) or host.wants(sequence, size, evicts=evicts)

    def drop_idle(self, tokens: int | None = None) -> bool:
        """Swap out the idle sequence that returns last; False if there is none.

        If no other tier takes it, it loses only its end, so that there is room for `tokens`; all
        of it if that is None.
        """
        idle = [s for s in self.sequences if not s.busy and s.tokens]
        if not idle:
            return False
        last = last_to_return(idle)
        keep = 0
        if tokens is not None:
            missing = tokens - self._free_cells
            keep = whole(last.tokens, max(0, len(last.tokens) - max(missing, MAX_DISCARDED_TOKENS)))
        if not self.mirror.can_cut(last, keep):
            keep = reach(last.checkpoints.lengths, keep)
        if keep <= MAX_DISCARDED_TOKENS or self.is_kept(last):
            self.swap_out(last)
        else:
            self.mirror.trim(last, keep)
            self.counts.cleared += 1
        return True

    def saved_prompts(self) -> list["array[int]"]:
        """The tokens of saved sequences, most recent first, up to a limit."""
        return self.disk.prompts(MAX_SAVED_TOKENS) if self.disk is not None else []

    def save_all(self) -> None:
        """Write sequences to disk before all is freed, most recently used first."""
        disk = self.disk
        if disk is None:
            return
        disk.close()  # first what waits to be written, so that nothing else writes from here on
        deadline = monotonic() + CLOSING_SECONDS
        live = (s for s in self.sequences if s.tokens)
        for kept in sorted([*live, *self.host.entries], key=lambda one: one.used, reverse=True):
            if monotonic() > deadline:
                break
            entry: StoredSequence | None = None
            if isinstance(kept, StoredSequence):
                entry = kept
            elif disk.wants(kept, self.mirror.state_size(kept)):
                entry = self.mirror.save(kept)
            if entry is not None:
                disk.save(entry)

    def _choose(self, query: Query, speed: float, waited: float) -> CachedSequence | None:
        """The best sequence for a prompt: moved together, restored from a tier, or reused.

        None if it should wait until a stored state fits.
        """
        prompt = query.tokens
        usable = {s: self._usable(s, query) for s in self.sequences}
        # Of sequences with equally many usable tokens an idle one, which need not be shared, and of
        # several idle ones the one that was used last.
        best = max(self.sequences, key=lambda s: (usable[s], not s.busy, s.used))
        known = usable[best]
        stored = self._stores.find(query, rolls_back=self.mirror.stored_states_roll_back)
        shifted = self._close_gaps(query, max(known, stored.length if stored else 0))
        if shifted is not None:
            return shifted
        # An empty sequence first: nothing has to leave for it.
        oldest = self._empty() or last_to_return(self._free())
        if stored is not None and self._is_worth_restoring(stored, known, speed):
            # Else the idle ones would leave in vain.
            if self._fits_beside(prompt, stored) and self._fetch(stored, query, oldest):
                self.counts.note_hit(stored.tier, oldest.restored)
                return oldest
            known = self._usable(best, query)  # making room may have changed it
            # A state that is longer than its prompt may need more room than there will soon be.
            gain = stored.length - known if len(stored.entry.tokens) <= len(prompt) else 0
            if not self._fits_beside(prompt, stored) and speed * waited < gain:
                return None
        if not self._fits_beside(prompt):
            return None
        return self._reuse(best, known, oldest)

    def _swap_out_idle(self, chosen: CachedSequence, length: int) -> None:
        """Swap out idle conversations before a long prompt is read.

        Attention computes over all cells in use, also over the masked ones of other sequences,
        unless each sequence has its own cells.
        """
        if not self.rolls_back or self._has_own_cells:
            return
        new_tokens = length - len(chosen.tokens)
        for other in self._free():
            # Cells that both share stay in use anyway.
            foreign = len(other.tokens) - common_prefix(other.packed, chosen.packed)
            pays = self._crowding.pays(new_tokens, foreign, partial(self._swap_seconds, other))
            # It would be quicker without it, but what leaves host memory for it must not be lost.
            if pays and self.is_kept(other, evicts=self.disk is not None):
                self.swap_out(other)

    def _swap_seconds(self, sequence: CachedSequence) -> float:
        """The expected seconds to put a sequence away and to bring it back."""
        return 2 * self.host.seconds(self.mirror.state_size(sequence))

    def _free(self) -> list[CachedSequence]:
        return [sequence for sequence in self.sequences if not sequence.busy]

    @property
    def _free_cells(self) -> int:
        """The cells that no sequence uses."""
        return self._size - cells([s.packed for s in self.sequences])

    def _empty(self) -> CachedSequence | None:
        """A free sequence without tokens, which may be opened now; None if there is none."""
        empty = next((s for s in self._free() if not s.tokens), None)
        if empty is None and len(self.sequences) < self._max_sequences:
            empty = CachedSequence(len(self.sequences))
            self.sequences.append(empty)
        return empty

    def _usable(self, sequence: CachedSequence, query: Query) -> int:
        """How many tokens of a sequence the prompt may reuse."""
        return self.mirror.usable(sequence, query.part_for(sequence.packed, sequence.owner))

    def _find(self, query: Query) -> tuple[tiers.StoredPrefix | None, int]:
        """The longest stored prefix of a prompt, and how many of its tokens are in memory."""
        stored = self._stores.find(query, rolls_back=self.mirror.stored_states_roll_back)
        return stored, max(self._usable(sequence, query) for sequence in self.sequences)

    def _reuse(self, best: CachedSequence, usable: int, oldest: CachedSequence) -> CachedSequence:
        """Reuse tokens in memory: in place, or shared with the oldest free sequence."""
        loses_little = len(best.tokens) - usable <= MAX_DISCARDED_TOKENS
        in_place = not best.busy and loses_little
        if usable and (in_place or best is oldest):
            if not in_place:  # more tokens go than are quickly read again
                self._store(best, usable)
            self.mirror.trim(best, usable)
            return best
        self.swap_out(oldest)
        if usable:  # the conversation in `best` stays whole, for its own next prompt
            self.mirror.share(best, oldest, usable)
        return oldest

    def _is_worth_restoring(self, stored: tiers.StoredPrefix, known: int, speed: float) -> bool:
        """Whether restoring is faster than reading the tokens beyond the `known` ones again."""
        gain = stored.length - known
        return gain > MAX_DISCARDED_TOKENS and (not speed or gain / speed > stored.seconds)

    def _fetch(self, stored: tiers.StoredPrefix, query: Query, target: CachedSequence) -> bool:
        """Restore a stored prefix; idle sequences are swapped out to make room."""
        entry = self._stores.take(stored)
        if entry is None:  # its file is damaged, or another process has removed it
            return False
        self.swap_out(target)
        started = self._stopwatch.finished()
        while not self.mirror.restore(entry, target):
            if not self.drop_idle(len(entry.tokens)):
                if not any(sequence.tokens for sequence in self.sequences):
                    self._stores.discard(stored)  # it will never fit
                return False
        self.host.note_restore(len(entry.state), self._stopwatch.finished() - started)
        target.owner = entry.owner
        self.mirror.trim(target, self._usable(target, query))
        self.mirror.join(target, [s for s in self.sequences if s is not target])
        target.restored = len(target.tokens)
        return bool(target.tokens)  # else what was restored turned out to be of no use

    def _fits_beside(self, prompt: "array[int]", stored: tiers.StoredPrefix | None = None) -> bool:
        """Whether a prompt fits beside those that run, once all others have left.

        A `stored` beginning is shared with them, and cut to what is needed, once it is there.
        """
        busy = [s for s in self.sequences if s.busy]
        if not busy or self._has_own_cells:
            return True
        tokens = [s.packed for s in busy]
        growth = sum(max(0, s.planned - len(s.tokens)) for s in busy)
        alone = len(stored.entry.tokens) if stored is not None else 0
        if cells(tokens) + alone > self._size:
            return False
        return growth + cells([*tokens, prompt]) <= self._size

    def _close_gaps(self, query: Query, known: int) -> CachedSequence | None:
        """The idle sequence that matches the prompt once its gaps are closed."""
        moved: CachedSequence | None = None
        prompt = query.tokens
        for _ in range(MAX_GAPS if self.shifts else 0):
            idle = [s for s in self._free() if s.tokens and s.owner.name == query.owner.name]
            gaps = [(s, gap) for s in idle if (gap := find_gap(s.packed, prompt, self._controls))]
            if not gaps:
                break
            sequence, gap = max(gaps, key=lambda pair: pair[1].usable)
            gains_little = gap.usable - known <= MAX_DISCARDED_TOKENS
            if gains_little or not self._close_gap(sequence, gap):
                break
            moved, known = sequence, gap.usable
        if moved is not None:
            self.mirror.trim(moved, self._usable(moved, query))
        return moved

    def _close_gap(self, sequence: CachedSequence, gap: Gap) -> bool:
        """Close a gap; False if a running sequence shares the tokens after it."""
        sharing = [
            other
            for other in self.sequences
            if other is not sequence and common_prefix(other.packed, sequence.packed) > gap.end
        ]
        if any(other.busy for other in sharing):
            return False
        for other in sharing:  # its tokens would be moved, too
            self.swap_out(other)
        self.mirror.close(sequence, gap)
        self.counts.gaps_closed += 1
        return bool(sequence.tokens)

    def _store(self, sequence: CachedSequence, keep: int = 0) -> None:
        """Store a sequence in another tier before it is cut to `keep` tokens."""
        # So few tokens are quickly read again.
        if len(sequence.tokens) <= MAX_DISCARDED_TOKENS:
            return
        if not self._stores.wants(sequence, self.mirror.state_size(sequence)):
            return
        entry = self.mirror.save(sequence, keep)
        if entry is not None:
            self._stores.put(entry)
            self.counts.swap_out += 1

    def _report(self) -> None:
        """Renew `tiers`, which other threads read."""
        live = [sequence for sequence in self.sequences if sequence.tokens]
        self.tiers = self._stores.report(live, self.counts)


def cells(sequences: Sequence["array[int]"]) -> int:
    """The cells of some packed sequences, if those that begin alike share what they can."""
    count = 0
    for number, tokens in enumerate(sequences):
        shared = (common_prefix(other, tokens) for other in sequences[:number])
        count += len(tokens) - max(shared, default=0)
    return count
