"""States as the caches store them, without a model."""

from shepherd.backends.llamacpp.cache.disk_cache import Fingerprint
from shepherd.backends.llamacpp.cache.prefixes import packed
from shepherd.backends.llamacpp.cache.sequence import Checkpoint, Checkpoints, StoredSequence

MINE = Fingerprint("place", "origin", "context")


def stored(number: int, length: int, size: int, used: float) -> StoredSequence:
    """A sequence of equal tokens with a checkpoint in its middle."""
    checkpoints = Checkpoints()
    checkpoints.add(Checkpoint(length // 2, bytearray(b"c" * 100)))
    return StoredSequence(packed([number] * length), bytearray(size), checkpoints, used)
