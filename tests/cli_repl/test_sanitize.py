import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from shepherd.cli.terminal.sanitize import one_line, sanitize, sanitize_chunk
from tests.cli_repl.texts import CUTS, HOSTILE, split


@given(HOSTILE)
def test_nothing_is_left_that_could_steer_a_terminal(text: str) -> None:
    for cleaned in (sanitize(text), sanitize_chunk(text), one_line(text, 40)):
        for character in cleaned:
            assert character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs")
            assert unicodedata.bidirectional(character) not in ("RLO", "LRO", "RLE", "RLI", "LRI")
        cleaned.encode()


@given(HOSTILE)
def test_what_is_clean_stays_as_it_is(text: str) -> None:
    assert sanitize(sanitize(text)) == sanitize(text)


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_ordinary_text_is_not_touched(text: str) -> None:
    assert sanitize(text) == text


@given(HOSTILE, CUTS)
def test_a_stream_is_cleaned_the_same_however_it_is_cut(text: str, cuts: list[int]) -> None:
    assert "".join(map(sanitize_chunk, split(text, cuts))) == sanitize_chunk(text)


def test_an_escape_is_spelled_out() -> None:
    assert sanitize("a\x1b[2J\rb\r\nc\x9b\u202e") == "a\\x1b[2J\\rb\nc\\x9b\\u202e"


@given(HOSTILE, st.integers(1, 50))
def test_one_line_is_one_and_short(text: str, width: int) -> None:
    line = one_line(text, width)
    assert "\n" not in line
    assert len(line) <= width
