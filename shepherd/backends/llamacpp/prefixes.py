"""How much of a prompt is known already."""

from collections.abc import Sequence

from shepherd.backends.llamacpp.checkpoints import Checkpoints

_BLOCK = 1024


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens are the same from the start."""
    end = min(len(a), len(b))
    at = 0
    while at < end and a[at : at + _BLOCK] == b[at : at + _BLOCK]:
        at += _BLOCK
    at = min(at, end)
    while at < end and a[at] == b[at]:
        at += 1
    return at


def usable_prefix(
    tokens: Sequence[int], checkpoints: Checkpoints, prompt: Sequence[int], *, rolls_back: bool
) -> int:
    """How many of `tokens`, which are in memory, the prompt can start from.

    At least its last token is left to be decoded. Without `rolls_back` only checkpoints, or all
    tokens, can be started from.
    """
    common = min(common_prefix(tokens, prompt), len(prompt) - 1)
    if rolls_back or common == len(tokens):
        return common
    checkpoint = checkpoints.reach(common)
    return checkpoint.length if checkpoint else 0
