"""A context with its pool, worked as the scheduler would, and one that starts from nothing."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shepherd.backends.llamacpp.cache.disk_cache import open_disk_cache
from shepherd.backends.llamacpp.cache.prefixes import Query, packed
from shepherd.backends.llamacpp.cache.sequence import HostCache
from shepherd.backends.llamacpp.cache.sequences import CachedSequence, SequencePool
from shepherd.backends.llamacpp.native.context import DECODED, NativeContext, Span
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.native.sizes import MAX_ROLLBACK
from tests.backends.llamacpp.support import settings

TOLERANCE = 1e-4
HOST_BYTES = 4 * 1024 * 1024
START = 3
"""The control token that messages start with."""

KINDS = ["llama", "moe", "gemma", "gemma window", "mamba", "hybrid", "lfm2", "qwen35"]
"""Of memory; each but `gemma window` names a fixture."""

EXACT: dict[str, Any] = {"flash_attention": "off", "cache_type_k": "f32", "cache_type_v": "f32"}
"""Numbers in full width: with halves, one token at a time differs from many by 1e-3."""


@dataclass
class Room:
    """A model, a context and the pool over it."""

    model: NativeModel
    context: NativeContext
    pool: SequencePool

    def run(self, prompt: list[int]) -> tuple[CachedSequence, list[float], int]:
        """Decode a prompt as the scheduler would: its logits and how much was cached."""
        sequence = self.pool.acquire(Query(packed(prompt)))
        assert sequence is not None
        cached = len(sequence.tokens)
        assert cached < len(prompt)
        assert sequence.tokens == prompt[:cached]
        chunk: list[int] = []
        while rest := prompt[len(sequence.tokens) :]:
            chunk = rest[: self.pool.chunk(sequence, min(len(rest), self.context.batch_size))]
            span = Span(sequence.id, sequence.position, chunk, wants_logits=True)
            assert self.context.decode([span]) == DECODED
            self.pool.mirror.extend(sequence, chunk)
            self.pool.mirror.checkpoint(sequence)
        return sequence, self.context.logits(len(chunk) - 1, self.model.vocab.size), cached

    def finish(self, prompt: list[int]) -> tuple[list[float], int]:
        """As `run`, and the sequence is given back."""
        sequence, logits, cached = self.run(prompt)
        self.pool.release(sequence)
        return logits, cached

    def fresh(self, prompt: list[int]) -> list[float]:
        """The logits of a prompt with nothing cached."""
        self.context.clear()
        self.context.decode([Span(0, 0, prompt, wants_logits=True)])
        return self.context.logits(len(prompt) - 1, self.model.vocab.size)

    def check(self) -> None:
        """The mirror is what llama.cpp says."""
        for sequence in self.pool.sequences:
            assert self.context.last_position(sequence.id) == len(sequence.tokens) - 1

    def close(self) -> None:
        """Free all, without saving anything."""
        self.context.close()
        self.model.close()


def memory_settings(kind: str) -> dict[str, Any]:
    """What makes a model's memory of this kind: few cells beside windows, used again and again."""
    return {"swa_full": False, "ubatch": 32} if kind.endswith("window") else {}


def make_room(
    path: Path,
    sequences: int = 3,
    *,
    host: int = HOST_BYTES,
    cache: Path | None = None,
    **values: object,
) -> Room:
    """A room that the caller closes; conversations are saved in the folder `cache`."""
    exact = settings(**{**EXACT, **values})
    model = NativeModel(path, model_params(exact, {}))
    params = context_params(exact, sequences, model.traits)
    params.n_rs_seq = MAX_ROLLBACK
    context = NativeContext(model, params)
    disk = open_disk_cache(cache, exact, path, params)
    controls = model.vocab.controls
    pool = SequencePool(context, model.window, controls, HostCache(host), disk=disk)
    return Room(model, context, pool)


@contextmanager
def opened(path: Path, sequences: int = 3, **values: Any) -> Generator[Room]:
    """A room that is closed behind the block."""
    room = make_room(path, sequences, **values)
    try:
        yield room
    finally:
        room.close()


def difference(a: list[float], b: list[float]) -> float:
    """The largest difference, in parts of the largest logit."""
    largest = max(1.0, *map(abs, b))
    return max(abs(x - y) for x, y in zip(a, b, strict=True)) / largest
