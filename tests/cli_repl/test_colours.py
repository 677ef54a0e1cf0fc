"""The terminal's own colours: its answers are taken out of the keys, which all arrive."""

import io
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output

from shepherd.cli.repl.terminal import ANSWER_SECONDS, QUERY, TerminalColours, brightness, can_ask

LIGHT = "\x1b]10;rgb:0000/0000/0000\x1b\\\x1b]11;rgb:ffff/ffff/eeee\x1b\\\x1b[?62;22c"
DARK = "\x1b]10;rgba:ff/ff/ff/ff\a\x1b]11;rgb:1/1/2\a\x1b[?1;2c"


class Clock:
    """A time that only tests move."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def asked(clock: Clock | None = None) -> tuple[TerminalColours, list[bool]]:
    answers: list[bool] = []
    target = io.StringIO()

    def changed(*, light: bool) -> None:
        answers.append(light)

    colours = TerminalColours(changed, clock or Clock())
    colours.ask(Vt100_Output(target, lambda: Size(24, 80)))
    assert target.getvalue() == QUERY
    return colours, answers


@given(
    st.text("abc é\x1b[A\x1b", max_size=8),
    st.sampled_from([LIGHT, DARK]),
    st.text("abc é", max_size=8),
    st.sets(st.integers(1, 80)),
)
def test_keys_arrive_in_whatever_pieces_the_answers_come(
    before: str, answer: str, after: str, cuts: set[int]
) -> None:
    whole = before.rstrip("\x1b") + answer + after
    ends = sorted(cut for cut in cuts if whole[cut - 1 : cut] != "\x1b")  # a lone Esc is a key
    pieces = [whole[a:b] for a, b in zip([0, *ends], [*ends, len(whole)], strict=True)]
    colours, answers = asked()
    assert "".join(map(colours.typed, pieces)) == before.rstrip("\x1b") + after
    assert answers == [answer is LIGHT]
    assert not colours.is_waiting


@pytest.mark.parametrize("keys", ["\x1b", "\x1b[A", "\x1b]x", "\x1b[1;5C", "\x1bOP", "é"])
def test_keys_are_not_delayed(keys: str) -> None:
    colours, _ = asked()
    assert colours.typed(keys) == keys


def test_a_terminal_without_an_answer_loses_no_key() -> None:
    clock = Clock()
    colours, answers = asked(clock)
    assert colours.typed("\x1b]") == ""
    clock.now += ANSWER_SECONDS
    assert colours.typed("x") == "\x1b]x"
    assert colours.typed("\x1b]") == "\x1b]"
    assert answers == []
    assert colours.typed(f"late {DARK}") == "late "
    assert answers == [False]


def test_broken_answers_change_nothing() -> None:
    colours, answers = asked()
    assert colours.typed("\x1b]11;rgb://///\a\x1b]11;rgb:ffff\a") == ""
    assert answers == []


def test_brightness() -> None:
    assert brightness(["f", "ff", "ffff"]) == pytest.approx(1)
    assert brightness(["0", "0", "0"]) == 0


@pytest.mark.parametrize(
    ("env", "asks"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "screen-256color", "TMUX": "/tmp/tmux,1,0"}, True),
        ({"TERM": "tmux-256color"}, True),
        ({"TERM": "screen"}, False),
        ({"TERM": "xterm", "STY": "1.pts"}, False),
        ({"TERM": "linux"}, False),
        ({}, False),
    ],
)
def test_terminals_that_may_print_the_question_are_not_asked(
    env: Mapping[str, str], *, asks: bool
) -> None:
    assert can_ask(env) is asks
