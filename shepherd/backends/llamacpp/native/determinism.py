"""Results that do not depend on the other tokens of a batch, for `llamacpp.deterministic`.

llama.cpp chooses its kernels by the number of tokens, and kernels round differently. What differs
on a CPU, and what is done about it:

- One token takes other kernels than several. Every part of a batch is padded to `rows` tokens.
- Flash attention splits long contexts by the number of tokens and threads. It is off.
- Attention sums over cells in the order of memory. Each sequence has its own cells.
- Repacked and tiled weights are computed in groups of tokens. Both are off.
"""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

ROWS = (2, 4, 8)
"""Tokens to which parts of batches are padded; the first number that passes the check is used."""

_TILED_VARIABLE = "GGML_CPU_TILED_MM"
_PADDING = 256
"""llama.cpp's unit for the size of a context."""


class Span(NamedTuple):
    """Tokens of one sequence in a batch; `start` is the position of the first.

    The last `outputs` tokens give logits if `wants_logits` is true.
    """

    sequence: int
    start: int
    tokens: Sequence[int]
    wants_logits: bool
    outputs: int = 1


class Padded(NamedTuple):
    """Spans with padding, and the index in the batch of each token of the original spans."""

    spans: list[Span]
    places: list[int]


def pad(spans: Sequence[Span], rows: int) -> Padded:
    """Pad the tokens and the outputs of each span to a multiple of `rows`.

    llama.cpp splits a batch at multiples of the shortest span, so no part of it has fewer rows.
    """
    padded: list[Span] = []
    places: list[int] = []
    at = 0
    for span in spans:
        count = len(span.tokens)
        missing = -count % rows
        outputs = span.outputs + missing
        padded.append(
            span._replace(
                tokens=[*span.tokens, *[span.tokens[-1]] * missing],
                outputs=outputs + -outputs % rows,
            )
        )
        places.extend(range(at, at + count))
        at += count + missing
    return Padded(padded, places)


def set_model_params(params: Any) -> None:
    """Change the parameters of a model: its weights are not repacked for groups of tokens.

    llama.cpp reads the variable for tiled weights once, before the first batch of the process.
    """
    params.use_extra_bufts = False
    os.environ[_TILED_VARIABLE] = "0"


def set_context_params(params: Any, trained_context: int) -> None:
    """Change the parameters of a context: each sequence has its own cells, as many as the context.

    A batch is computed at once, because llama.cpp could split it between any two tokens.
    """
    sequences, padding = params.n_seq_max, ROWS[-1]
    size = (params.n_ctx or trained_context) + padding
    params.n_ctx = sequences * (size + -size % _PADDING)
    params.kv_unified = False
    params.swa_full = True
    params.n_ubatch = max(params.n_ubatch, 2 * padding * sequences)
    params.n_batch = params.n_ubatch
