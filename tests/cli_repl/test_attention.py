"""The title, the bell and notifications."""

import io

import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output

from shepherd.cli.repl.terminal import Attention, notification

XTERM = {"TERM": "xterm-256color"}


def _attention(env: dict[str, str], *, alerts: bool = True) -> tuple[Attention, io.StringIO]:
    sent = io.StringIO()
    output = Vt100_Output(sent, lambda: Size(24, 80), enable_cpr=False)
    return Attention(output, env, title="Shepherd: \x1b]x\x07work", alerts=alerts), sent


def test_it_alerts_only_without_the_focus() -> None:
    attention, sent = _attention(XTERM)
    attention.alert("ready")
    assert not sent.getvalue()
    attention.has_focus = False
    attention.alert("ready")
    assert sent.getvalue() == "\a"


def test_alerts_can_be_switched_off() -> None:
    attention, sent = _attention(XTERM, alerts=False)
    attention.begin()
    attention.has_focus = False
    attention.alert("ready")
    attention.end()
    assert "1004" not in sent.getvalue()
    assert sent.getvalue().count("\a") == 2  # the ends of the titles


def test_the_terminal_is_left_as_it_was() -> None:
    attention, sent = _attention(XTERM)
    attention.begin()
    begun = sent.getvalue()
    attention.end()
    ended = sent.getvalue().removeprefix(begun)
    assert begun.startswith("\x1b[22;0t")
    assert ended.endswith("\x1b[23;0t")
    assert begun.endswith("\x1b[?1004h")
    assert ended.startswith("\x1b[?1004l")
    assert begun.count("\x1b") == 3


def test_a_console_without_titles_gets_none() -> None:
    attention, sent = _attention({"TERM": "linux"}, alerts=False)
    attention.begin()
    attention.end()
    assert not sent.getvalue()


@pytest.mark.parametrize(
    ("env", "start"),
    [
        ({"KITTY_WINDOW_ID": "1"}, "\x1b]99;;"),
        ({"TERM_PROGRAM": "iTerm.app"}, "\x1b]9;"),
        ({"VTE_VERSION": "7000"}, "\x1b]777;notify;"),
        ({"KITTY_WINDOW_ID": "1", "TMUX": "x"}, ""),
        (XTERM, ""),
    ],
)
def test_each_terminal_gets_its_own_notification(env: dict[str, str], start: str) -> None:
    text = notification("ready", env)
    assert text.startswith(start)
    assert bool(text) == bool(start)
