"""Whether a prompt leaves room for an answer."""

from shepherd.errors import ContextFullError, InvalidRequestError

RESERVE_SHARE = 8
RESERVE_MOST = 512
"""Of a context that overflows, an eighth is to be freed for the answer, at most this much."""


def check_room(prompt: int, size: int) -> None:
    """Raise ContextFullError unless a prompt of so many tokens leaves room for one more.

    Raises InvalidRequestError when there is no prompt.
    """
    if prompt == 0:
        raise InvalidRequestError("The conversation is empty; there is nothing to answer.")
    if prompt + 1 > size:
        reserve = max(1, min(size // RESERVE_SHARE, RESERVE_MOST))
        raise ContextFullError(
            f"request ({prompt} tokens) exceeds the available context size ({size} tokens)",
            prompt - (size - reserve),
            prompt,
        )
