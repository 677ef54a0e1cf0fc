"""Results that do not depend on the other tokens of a batch, for `llamacpp.deterministic`.

llama.cpp chooses its kernels by the number of tokens, and kernels round differently. What differs
on a CPU, and what is done about it:

- One token takes other kernels than several. Every part of a batch is padded to `rows` tokens.
- Flash attention splits long contexts by the number of tokens and threads. It is off.
- Attention sums over cells in the order of memory. Each sequence has its own cells.
- Repacked and tiled weights are computed in groups of tokens. Both are off.
"""

import sys
from collections.abc import Callable, Sequence

from shepherd.backends.llamacpp.native.batch import Span
from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.native.devices import has_gpu
from shepherd.backends.llamacpp.native.params import ROWS
from shepherd.errors import ModelLoadError

_GROUPS = 4
_MIN_TOKENS_ON_OTHER_DEVICES = 64
"""BLAS libraries and GPUs have kernels for larger batches too."""


def make_deterministic(context: NativeContext, vocabulary: int) -> None:
    """Pad batches so that results do not depend on them; raises ModelLoadError if they still do.

    The memory must be empty, and the parameters those of `set_context_params`.
    """

    def agree(rows: int, count: int) -> bool:
        context.pad_to(rows)
        tokens = [place % vocabulary for place in range(1, count + 1)]
        parts = [tokens[:rows], tokens[rows:-rows], tokens[-rows:]]
        return _last_logits(context, [tokens], vocabulary) == _last_logits(
            context, parts, vocabulary
        )

    choose_rows(agree)


def choose_rows(agree: Callable[[int, int], bool]) -> int:
    """The smallest number of rows with which all batches agree; raises ModelLoadError.

    `agree(rows, tokens)` computes so many tokens at once and in parts of at least `rows`.
    """
    is_other_device = has_gpu() or sys.platform == "darwin"
    for rows in ROWS:
        tokens = _GROUPS * rows
        if is_other_device:
            tokens = max(tokens, _MIN_TOKENS_ON_OTHER_DEVICES)
        if agree(rows, tokens):
            return rows
    raise ModelLoadError(
        "llamacpp.deterministic is not possible with this model on this device: its results "
        "depend on the number of tokens that are computed at once. Turn the setting off."
    )


def _last_logits(context: NativeContext, parts: Sequence[Sequence[int]], vocabulary: int) -> bytes:
    """The last logits of a sequence that is decoded in parts, beside another one."""
    start = 0
    for part in parts:
        spans = [Span(0, start, part, wants_logits=True)]
        if context.sequences > 1:
            spans.append(Span(1, start, part[::-1], wants_logits=start > 0))
        context.decode(spans)
        start += len(part)
    logits = bytes(context.logits_row(len(parts[-1]) - 1, vocabulary))
    context.clear()
    context.decoded_tokens = context.decoded_batches = 0
    return logits
