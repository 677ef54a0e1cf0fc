"""Output above a live area, in a terminal emulator."""

import io
import re

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output
from pyte import modes

from shepherd.cli.repl.scrollback import Area, Scrollback
from tests.e2e.terminal import Emulator

COLUMNS = 20
LIVE = ["", "working", "", "> prompt", "status"]
CURSOR = Area(len(LIVE), 3, 8)

PARTS = st.lists(
    st.one_of(
        st.text("ab \n", max_size=30),
        st.text("ab日\n", max_size=12),
        st.sampled_from(["\n", "x" * 45 + "\n", "\x1b[1mbold\x1b[0m", "one\ntwo\nthree\n" * 5]),
        st.sampled_from([None, "draft of words"]),
    ),
    max_size=12,
)


class _Stage:
    """A live area that is drawn once, and what is written above it."""

    def __init__(self, rows: int, columns: int = COLUMNS) -> None:
        self.rows = rows
        self.sent = io.StringIO()
        self.output = Vt100_Output(self.sent, lambda: Size(rows, columns), enable_cpr=False)
        self.area = Area()
        self.scrollback = Scrollback(self.output, lambda: self.area, self._erase)
        self.draw()

    def draw(self) -> None:
        if not self.area.height:
            lines = "\r\n".join(LIVE)
            self.output.write_raw(f"{lines}\x1b[A\x1b[{CURSOR.column + 1}G")
            self.output.flush()
            self.area = CURSOR

    def _erase(self) -> None:
        if self.area.height:
            self.output.write_raw(f"\x1b[{CURSOR.row}A\r\x1b[J")
            self.area = Area()

    def shown(self) -> list[str]:
        screen = pyte.HistoryScreen(COLUMNS, self.rows, history=1000)
        screen.set_mode(modes.LNM)
        pyte.Stream(screen).feed(self.sent.getvalue())
        above = ["".join(line[x].data for x in range(COLUMNS)) for line in screen.history.top]
        return "\n".join(line.rstrip() for line in [*above, *screen.display]).rstrip().split("\n")


def _plain(text: str) -> list[str]:
    screen = pyte.HistoryScreen(COLUMNS, 2, history=1000)
    screen.set_mode(modes.LNM)
    pyte.Stream(screen).feed(text)
    above = ["".join(line[x].data for x in range(COLUMNS)) for line in screen.history.top]
    lines = [line.rstrip() for line in [*above, *screen.display]]
    end = len(above) + screen.cursor.y + (0 if text.endswith("\n") or not text else 1)
    return lines[:end]


WRITES = st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=6, max_size=9)


@pytest.mark.parametrize("cuts_below", [True, False])
@given(writes=WRITES, rows=st.integers(11, 16), lower=st.integers(6, 9))
def test_text_stays_where_a_terminal_gets_lower_before_the_program_knows(
    writes: list[tuple[int, bool]], rows: int, lower: int, *, cuts_below: bool
) -> None:
    stage = _Stage(rows)
    emulator = Emulator(COLUMNS, rows, cuts_below=cuts_below)
    emulator.set_mode(modes.LNM)
    stream = pyte.Stream(emulator)
    for number, (height, goes_home) in enumerate(writes):
        stage.scrollback.write(f"line{number}{'x' * COLUMNS * (height - 1)}\n")
        if goes_home:
            stage.scrollback.go_home()
        stage.draw()
        stream.feed(stage.sent.getvalue())
        stage.sent.seek(0)
        stage.sent.truncate()
        if number == 2:
            emulator.resize(lower)
    above = ["".join(row[x].data for x in range(COLUMNS)) for row in emulator.history.top]
    shown = "\n".join([*above, *emulator.display])
    assert re.findall(r"line\d", shown) == [f"line{number}" for number in range(len(writes))]


@given(PARTS, st.integers(6, 14))
def test_text_in_any_portions_stands_above_the_live_area(
    parts: list[str | None], rows: int
) -> None:
    stage = _Stage(rows)
    for part in parts:
        if part is None:
            stage.scrollback.go_home()
        elif part.startswith("draft"):
            stage.scrollback.draft(part)
        else:
            stage.scrollback.write(part)
        stage.draw()
    stage.scrollback.write("end\n")
    stage.scrollback.go_home()
    stage.draw()
    stage.output.write_raw("!")
    stage.output.flush()
    text = "".join(part for part in parts if part and not part.startswith("draft"))
    live = [*LIVE[:3], LIVE[3] + "!", LIVE[4]]
    assert stage.shown() == [*_plain(text + "end\n"), *live]


def test_streamed_text_costs_little_more_than_itself() -> None:
    stage = _Stage(24, columns=80)
    before = len(stage.sent.getvalue())
    text = "".join(f"{'word ' * 15}{number}\n" for number in range(100))
    for at in range(0, len(text), 20):
        stage.scrollback.write(text[at : at + 20])
    assert len(stage.sent.getvalue()) - before < 1.3 * len(text)


def test_a_draft_that_was_on_the_screen_at_a_resize_is_not_doubled() -> None:
    stage = _Stage(14)
    stage.scrollback.write("It ends")
    stage.scrollback.draft(" with a")
    stage.scrollback.go_home()
    stage.scrollback.begin_row()
    stage.scrollback.write("  with a word\n")
    stage.scrollback.go_home()
    assert stage.shown()[:3] == ["It ends with a", "  word", ""]
