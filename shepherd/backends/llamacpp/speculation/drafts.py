"""Drafts of a request: tokens that may come next, decoded together with the next one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from shepherd.backends.llamacpp.speculation.payoff import Chance

INDEXED_AT_ONCE = 8192
"""Tokens that one look-up may add to the index, so that a long prompt holds nobody up."""

MOST = 16
"""Tokens of one draft."""

_IMAGINED = 8


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


class DraftKind(Enum):
    """Where a draft comes from: a long or a short match in the conversation, or a small model."""

    LONG = auto()
    SHORT = auto()
    MODEL = auto()


MATCHES = {DraftKind.LONG: 6, DraftKind.SHORT: 3}
"""Tokens that must be the same, by kind."""

UNKNOWN = {DraftKind.LONG: 0.8, DraftKind.SHORT: 0.4, DraftKind.MODEL: 0.6}
"""How likely a drafted token is taken to be right before anything was measured."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens that may follow."""

    tokens: list[int]
    kind: DraftKind


class Drafting:
    """What one request learns about its drafts."""

    def __init__(self, everywhere: Mapping[DraftKind, Chance], *, lookup: bool) -> None:
        """`everywhere` is what all requests together learned."""
        self.chances = {kind: Chance(UNKNOWN[kind], known) for kind, known in everywhere.items()}
        matches = MATCHES if lookup else {}
        self._indexes = {kind: NgramIndex(size) for kind, size in matches.items()}
        self._imagined: Draft | None = None
        self._imagined_at = 0

    def look_up(self, tokens: Sequence[int], most: int) -> Draft | None:
        """A draft from the conversation; the longest match counts. All indexes keep up."""
        self._compare(tokens)
        found = [
            Draft(draft, kind)
            for kind, index in self._indexes.items()
            if (draft := index.draft(tokens, most))
        ]
        return found[0] if found else None

    def imagine(self, draft: Draft, at: int) -> None:
        """Leave a draft behind `at` tokens unused, but learn from it what it would have given."""
        if self._imagined is None:
            self._imagined = Draft(draft.tokens[:_IMAGINED], draft.kind)
            self._imagined_at = at

    def _compare(self, tokens: Sequence[int]) -> None:
        if self._imagined is None:
            return
        drafted, came = self._imagined.tokens, tokens[self._imagined_at :]
        right = 0
        for expected, token in zip(drafted, came, strict=False):
            if expected != token:
                break
            right += 1
        if right < len(came) or len(came) >= len(drafted):
            self.chances[self._imagined.kind].note(right, len(drafted))
            self._imagined = None
