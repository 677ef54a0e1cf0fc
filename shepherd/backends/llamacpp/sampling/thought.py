"""Ends reasoning that takes more tokens than its budget."""

import codecs
from collections.abc import Sequence

from msgspec import Struct

from shepherd.backends.output.style import ThinkMarkers

EFFORT_TOKENS = {"minimal": 256, "low": 1024, "medium": 4096, "high": 16_384}
"""The budget of each effort, for models whose template does not know efforts."""


class ThoughtBudget(Struct, frozen=True):
    """The tokens that a model may reason, and the markers around reasoning.

    `begun` are the markers of reasoning that the prompt has begun; None if the answer may begin it.
    """

    tokens: int
    markers: Sequence[ThinkMarkers]
    begun: ThinkMarkers | None = None


def thought_budget(
    tokens: int | None, markers: Sequence[ThinkMarkers], prompt_tail: str
) -> ThoughtBudget | None:
    """The budget of an answer after a prompt that ends with this text; None without a limit."""
    if tokens is None or not markers:
        return None
    tail = prompt_tail.rstrip()
    begun = next((one for one in markers if tail.endswith(one.open)), None)
    return ThoughtBudget(tokens, markers, begun)


class ThoughtMeter:
    """Counts the tokens of reasoning in one answer."""

    def __init__(self, budget: ThoughtBudget) -> None:
        self._budget = budget
        self._markers = budget.begun
        self._beginning = ""
        """The answer so far, until it is known whether it begins with reasoning."""
        self._tail = ""
        """The end of the reasoning, in which a closing marker would be."""
        self._tokens = 0
        self._over = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: bytes) -> None:
        """Read the text of the next token."""
        if self._over:
            return
        text = self._decoder.decode(piece)
        if self._markers is None:
            self._look_for_start(text)
            return
        self._tokens += 1
        self._tail = (self._tail + text)[-len(self._markers.close) - 1 :]
        self._over = self._markers.close in self._tail

    @property
    def ending(self) -> str:
        """The text that must end the reasoning now; "" before the budget is used up.

        A closing marker that has begun may be completed by the model.
        """
        markers = self._markers
        if self._over or markers is None or self._tokens < self._budget.tokens:
            return ""
        if any(self._tail.endswith(markers.close[:size]) for size in range(1, len(markers.close))):
            return ""
        newline = "" if self._tail.endswith("\n") else "\n"
        return f"{newline}{markers.close}" + "\n" * markers.after

    def end(self) -> None:
        """Count no more: the reasoning was ended, or it can't be."""
        self._over = True

    def _look_for_start(self, text: str) -> None:
        """Find out whether the answer begins with reasoning; if not, nothing is counted."""
        self._beginning = (self._beginning + text).lstrip()
        for markers in self._budget.markers:
            if self._beginning.startswith(markers.open):
                self._markers = markers
                return
        may_follow = any(m.open.startswith(self._beginning) for m in self._budget.markers)
        self._over = not may_follow
