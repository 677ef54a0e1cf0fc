"""A context that can be watched, and a model that computes everything from nothing."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shepherd.backends.llamacpp.engine import make_deterministic
from shepherd.backends.llamacpp.native.context import DECODED, Interrupt, NativeContext, Span
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import (
    context_params,
    model_params,
    set_deterministic_context,
)
from shepherd.config.llamacpp import LlamaCppSection
from tests.backends.llamacpp.support import settings

TOLERANCE = 1e-4
"""Between logits, in parts of the largest; tokens twice as far apart are clearly apart."""

CONTEXT = 256
Logits: TypeAlias = NDArray[np.float32]
EXACT: dict[str, Any] = {
    "flash_attention": "off",
    "cache_type_k": "f32",
    "cache_type_v": "f32",
    "context_size": CONTEXT,
}
"""Numbers in full width: with halves, one token at a time differs from many by 1e-3."""


DETERMINISTIC: dict[str, Any] = {
    "deterministic": True,
    "context_size": CONTEXT,
    "ubatch": CONTEXT,
    "cache_type_k": "f16",
    "cache_type_v": "f16",
}


class WatchedContext(NativeContext):
    """A real context that tells of every span that was computed, with its logits if wanted."""

    def __init__(self, model: NativeModel, params: Any) -> None:
        super().__init__(model, params)
        self.watch: Callable[[Span, Logits | None], None] = _ignore
        self._vocabulary = model.vocab.size

    def decode(self, spans: Sequence[Span], interrupt: Interrupt | None = None) -> int:
        code = super().decode(spans, interrupt)
        index = -1
        for span in spans if code == DECODED else ():
            index += len(span.tokens)
            self.watch(span, self.row(index) if span.wants_logits else None)
        return code

    def row(self, index: int) -> Logits:
        """The logits at a batch index."""
        return np.frombuffer(self.logits_row(index, self._vocabulary), np.float32).copy()


def watched_context(model: NativeModel, values: LlamaCppSection, sequences: int) -> WatchedContext:
    """A context with these settings, as the engine opens it."""
    params = context_params(values, sequences, model.traits)
    if values.deterministic:
        set_deterministic_context(params, model.trained_context)
    context = WatchedContext(model, params)
    if values.deterministic:
        make_deterministic(model, context)
    return context


class Reference:
    """The same model without any memory: every request is computed from nothing."""

    def __init__(self, path: Path, **values: object) -> None:
        """`values` are settings other than `EXACT`."""
        exact = settings(**(EXACT | values))
        self._model = NativeModel(path, model_params(exact, {}))
        self._context = watched_context(self._model, exact, 1)
        self.vocab = self._model.vocab

    def logits(self, tokens: list[int], lengths: Sequence[int]) -> dict[int, Logits]:
        """The logits behind so many tokens."""
        self._context.clear()
        bounds = sorted(set(lengths))
        end = bounds[-1]
        assert self._context.decode([Span(0, 0, tokens[:end], True, outputs=end)]) == DECODED
        return {length: self._context.row(length - 1) for length in bounds}

    def close(self) -> None:
        self._context.close()
        self._model.close()


def _ignore(_span: Span, _logits: Logits | None) -> None:
    """Nobody watches."""
