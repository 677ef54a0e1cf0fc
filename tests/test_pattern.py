"""Expressions that are compiled late match as those of `re.compile`."""

import copy
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.pattern import lazy_pattern

EXPRESSIONS = [(r"(a+)|\d", 0), ("[A-C]x?", re.IGNORECASE), (r"\s*^b$", re.MULTILINE), ("", 0)]


@given(st.sampled_from(EXPRESSIONS), st.text("aAbBcC1x \n", max_size=12))
def test_matches_like_a_compiled_pattern(expression: tuple[str, int], text: str) -> None:
    lazy, compiled = lazy_pattern(*expression), re.compile(*expression)

    assert [m.span() for m in lazy.finditer(text)] == [m.span() for m in compiled.finditer(text)]
    assert bool(lazy.search(text)) == bool(compiled.search(text))
    assert bool(lazy.match(text)) == bool(compiled.match(text))
    assert lazy.sub("-", text) == compiled.sub("-", text)
    assert lazy.split(text) == compiled.split(text)
    assert copy.deepcopy(lazy).findall(text) == compiled.findall(text)


def test_has_the_attributes_of_a_pattern() -> None:
    pattern = lazy_pattern("(?P<name>a)(b)", re.IGNORECASE)

    assert (pattern.pattern, pattern.groups) == ("(?P<name>a)(b)", 2)
    assert pattern.flags & re.IGNORECASE
    assert not hasattr(pattern, "other")


def test_bytes_are_matched_too() -> None:
    assert lazy_pattern(rb"a+").sub(b"", b"baab") == b"bb"


def test_an_error_shows_at_the_first_use() -> None:
    pattern = lazy_pattern("(")

    with pytest.raises(re.error):
        pattern.match("")
