import re

from hypothesis import given

from shepherd.cli.render.rows import RowWriter
from shepherd.cli.render.views import AnswerView, ThinkingView
from shepherd.cli.terminal.paint import Painter
from tests.cli_repl.texts import CUTS, HOSTILE, MARKDOWN, split

WIDTH = 60
PAINTER = Painter()
PLAIN = Painter(styled=False)
SGR = re.compile(r"\x1b\[[0-9;]*m")


def _answer(chunks: list[str], painter: Painter) -> str:
    view, rows = AnswerView(painter), RowWriter(painter)
    shown = [rows.write(view.feed(chunk), WIDTH) for chunk in chunks]
    return "".join([*shown, rows.write(view.finish(), WIDTH)])


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
def test_the_held_text_is_the_end_of_the_text(text: str) -> None:
    view = AnswerView(PAINTER)
    for number in range(len(text)):
        view.feed(text[number])
        *_, line = text[: number + 1].rstrip("\n").split("\n")
        *_, held = view.held.rstrip("\n").split("\n")
        assert line.endswith(held)


def test_blocks_are_set_apart_by_one_line_and_items_stay_together() -> None:
    shown = _answer(["# T\na\nb\n\n\n- x\n- y\n\n```py\nf()\n\ng()\n```\nend"], PAINTER)
    lines = [SGR.sub("", line) for line in shown.splitlines()]
    assert lines == [
        "",
        "T",
        "",
        "a",
        "b",
        "",
        " • x",
        " • y",
        "",
        "╭─ py",
        "  f()",
        "",
        "  g()",
        "╰─",
        "",
        "end",
    ]


def test_long_code_can_be_copied_whole() -> None:
    code = "x" * 200
    assert f"  {code}\n" in SGR.sub("", _answer([f"```\n{code}\n```\n"], PAINTER))


@given(HOSTILE, CUTS)
def test_reasoning_is_shown_whole(text: str, cuts: list[int]) -> None:
    for painter in (PAINTER, PLAIN):
        view, whole = ThinkingView(), ThinkingView()
        ink = [item for chunk in split(text, cuts) for item in view.feed(chunk)]
        shown = RowWriter(painter).write([*ink, *view.finish()], WIDTH)
        at_once = [*whole.feed(text), *whole.finish()]
        assert shown == RowWriter(painter).write(at_once, WIDTH)
        assert not view.is_open


def test_what_looks_like_html_is_shown() -> None:
    text = "A `List<int>` or List<String>.\n\n<div>\nkept\n</div>\n\nvector<int> v;\n"
    shown = SGR.sub("", _answer([text], PAINTER))
    for word in ("List<String>", "<div>", "kept", "</div>", "vector<int> v;"):
        assert word in shown
