"""The logits of one position, read where llama.cpp keeps them."""

import math
from typing import TYPE_CHECKING

from shepherd.backends.llamacpp.native.context import NativeContext

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Row = NDArray[np.float32]
    Tokens = NDArray[np.intp]

_BLOCKS = 512
"""The parts of a row whose maxima are compared: enough for usual counts, and few to sort."""


def logits_row(context: NativeContext, index: int, size: int) -> "Row":
    """The logits at a batch index; not a copy, and valid until the next batch."""
    import numpy as np

    return np.frombuffer(context.logits_row(index, size), np.float32)


def log_total(row: "Row", shares: "Row") -> float:
    """The logarithm of the sum of all exponentials; `shares` is overwritten."""
    import numpy as np

    best = row.max()
    np.subtract(row, best, out=shares)
    np.exp(shares, out=shares)
    return float(best) + math.log(float(shares.sum()))


def leading_tokens(row: "Row", count: int) -> "Tokens":
    """The tokens with the `count` highest logits in ascending order, and some more.

    The highest logits of the row's blocks bound the result from below.
    """
    import numpy as np

    rows = len(row) // max(_BLOCKS, 2 * count)
    if rows < 2:
        return np.arange(len(row))
    blocks = len(row) // rows
    maxima = row[: rows * blocks].reshape(rows, blocks).max(axis=0)
    bound = np.partition(maxima, blocks - count)[blocks - count]
    return (row >= bound).nonzero()[0]
