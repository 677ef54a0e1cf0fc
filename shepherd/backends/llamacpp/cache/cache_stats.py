"""What the prefix cache did, and what is in it."""

from dataclasses import dataclass

from shepherd.backends.base import CacheTier


@dataclass(slots=True)
class CacheCounts:
    """What the cache did since the model was loaded."""

    memory_hits: int = 0
    memory_tokens: int = 0
    host_hits: int = 0
    host_tokens: int = 0
    disk_hits: int = 0
    disk_tokens: int = 0
    misses: int = 0
    cleared: int = 0
    put_away: int = 0
    gaps_closed: int = 0

    def note(self, tokens: int, *, restored: bool) -> None:
        """A prompt begins with so many tokens that were known; restored ones count elsewhere."""
        if tokens and not restored:
            self.memory_hits += 1
            self.memory_tokens += tokens
        elif not tokens:
            self.misses += 1

    def note_restored(self, tokens: int, *, on_disk: bool) -> None:
        """A prompt's beginning came back into memory."""
        if not tokens:
            return
        if on_disk:
            self.disk_hits += 1
            self.disk_tokens += tokens
        else:
            self.host_hits += 1
            self.host_tokens += tokens


@dataclass(frozen=True, slots=True)
class Held:
    """What one tier holds, and how many entries it gave up."""

    entries: int = 0
    bytes: int = 0
    evictions: int = 0


def cache_tiers(counts: CacheCounts, memory: Held, host: Held, disk: Held) -> tuple[CacheTier, ...]:
    """What users are told."""
    rows = (
        ("memory", memory, counts.memory_hits, counts.memory_tokens),
        ("host", host, counts.host_hits, counts.host_tokens),
        ("disk", disk, counts.disk_hits, counts.disk_tokens),
    )
    return tuple(
        CacheTier(name, held.entries, held.bytes, hits, tokens, held.evictions)
        for name, held, hits, tokens in rows
    )
