"""Long text in a gutter: all of it can be seen."""

from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from shepherd.cli.approval.pager import Pager, Row, row_text
from shepherd.cli.approval.question import MAX_BLANK_LINES, MAX_SEGMENT, text_lines, warnings
from shepherd.tools.text import is_hidden, reveal

TEXTS = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("ab \t\n\u200b\u0301日"))
)
SIZES = st.tuples(st.integers(10, 90), st.integers(1, 30))


def pages(text: str, width: int, height: int) -> list[list[Row]]:
    """Every page, as somebody sees them who presses Space until the end."""
    pager = Pager(list(text_lines(text)), unicode=True)
    found = [pager.rows(width, height)]
    while not pager.at_end:
        pager.forward()
        found.append(pager.rows(width, height))
    return found


@given(TEXTS, SIZES)
@example("x" * (MAX_SEGMENT + 5) + "\nend", (40, 5))
def test_no_row_is_too_wide_and_nothing_in_it_is_invisible(
    text: str, size: tuple[int, int]
) -> None:
    for page in pages(text, *size):
        assert len(page) <= size[1]
        for row in page:
            shown = row_text(row)
            assert shown.startswith(("  │ ", "  ┊ "))
            assert cell_len(shown) <= size[0]
            assert not any(map(is_hidden, shown))


@given(st.lists(st.text("ab日\u200b;|│", min_size=1, max_size=200), max_size=60), SIZES)
def test_the_pages_hold_every_character(lines: list[str], size: tuple[int, int]) -> None:
    pager = Pager(list(text_lines("\n".join(lines))), unicode=True)
    rows = pager.next_page(size[0], 0)
    assert pager.at_end
    shown = "".join(("\n" if row_text(r)[2] == "│" else "") + row_text(r)[4:] for r in rows)
    assert shown == "\n" + "\n".join(map(reveal, lines))
    seen = [row for page in pages("\n".join(lines), *size) for row in page]
    assert {row_text(row) for row in seen} == {row_text(row) for row in rows}
    assert row_text(seen[-1]) == row_text(rows[-1])


@given(TEXTS, SIZES, st.lists(st.sampled_from("fbge"), max_size=12))
def test_the_end_is_reported_only_when_it_is_shown(
    text: str, size: tuple[int, int], moves: list[str]
) -> None:
    pager = Pager(list(text_lines(text)), unicode=True)
    everything = Pager(list(text_lines(text)), unicode=True).next_page(size[0], 0)
    for move in ["g", *moves]:
        turns = {"f": pager.forward, "b": pager.back, "g": pager.begin, "e": pager.end}
        turns[move]()
        rows = pager.rows(*size)
        assert len(rows) == min(size[1], len(everything))
        if pager.at_end:
            assert rows == everything[-len(rows) :]
        if move == "e":
            assert pager.at_end


def test_the_position_counts_lines_of_the_text() -> None:
    pager = Pager(list(text_lines("\n".join(map(str, range(812))))), unicode=True)
    pager.rows(80, 24)
    assert pager.position() == "lines 1-24 of 812, 1 %"
    pager.end()
    pager.rows(80, 24)
    assert pager.position() == "lines 789-812 of 812, 100 %"


def test_whitespace_that_hides_text_is_counted() -> None:
    text = f"ls{' ' * 200};rm\nls   \n{chr(10) * 400}rm"
    rows = [row_text(row) for row in Pager(list(text_lines(text)), unicode=True).rows(80, 9)]
    assert rows == [
        "  │ ls<200 whitespace characters>;rm",
        "  │ ls···",
        "  │ <400 blank lines>",
        "  │ rm",
    ]
    few = "a" + "\n" * (MAX_BLANK_LINES + 1) + "b"
    assert len(pages(few, 80, 50)[0]) == MAX_BLANK_LINES + 2


def test_a_new_file_of_blank_lines_is_counted_too() -> None:
    diff = "--- f\n+++ f\n@@ -0,0 +1,102 @@\n+a\n" + "+\n" * 100 + "+b"
    rows = [row_text(row) for row in pages(diff, 80, 50)[0]]
    assert rows[3:] == ["  │ +a", "  │ +<100 blank lines>", "  │ +b"]


def test_what_looks_like_something_else_is_named() -> None:
    text = "curl https://p\u0430ypal.com/x?y=//z; echo \u200b \u05d0"
    said = "\n".join(warnings([text, text]))
    assert "1 hidden character" in said
    assert "1 right-to-left letter" in said
    assert "the host p\u0430ypal.com is xn--pypal-4ve.com" in said
    assert "p\u0430ypal mixes alphabets: Cyrillic, Latin" in said
    assert list(warnings(["curl https://example.com/ä"])) == []
