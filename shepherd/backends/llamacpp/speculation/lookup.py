"""Drafts from the conversation itself: what stood behind the same few tokens before."""

from collections.abc import Sequence

INDEXED_AT_ONCE = 8192
"""Tokens that one look-up may add to the index, so that a long prompt holds nobody up."""


class NgramIndex:
    """Where in a growing list of tokens its last `size` tokens stood before.

    Each token is added once; nothing that was added may change.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._behind: dict[tuple[int, ...], int] = {}
        self._next = size

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        """What may follow `tokens`, which begin with those of the call before.

        A repetition that has not ended is taken to go on.
        """
        self._add(tokens)
        start = self._behind.get(tuple(tokens[-self._size :]))
        if start is None:
            return []
        found = list(tokens[start : start + most])
        while len(found) < most:
            found += found[: most - len(found)]
        return found

    def _add(self, tokens: Sequence[int]) -> None:
        """Index what ends before the last token: the end itself is what is looked up."""
        start = self._next
        stop = min(len(tokens), start + INDEXED_AT_ONCE)
        if stop <= start:
            return
        size = self._size
        self._next = stop
        if stop - start == 1:
            self._behind[tuple(tokens[start - size : start])] = start
            return
        columns = (tokens[start - size + i : stop - size + i] for i in range(size))
        self._behind.update(zip(zip(*columns, strict=True), range(start, stop), strict=True))
