"""How a model makes one vector of a text: which models do, and the context that computes it."""

import ctypes
import math
from array import array
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from shepherd.backends.base import ModelKind
from shepherd.backends.llamacpp.native.batch import Batch
from shepherd.backends.llamacpp.native.bindings import bindings, native_log
from shepherd.backends.llamacpp.native.context import DECODED, Span
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.native.model import ENCODERS, NativeModel, last_error, load_error
from shepherd.backends.llamacpp.native.params import attention, batch_size, context_params
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import BackendError

MAX_SEQUENCES = 64
"""Texts in one batch."""

USUAL_CONTEXT = 8192
"""The longest text in tokens, unless `context_size` is set: memory grows with it."""


class Pooling(IntEnum):
    """How the vectors of a text's tokens become one, by llama.cpp's numbers."""

    NONE = 0
    MEAN = 1
    CLS = 2
    LAST = 3
    RANK = 4


class PooledContext:
    """A context for texts of at most `size` tokens; one thread only.

    Texts are computed together in batches of about `batch_size` tokens. Nothing stays in memory
    between them.
    """

    def __init__(self, model: NativeModel, settings: LlamaCppSection, pooling: Pooling) -> None:
        """Reserve the memory; raises ModelLoadError if there is not enough.

        A file without a pooling type means `Pooling.MEAN`.
        """
        self._lib = bindings()
        size = settings.context_size or USUAL_CONTEXT
        self.size = min(size, model.trained_context) if model.trained_context > 0 else size
        self.batch_size = min(self.size, batch_size(settings))
        self.pooling = pooling if pooling is not Pooling.NONE else Pooling.MEAN
        own = settings.model_copy(update={"context_size": self.size})
        params = context_params(own, MAX_SEQUENCES, model.traits)
        params.flash_attn_type, params.n_ubatch = attention(own, model.traits, self.size)
        params.n_batch = self.size
        params.embeddings = True
        params.pooling_type = int(self.pooling)
        native_log.take_errors()
        self.handle: Any = self._lib.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise load_error(f"No context of {self.size} tokens can be made")
        self._memory: Any = self._lib.llama_get_memory(self.handle)
        self.sequences: int = self._lib.llama_n_seq_max(self.handle)
        ranks = self.pooling is Pooling.RANK
        self.width: int = 1 if ranks else self._lib.llama_model_n_embd_out(model.handle)
        """The numbers in a vector; a score is one number."""
        self._batch = Batch(self.size)

    def compute(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """The vector of each text, at most `sequences` texts of `size` tokens together.

        Raises BackendError if llama.cpp can't compute them.
        """
        self._clear()
        spans = [Span(i, 0, text, True, len(text)) for i, text in enumerate(texts)]
        self._batch.fill(spans)
        code: int = self._lib.llama_decode(self.handle, self._batch.native)
        try:
            if code != DECODED:
                raise BackendError(f"llama.cpp could not compute a batch ({code}): {last_error()}")
            return [self._vector(sequence) for sequence in range(len(texts))]
        finally:
            self._clear()

    @property
    def used_sequences(self) -> int:
        """The sequences that hold tokens, for tests."""
        if not self._memory:
            return 0
        last = self._lib.llama_memory_seq_pos_max
        return sum(last(self._memory, sequence) >= 0 for sequence in range(self.sequences))

    def close(self) -> None:
        """Free the context; safe to call twice."""
        if self.handle:
            self._lib.llama_free(self.handle)
            self.handle = None

    def _vector(self, sequence: int) -> list[float]:
        pointer = self._lib.llama_get_embeddings_seq(self.handle, sequence)
        if not pointer:
            raise BackendError("llama.cpp gives no vector for a text")
        numbers = array("f", ctypes.string_at(pointer, 4 * self.width))
        if not all(map(math.isfinite, numbers)):
            raise BackendError("the model's vector for a text is not a number")
        return numbers.tolist()

    def _clear(self) -> None:
        if self._memory:  # an encoder has none
            self._lib.llama_memory_clear(self._memory, False)


def kind_of(pooling: Pooling | None) -> ModelKind:
    """What a model makes that pools like this, None for not at all."""
    if pooling is None:
        return ModelKind.TEXT
    return ModelKind.RERANKING if pooling is Pooling.RANK else ModelKind.EMBEDDING


def pooling_of(path: Path) -> Pooling | None:
    """How the model at `path` pools, None for a model that writes text.

    Raises ModelLoadError for a damaged file.
    """
    return _pooling(check_model_file(path).values)


def _pooling(values: Mapping[str, Any]) -> Pooling | None:
    architecture: object = values.get("general.architecture")
    number: object = values.get(f"{architecture}.pooling_type")
    pooling = next((kind for kind in Pooling if kind == number), Pooling.NONE)
    if pooling is not Pooling.NONE:
        return pooling
    return Pooling.NONE if architecture in ENCODERS else None
