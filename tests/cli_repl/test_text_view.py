import re

from hypothesis import given

from shepherd.cli.render.text_view import AnswerView, ThinkingView
from shepherd.cli.terminal.paint import Painter, Piece
from tests.cli_repl.texts import CUTS, HOSTILE, MARKDOWN, split

WIDTH = 60
PAINTER = Painter()
PLAIN = Painter(styled=False)
SGR = re.compile(r"\x1b\[[0-9;]*m")


def _answer(chunks: list[str], painter: Painter) -> str:
    view = AnswerView("ansi_dark", styled=painter.styled)
    pieces = [piece for chunk in chunks for piece in view.feed(chunk)]
    return painter.paint_all([*pieces, *view.finish()], WIDTH)


@given(MARKDOWN, CUTS)
def test_an_answer_looks_the_same_however_it_is_cut(text: str, cuts: list[int]) -> None:
    assert _answer(split(text, cuts), PAINTER) == _answer([text], PAINTER)


@given(HOSTILE, CUTS)
def test_only_colours_reach_the_terminal(text: str, cuts: list[int]) -> None:
    shown = SGR.sub("", _answer(split(text, cuts), PAINTER))
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown) is None


@given(MARKDOWN)
def test_plain_output_keeps_every_word_and_has_no_escapes(text: str) -> None:
    shown = _answer([text], PLAIN)
    assert "\x1b" not in shown
    fences = re.compile(r"^ {0,3}(```|~~~).*$", re.MULTILINE)
    kept = iter(shown.split())
    for word in fences.sub("", text).split():
        assert word.strip("`~") == "" or word in kept


@given(MARKDOWN)
def test_the_live_text_can_be_drawn_at_every_moment(text: str) -> None:
    view = AnswerView("ansi_dark", styled=True)
    for character in text:
        view.feed(character)
        PAINTER.paint_all(view.live(), WIDTH)


def test_blocks_are_set_apart_by_one_line_and_items_stay_together() -> None:
    shown = _answer(["# T\na\nb\n\n\n- x\n- y\n\n```py\nf()\n\ng()\n```\nend"], PAINTER)
    lines = [SGR.sub("", line) for line in shown.splitlines()]
    assert lines == ["T", "", "a", "b", "", " • x", " • y", "", "  f()", "", "  g()", "", "end"]


def test_long_code_can_be_copied_whole() -> None:
    code = "x" * 200
    assert f"  {code}\n" in SGR.sub("", _answer([f"```\n{code}\n```\n"], PAINTER))


@given(HOSTILE, CUTS)
def test_reasoning_is_shown_whole(text: str, cuts: list[int]) -> None:
    view = ThinkingView()
    pieces: list[Piece] = []
    for chunk in split(text, cuts):
        pieces += view.feed(chunk)
    shown = PLAIN.paint_all([*pieces, *view.finish()], 10_000)
    whole = ThinkingView()
    expected = PLAIN.paint_all([*whole.feed(text), *whole.finish()], 10_000)
    assert "".join(shown.split()) == "".join(expected.split())
    assert not view.is_open


def test_what_looks_like_html_is_shown() -> None:
    text = "A `List<int>` or List<String>.\n\n<div>\nkept\n</div>\n\nvector<int> v;\n"
    shown = SGR.sub("", _answer([text], PAINTER))
    for word in ("List<String>", "<div>", "kept", "</div>", "vector<int> v;"):
        assert word in shown
