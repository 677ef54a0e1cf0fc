"""A question on a screen: its marked entry, its visible text, and when an answer counts."""

import time
from collections.abc import Callable

from msgspec import Struct

from shepherd.cli.approval.pager import Pager, Row, fold
from shepherd.cli.approval.question import QUIET_SECONDS, Answer, Entry, Line, Question, fact

WAITING = "In a moment. Any key takes it back."
WITHDRAWN = "A key was pressed: nothing was approved."
TOO_SOON = "Too soon after the last key: nothing was approved. Press Enter again."
MARKED = "This answer is marked. Enter chooses it."
DETAILS_KEY = "d"
PAGED = "Enter shows what follows; a yes counts when the end was shown."
TYPED = "Typing was seen: it is in the prompt, nothing was approved."
SENT = "The message waits for the answer to this question."
TYPING = "Typing a message: Enter sends it. Tab or an arrow goes back to the question."


PAIR_SECONDS = 1.0


class Dialog:
    """Handles keys; `answer` is set when the user has chosen.

    A yes counts if three conditions hold: the end of the text was visible; no key was pressed for
    QUIET_SECONDS before Enter; and none for QUIET_SECONDS after it. It counts at once if a letter
    or number has marked it, and no key was pressed for PAIR_SECONDS before that. Enter has no
    effect before the question was drawn. A second letter in a row is typing, which belongs to the
    prompt.
    """

    def __init__(
        self, question: Question, clock: Callable[[], float] = time.monotonic, *, unicode: bool
    ) -> None:
        self.question = question
        self.answer: Answer | None = None
        self.note = ""
        """A sentence about the last key, below the menu."""
        self._unicode = unicode
        self._clock = clock
        # the menu, and the letters that mark an entry or are the beginning of a word
        self._marked_index = 0
        self._index_before_letters = 0
        """The entry that was marked before `_last_letters`."""
        self._last_letters = ""
        """The letters since the last other key."""
        # what counts before a yes; times are those of `clock`
        self._drawn_entry: Entry | None = None
        """The marked entry when the screen was drawn; None if nothing legible was."""
        self._calm_since: float | None = None
        """The time of the last key, or since when the end is visible; None before it is drawn."""
        self._entered_at: float | None = None
        """The time of the Enter that takes effect soon; None without one."""
        self._is_pair_begun = False
        """Whether the last key was a letter or number of an entry, after PAIR_SECONDS without."""
        self._read_to_end: set[Answer | None] = set()
        """The texts whose end was visible: that with the rules of an answer, or None for none."""
        self._rules_paged = False
        """Whether the rules of the marked entry are at the end of the text."""
        self._has_details = False
        """Whether the details are below the text."""
        self.pager = self._new_pager(())

    @property
    def marked(self) -> Entry:
        """The entry that Enter would choose."""
        return self.question.entries[self._marked_index]

    @property
    def is_visible(self) -> bool:
        """Whether the question has been on the screen."""
        return self._calm_since is not None

    @property
    def is_waiting(self) -> bool:
        """Whether a yes is about to take effect."""
        return self._entered_at is not None

    def page_rules(self, *, paged: bool) -> None:
        """Put the marked entry's rules at the end of the text if they need too many rows."""
        if paged == self._rules_paged:
            return
        self._rules_paged = paged
        place = self.pager.place
        self.pager = self._new_pager(self.marked.rules if paged else ())
        self.pager.place = place  # what was visible stays
        # without rules (None) the text was read to its end, so only they are new
        if paged and None in self._read_to_end:
            self.pager.end()

    def note_drawn(self, *, end: bool, legible: bool = True) -> None:
        """Note that the screen was drawn; `end` tells whether it contains the end of the text.

        A screen that is not `legible` shows no question, so nothing can be allowed on it.
        """
        self._drawn_entry = self.marked if legible else None
        if not self.is_visible:  # a key that was pressed before is not meant for the question
            self._calm_since = self._clock()
        if end and self._current_text not in self._read_to_end:
            self._read_to_end.add(self._current_text)
            self._is_pair_begun = False
            self._calm_since = self._clock()  # an Enter for the page before is not a yes

    def move(self, step: int) -> None:
        """Mark the next or the previous entry."""
        self._navigate()
        count = len(self.question.entries)
        self._mark((self._marked_index + step) % count)

    def page(self, turn: Callable[[Pager], None]) -> None:
        """Show another part of the text."""
        self._navigate()
        turn(self.pager)

    def enter(self) -> None:
        """Choose the marked entry, if a choice counts now."""
        self._last_letters = ""
        is_pair, self._is_pair_begun = self._is_pair_begun, False
        if self._withdraw() or not self.is_visible:  # a second Enter takes the first one back
            return
        if not self.marked.answer.allows:  # a no needs no care
            self.answer = self.marked.answer
        elif self._drawn_entry is not self.marked:  # the user has not seen what is marked
            self.disturb(TOO_SOON)
        elif self._current_text not in self._read_to_end:  # a yes is for what was shown
            self.pager.forward()
            self.disturb(PAGED)
        elif is_pair:  # nobody types a letter of the menu alone after a pause, and sends it
            self.carry_out()
        elif not self._is_calm_for(QUIET_SECONDS):  # it may belong to what was typed before
            self.disturb(TOO_SOON)
        else:
            self._entered_at = self._clock()
            self.note = WAITING

    def disturb(self, note: str = "") -> None:
        """Note a key that is not an answer; keys directly after it are not answers either."""
        self._withdraw()  # its own note stays if there is no other one
        self.note = note or self.note
        self._is_pair_begun = False
        if self.is_visible:
            self._calm_since = self._clock()

    def type(self, character: str, *, burst: bool = False) -> str:
        """Handle a printable character; returns the text that belongs to the prompt.

        A single key pages or marks an entry. A second letter in a row is typing, as is a `burst`:
        a character after which more have arrived already.
        """
        was_waiting = self._withdraw()
        if was_waiting and not character.isalnum():  # it only takes the choice back
            return ""
        if not self._last_letters:
            self._index_before_letters = self._marked_index
        is_second_letter = self._last_letters.strip(" gG") != ""  # these page, they begin no word
        self._last_letters += character
        index = self._index_of(character.lower())
        if burst or was_waiting or not self.is_visible:
            return self._take_letters()
        if character == " ":
            self.pager.forward()
        elif is_second_letter:
            return self._take_letters()
        elif character == "g":
            self.pager.begin()
        elif character == "G":
            self.pager.end()
        elif character == DETAILS_KEY and self.question.details:
            self._toggle_details()
        elif index is not None:
            begins_pair = self._last_letters == character and self._is_calm_for(PAIR_SECONDS)
            self._mark(index)
            self.disturb(MARKED)
            self._is_pair_begun = begins_pair
        else:
            return self._take_letters()
        return ""

    def missing_seconds(self) -> float:
        """The remaining seconds without a key until the choice takes effect."""
        if self._entered_at is None:
            return QUIET_SECONDS
        return self._entered_at + QUIET_SECONDS - self._clock()

    def carry_out(self) -> None:
        """Make the choice the answer."""
        self.answer = self.marked.answer

    @property
    def _current_text(self) -> Answer | None:
        """The text that is paged now, as `_read_to_end` has it."""
        return self.marked.answer if self._rules_paged else None

    def _is_calm_for(self, seconds: float) -> bool:
        """Whether no key was pressed for so long, and the end of the text is no surprise."""
        return self._calm_since is not None and self._clock() - self._calm_since >= seconds

    def _toggle_details(self) -> None:
        """Show the details from their beginning, or the text alone."""
        self._has_details = not self._has_details
        self._rules_paged = False  # the next drawing measures them again
        place = self.pager.place
        self.pager = self._new_pager(())
        if None not in self._read_to_end:
            self.pager.place = place  # what nobody has seen is not passed over
        elif self._has_details:
            self.pager.place = (len(self.question.lines), 0)
        else:
            self.pager.end()

    def _new_pager(self, rules: tuple[str, ...]) -> Pager:
        added: list[Line] = [fact(f"adds: {rule}", "") for rule in rules]
        details = self.question.details if self._has_details else ()
        return Pager([*self.question.lines, *details, *added], unicode=self._unicode)

    def _mark(self, index: int) -> None:
        """Mark another entry, whose rules take the place of those of the one before."""
        if index != self._marked_index:
            self._marked_index = index
            self.page_rules(paged=False)  # the next drawing measures the rules of this entry

    def _index_of(self, character: str) -> int | None:
        """The index of the entry with this letter or number."""
        keys = [entry.letter for entry in self.question.entries]
        if character in keys:
            return keys.index(character)
        number = int(character) if character in "123456789" else 0
        return number - 1 if 0 < number <= len(keys) else None

    def _navigate(self) -> None:
        """Note a key that moves, which is no answer and no typing."""
        self._last_letters = ""
        self._is_pair_begun = False
        self.note = ""
        self._withdraw()

    def _take_letters(self) -> str:
        """The last letters, for the prompt: they were no answer, so what they marked is undone."""
        letters, self._last_letters = self._last_letters, ""
        self._mark(self._index_before_letters)
        self.disturb(TYPED if self.is_visible else "")
        return letters if len(letters) == 1 else letters.lstrip()  # blanks before them have paged

    def _withdraw(self) -> bool:
        """Take back a choice that has not taken effect; returns whether there was one."""
        if self._entered_at is None:
            return False
        self._entered_at = None
        self.note = WITHDRAWN
        self._calm_since = self._clock()
        return True


MIN_WIDTH = 20
"""A narrower window can't show enough for a yes."""
MIN_WIDTH_FOR_KEYS = 55
MIN_TEXT_ROWS = 3
"""With fewer rows for the text, everything around it is as short as possible."""
TOO_SMALL = ("The window is too small", "for the question.", "Make it larger,", "or Esc: no.")
PAGE_KEYS = "(PgUp PgDn Space g G)"
FEW_PAGE_KEYS = "(Space g G)"
HINT = "Up, Down, Enter. Esc: no, and stop"
HINT_DETAILS = f"{HINT}. {DETAILS_KEY}: the diff"
RULES_PAGED = "  adds the rules at the end of the text"


class Frame(Struct, frozen=True):
    """The drawn rows; `end` tells whether the end of the text is among them.

    It is not `legible` if there is no space for the question.
    """

    rows: list[Row]
    end: bool = False
    legible: bool = True


def preferred_rows(dialog: Dialog, width: int, available: int) -> int:
    """The number of rows that the question needs."""
    around = _Around(dialog, "", width, available)
    return min(available, around.height + dialog.pager.height(width, available))


def lay_out(dialog: Dialog, sign: str, *, focused: bool, width: int, height: int) -> Frame:
    """The question in at most `height` rows of `width` cells; `sign` is before the marked line."""
    around = _Around(dialog, sign, width, height, focused=focused)
    # a page has a row for its position, too; a shorter text needs only its own rows
    min_rows = min(MIN_TEXT_ROWS + 1, dialog.pager.height(width, height))
    if height - around.height < min_rows:
        around = _Around(dialog, sign, width, height, focused=focused, short=True)
    if height - around.height < min_rows or width < MIN_WIDTH:
        return Frame([[(line[:width], "warn")] for line in TOO_SMALL[:height]], legible=False)
    room = height - around.height
    pager = dialog.pager
    fits = pager.height(width, room) <= room
    text = pager.rows(width, room if fits else room - 1)
    keys = PAGE_KEYS if width >= MIN_WIDTH_FOR_KEYS else FEW_PAGE_KEYS
    position: list[Row] = [] if fits else [[(f"  {pager.position()} {keys}"[:width], "warn")]]
    rows = [*around.title, *text, *position, *around.menu, *around.rules, *around.note]
    return Frame(rows, end=pager.at_end)


class _Around:
    """The rows above and below the text: some for each part, or one if `short`."""

    def __init__(
        self,
        dialog: Dialog,
        sign: str,
        width: int,
        height: int,
        *,
        focused: bool = True,
        short: bool = False,
    ) -> None:
        question = dialog.question
        self.title = _folded(question.heading, width, 1 if short else 3, "warn")
        self.menu = _short_menu(dialog) if short else _menu(dialog, sign, width, focused=focused)
        # of many rules, the text has the rest of the screen
        self.rules = _rules(dialog, width, 1 if short else max(3, height // 4))
        hint = HINT_DETAILS if question.details else HINT
        note = dialog.note or (hint if focused else TYPING)
        style = "warn" if dialog.note or not focused else "quiet"
        self.note = _folded(f"  {note}", width, 1 if short else 2, style)

    @property
    def height(self) -> int:
        """The number of rows."""
        return sum(map(len, (self.title, self.menu, self.rules, self.note)))


def _menu(dialog: Dialog, sign: str, width: int, *, focused: bool) -> list[Row]:
    """A row for each entry: `› 1 once     yes, this call`; the sign is at the marked one."""
    rows: list[Row] = []
    for number, entry in enumerate(dialog.question.entries, start=1):
        is_marked = entry is dialog.marked
        first = sign if is_marked else " " * len(sign)
        line = f"{first} {number} {entry.answer.value:<8} {entry.meaning}"
        rows.append([(line[:width], "bold" if is_marked and focused else "")])
    return rows


def _short_menu(dialog: Dialog) -> list[Row]:
    """All entries in one row: `[once] session no`."""
    words = [
        f"[{entry.answer.value}]" if entry is dialog.marked else entry.answer.value
        for entry in dialog.question.entries
    ]
    return [[(" ".join(words), "bold")]]


def _rules(dialog: Dialog, width: int, max_rows: int) -> list[Row]:
    """The rules of the marked line, or a hint to their place; they are never cut."""
    rows = [
        row
        for rule in dialog.marked.rules
        for row in fold([(rule, "")], width, lambda _row: "    ")
    ]
    dialog.page_rules(paged=len(rows) > max_rows)
    return [[(RULES_PAGED[:width], "warn")]] if len(rows) > max_rows else rows


def _folded(text: str, width: int, max_rows: int, style: str) -> list[Row]:
    """The text in at most `max_rows` rows; the last one tells if there is more."""
    rows = fold([(text, style)], width)
    if len(rows) <= max_rows:
        return rows
    # a cell less, which the sign of more text needs
    [*full_rows, last] = fold([(text, style)], width - 1)[:max_rows]
    return [*full_rows, [*last, ("…", style)]]
