"""Markdown that arrives in chunks."""

import pytest
from hypothesis import example, given
from rich.text import Text

from shepherd.cli.render.markdown_flow import MarkdownFlow
from shepherd.cli.render.rows import RowWriter
from shepherd.cli.terminal.paint import UNICODE, Painter, Piece, Row
from tests.cli_repl.texts import CUTS, MARKDOWN, split

PAINTER = Painter(styled=False)


def _flow() -> MarkdownFlow:
    return MarkdownFlow("ansi_dark", UNICODE)


def _shown(*chunks: str, width: int = 40) -> str:
    flow, rows = _flow(), RowWriter(PAINTER)
    shown = [rows.write(flow.feed(chunk), width) for chunk in chunks]
    shown.append(rows.write(flow.finish(), width))
    rows.close()
    return "".join([*shown, rows.write([], width)])


@given(MARKDOWN, CUTS)
@example("```py\nx = 1\n", [3])
@example("a **b c** d `e f` [g](h) \\[ i \\] 日本語、です", list(range(60)))
def test_any_chunking_gives_the_same_rows(text: str, cuts: list[int]) -> None:
    assert _shown(*split(text, cuts)) == _shown(text)


@given(MARKDOWN)
def test_every_word_is_shown(text: str) -> None:
    shown = "".join(_shown(text, width=200).split())
    for word in text.split():
        assert not word.isalpha() or word in shown


@given(MARKDOWN)
def test_a_finished_flow_starts_afresh(text: str) -> None:
    flow = _flow()
    flow.feed(text)
    flow.finish()
    assert not flow.held
    row, *_ = flow.feed("# T\n")
    assert row == Row(Text(), Text())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\n\nc", "a\nb\n\nc\n"),
        ("a\n# T\nb", "a\n\nT\n\nb\n"),
        ("a\n\n---\nb", "a\n\n───\n\nb\n"),
        ("- a\n- b\n  - c\n\n  more\n\nend", " • a\n • b\n   • c\n\n   more\n\nend\n"),
        ("1. a\n    - b\n2. c", " 1. a\n    • b\n 2. c\n"),
        ("1. a\n   ```sh\n   x\n\n   y\n   ```\n2. b",
         " 1. a\n    ╭─ sh\n      x\n\n      y\n    ╰─\n 2. b\n"),
        ("say\n- a", "say\n\n • a\n"),
        ("in\n2024. was", "in\n2024. was\n"),
        ("> a\nlazy\n\nb", "▌ a\n▌ lazy\n\nb\n"),
        ("> - a\n> - b", "▌  • a\n▌  • b\n"),
        ("t\n| a |\n|---|\n| 1 |\nend", "t\n\na\n─\n1\n\nend\n"),
        ("| a | b\nno table", "| a | b\nno table\n"),
        ("````\n```\n````\n", "╭─\n  ```\n╰─\n"),
        ("``` not `a` fence\n", "``` not a fence\n"),
        ("    x\n    y\nz", "  x\n  y\n\nz\n"),
        ("- - -\n- a", "───\n\n • a\n"),
        (r"\[ a_1 * b_1 * c \] and \(x_i\), \$5", "\\[ a_1 * b_1 * c \\] and \\(x_i\\), $5\n"),
        ("a * b * c, d_e_f, **g", "a * b * c, d_e_f, **g\n"),
        ("[name](http://x.y) and <http://z>", "name (http://x.y) and http://z\n"),
        ("`a\\[b`", "a\\[b\n"),
    ],
)  # fmt: skip
def test_blocks(text: str, shown: str) -> None:
    assert _shown(text) == shown


def test_words_are_shown_before_their_line_ends_and_spans_when_they_end() -> None:
    flow, rows = _flow(), RowWriter(PAINTER)
    assert rows.write(flow.feed("one two thr"), 40) == "one two"
    assert rows.write(flow.feed("ee **four fi"), 40) == " three"
    assert flow.held == "**four fi"
    assert rows.write(flow.feed("ve** six\n"), 40) == " four five six"


def test_an_unbroken_run_of_wide_characters_starts_on_its_line() -> None:
    assert _shown("- " + "長" * 12, width=21) == " • " + "長" * 9 + "\n   " + "長" * 3 + "\n"
    assert _shown("see 長長長長長長", width=12) == "see 長長長長\n長長\n"
    assert _shown("see " + "x" * 30, width=20) == "see " + "x" * 16 + "\n" + "x" * 14 + "\n"


def test_the_first_rows_fix_the_columns_of_a_table() -> None:
    flow = _flow()
    flow.feed("| n | name |\n|--:|---|\n")
    pieces: list[Piece] = []
    for number in range(1, 401):
        ink = flow.feed(f"| {number} | river {number} |\n")
        pieces += [item for item in ink if isinstance(item, Piece)]
        assert not pieces or ink
    lines = "".join(PAINTER.paint(piece, 40) for piece in pieces).splitlines()
    assert lines[0].split() == ["n", "name"]
    assert len({line.index("river") for line in lines[2:]}) == 1
    assert len(lines) == 402


def test_a_table_in_a_narrow_terminal_keeps_every_cell() -> None:
    shown = _shown(
        "| alpha | beta | gamma |\n|---|---|---|\n| one two three | 4 | five |", width=12
    )
    for word in ["alpha", "one", "two", "three", "beta", "4", "gamma", "five"]:
        assert word in shown
    assert max(map(len, shown.splitlines())) <= 12
