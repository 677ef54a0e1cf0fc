"""A question on a screen: its marked entry, its visible text, and when an answer counts."""

import time
from collections.abc import Callable

from shepherd.cli.approval.document import Line, fact
from shepherd.cli.approval.pager import Gutter, Pager
from shepherd.cli.approval.question import QUIET_SECONDS, Answer, Entry, Question

WAITING = "In a moment. Any key takes it back."
WITHDRAWN = "A key was pressed: nothing was approved."
TOO_SOON = "Too soon after the last key: nothing was approved. Press Enter again."
MARKED = "This answer is marked. Enter chooses it."
PAGED = "Enter shows what follows; a yes counts when the end was shown."
TYPED = "Typing was seen: it is in the prompt, nothing was approved."
SENT = "The message waits for the answer to this question."
TYPING = "Typing a message: Enter sends it. Tab or an arrow goes back to the question."


class Dialog:
    """Handles keys; `answer` is set when the user has chosen.

    A yes counts if three conditions hold: the end of the text was visible; no key was pressed for
    QUIET_SECONDS before Enter; and none for QUIET_SECONDS after it. Enter has no effect before the
    question was drawn. A second letter in a row is typing, which belongs to the prompt.
    """

    def __init__(
        self,
        question: Question,
        gutter: Gutter,
        measure: Callable[[str], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.question = question
        self.answer: Answer | None = None
        self.note = ""
        self._gutter = gutter
        self.measure = measure
        self._clock = clock
        self._marked = 0
        self._marked_before = 0
        self._typed = ""
        self._drawn: Entry | None = None
        self._calm_since: float | None = None
        self._chosen_at: float | None = None
        self._seen: set[Answer | None] = set()
        self._rules_paged = False
        self.pager = self._new_pager(())

    @property
    def marked(self) -> Entry:
        """The entry that Enter would choose."""
        return self.question.entries[self._marked]

    @property
    def is_visible(self) -> bool:
        """Whether the question has been on the screen."""
        return self._calm_since is not None

    @property
    def is_waiting(self) -> bool:
        """Whether a yes is about to take effect."""
        return self._chosen_at is not None

    @property
    def rules_paged(self) -> bool:
        """Whether the marked entry's rules are part of the paged text."""
        return self._rules_paged

    def page_rules(self, *, paged: bool) -> None:
        """Put the marked entry's rules at the end of the text if they need too many rows."""
        if paged != self._rules_paged:
            self._rules_paged = paged
            place = self.pager.place
            self.pager = self._new_pager(self.marked.rules if paged else ())
            self.pager.place = place
            if paged and None in self._seen:
                self.pager.end()

    def drawn(self, *, end: bool, legible: bool = True) -> None:
        """Note that the screen was drawn; `end` tells whether it contains the end of the text.

        A screen that is not `legible` shows no question, so nothing can be allowed on it.
        """
        self._drawn = self.marked if legible else None
        if not self.is_visible:
            self._calm_since = self._clock()
        if end and self._seen_key not in self._seen:
            self._seen.add(self._seen_key)
            self._calm_since = self._clock()

    def move(self, step: int) -> None:
        """Mark the next or the previous entry."""
        self._navigate()
        count = len(self.question.entries)
        self._mark((self._marked + step) % count)

    def page(self, turn: Callable[[Pager], None]) -> None:
        """Show another part of the text."""
        self._navigate()
        turn(self.pager)

    def enter(self) -> None:
        """Choose the marked entry, if a choice counts now."""
        self._typed = ""
        if self._withdraw() or not self.is_visible:
            return
        if not self.marked.answer.allows:
            self.answer = self.marked.answer
        elif self._drawn is not self.marked:
            self.disturb(TOO_SOON)
        elif self._seen_key not in self._seen:
            self.pager.forward()
            self.disturb(PAGED)
        elif not self._is_calm:
            self.disturb(TOO_SOON)
        else:
            self._chosen_at = self._clock()
            self.note = WAITING

    def disturb(self, note: str = "") -> None:
        """Note a key that is not an answer; keys directly after it are not answers either."""
        self._withdraw()
        self.note = note or self.note
        if self._calm_since is not None:
            self._calm_since = self._clock()

    def type(self, character: str, *, burst: bool = False) -> str:
        """Handle a printable character; returns the text that belongs to the prompt."""
        was_waiting = self._withdraw()
        if was_waiting and not character.isalnum():
            return ""
        if burst or was_waiting or not self.is_visible:
            return self._as_typing(self._typed + character)
        before, self._typed = self._typed, self._typed + character
        if character == " ":
            self.pager.forward()
            return ""
        entry = self._entry_of(character.lower())
        if before.strip(" gG"):
            return self._as_typing(self._typed)
        if character == "g":
            self.pager.begin()
        elif character == "G":
            self.pager.end()
        elif entry is not None:
            self._marked_before = self._marked
            self._mark(entry)
            self.disturb(MARKED)
        else:
            return self._as_typing(self._typed)
        return ""

    def missing_seconds(self) -> float:
        """The remaining seconds without a key until the choice takes effect."""
        if self._chosen_at is None:
            return QUIET_SECONDS
        return self._chosen_at + QUIET_SECONDS - self._clock()

    def carry_out(self) -> None:
        """Make the choice the answer."""
        self.answer = self.marked.answer

    @property
    def _seen_key(self) -> Answer | None:
        return self.marked.answer if self._rules_paged else None

    @property
    def _is_calm(self) -> bool:
        return self._calm_since is not None and self._clock() - self._calm_since >= QUIET_SECONDS

    def _new_pager(self, rules: tuple[str, ...]) -> Pager:
        added: list[Line] = [fact(f"adds: {rule}", "") for rule in rules]
        return Pager([*self.question.lines, *added], self._gutter, self.measure)

    def _mark(self, index: int) -> None:
        if index != self._marked:
            self._marked = index
            self.page_rules(paged=False)

    def _entry_of(self, character: str) -> int | None:
        keys = [entry.letter for entry in self.question.entries]
        if character in keys:
            return keys.index(character)
        number = int(character) if character in "123456789" else 0
        return number - 1 if 0 < number <= len(keys) else None

    def _navigate(self) -> None:
        self._typed = ""
        self.note = ""
        self._withdraw()

    def _as_typing(self, text: str) -> str:
        if self._typed:
            self._mark(self._marked_before)
        self._typed = ""
        self.disturb(TYPED if self.is_visible else "")
        return text.lstrip() if len(text) > 1 else text

    def _withdraw(self) -> bool:
        if self._chosen_at is None:
            return False
        self._chosen_at = None
        self.note = WITHDRAWN
        self._calm_since = self._clock()
        return True
