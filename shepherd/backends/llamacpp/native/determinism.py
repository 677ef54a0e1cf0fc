"""Results that do not depend on the other tokens of a batch, for `llamacpp.deterministic`.

llama.cpp chooses its kernels by the number of tokens, and kernels round differently. What differs
on a CPU, and what is done about it:

- One token takes other kernels than several. Every part of a batch is padded to `rows` tokens.
- Flash attention splits long contexts by the number of tokens and threads. It is off.
- Attention sums over cells in the order of memory. Each sequence has its own cells.
- Repacked and tiled weights are computed in groups of tokens. Both are off.
"""

import os
from typing import Any

ROWS = (2, 4, 8)
"""Tokens to which parts of batches are padded; the first number that passes the check is used."""

_TILED_VARIABLE = "GGML_CPU_TILED_MM"
_PADDING = 256
"""llama.cpp's unit for the size of a context."""


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
