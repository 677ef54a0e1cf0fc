"""Nothing stays invisible."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.tools.text import (
    MAX_COMBINING,
    count_hidden,
    count_right_to_left,
    is_combining,
    is_hidden,
    pieces,
    reveal,
)

IGNORABLE = [
    "\u00ad", "\u034f", "\u061c", "\u115f", "\u1160", "\u17b4", "\u17b5", "\u180b", "\u180c",
    "\u180d", "\u180e", "\u180f", "\u200b", "\u200c", "\u200d", "\u200e", "\u200f", "\u202a",
    "\u202b", "\u202c", "\u202d", "\u202e", "\u2060", "\u2061", "\u2062", "\u2063", "\u2064",
    "\u2065", "\u2066", "\u2067", "\u2068", "\u2069", "\u206a", "\u206f", "\u3164", "\ufe00",
    "\ufe0f", "\ufeff", "\uffa0", "\ufff0", "\ufff8", "\U0001bca0", "\U0001bca3", "\U0001d173",
    "\U0001d17a", "\U000e0001", "\U000e0041", "\U000e007f", "\U000e0100", "\U000e01ef",
    "\U000e0fff",
]  # fmt: skip
"""Of each range of Unicode's Default_Ignorable_Code_Point the ends at least."""
SPACES = "\u00a0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u2800\u3000\x85"
CONTROLS = "\x00\x07\x08\x0b\x0c\r\x1b\x7f\x9b\ud800\ue000\U0010ffff\ufff9\ufffc"


@pytest.mark.parametrize("character", [*IGNORABLE, *SPACES, *CONTROLS], ids=ascii)
def test_what_would_not_be_seen_is_spelled_out(character: str) -> None:
    assert reveal(f"a{character}b") == f"a<U+{ord(character):04X}>b"
    assert count_hidden(f"a{character}b") == 1


@given(st.text(st.characters(exclude_categories=[])))
def test_nothing_that_is_left_is_invisible_or_steers(text: str) -> None:
    for character in reveal(text):
        assert unicodedata.category(character) not in ("Cc", "Cs", "Co", "Cn", "Zl", "Zp")
        assert unicodedata.category(character) != "Zs" or character == " "
    reveal(text).encode()


@given(st.text(st.characters(exclude_categories=[])))
def test_the_characters_can_be_read_back(text: str) -> None:
    read = "".join(
        chr(int(piece[3:-1], 16)) if is_notation else piece for piece, is_notation in pieces(text)
    )
    assert read == text


@given(st.text(st.characters(categories=["Lu", "Ll", "Nd", "Pd", "Po", "Sm"])))
def test_ordinary_text_stays(text: str) -> None:
    visible = "".join(c for c in text if not is_hidden(c) and not is_combining(c))
    assert reveal(visible) == visible


@pytest.mark.parametrize("text", ["é", "e\u0301", "ไทย", "नमस्ते", "日本語", "🙂", "שלום", "각"])
def test_living_scripts_stay(text: str) -> None:
    assert reveal(text) == text


@given(st.integers(0, 60), st.sampled_from(["\u0301", "\u0489", "\u20dd", "\u0e31", "\u0903"]))
def test_marks_do_not_pile_up(count: int, mark: str) -> None:
    text = reveal("z" + mark * count)
    assert text.count(mark) == min(count, MAX_COMBINING)
    assert text.count("<U+") == max(0, count - MAX_COMBINING)
    assert mark not in reveal(mark * count)
    assert mark not in reveal("x " + mark)


def test_nothing_without_width_is_drawn_alone() -> None:
    wcwidth = pytest.importorskip("wcwidth").wcwidth
    drawn = (chr(code) for code in range(sys.maxunicode + 1) if not is_hidden(chr(code)))
    assert [c for c in drawn if wcwidth(c) <= 0 and not is_combining(c)] == []


def test_right_to_left_letters_are_counted() -> None:
    assert count_right_to_left("rm שלום") == 4
    assert count_right_to_left("rm abc") == 0
