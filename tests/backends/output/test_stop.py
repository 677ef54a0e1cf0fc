"""Stop strings."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.backends.output.markers import StopMatcher
from tests.backends.output.strategies import cut_seeds, cuts
from tests.backends.output.support import pieces
from tests.examples import examples

texts = st.text("abc\n", max_size=30)
stop_lists = st.lists(st.text("abc\n", min_size=1, max_size=4), max_size=4)


def run(chunks: list[str], stops: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    shown = ""
    for chunk in chunks:
        shown += matcher.feed(chunk)
        if matcher.hit is not None:
            assert matcher.finish() == ""
            return shown, matcher.hit
    return shown + matcher.finish(), None


@settings(max_examples=examples(500), deadline=None)
@given(texts, stop_lists, cut_seeds)
def test_chunks_do_not_matter(text: str, stops: list[str], seeds: list[int]) -> None:
    whole = run([text], stops)
    assert run(list(text), stops) == whole
    assert run(list(pieces(text, cuts(text, seeds))), stops) == whole


@settings(max_examples=examples(500), deadline=None)
@given(texts, stop_lists)
def test_the_text_ends_before_the_stop_string_that_is_complete_first(
    text: str, stops: list[str]
) -> None:
    shown, hit = run([text], stops)
    assert text.startswith(shown)
    assert not any(s in shown for s in stops)
    if hit is None:
        assert shown == text
    else:
        end = len(shown) + len(hit)
        assert text[len(shown) : end] == hit
        assert not any(s in text[: end - 1] for s in stops)
        assert all(len(s) <= len(hit) for s in stops if text[:end].endswith(s))


@settings(max_examples=examples(500), deadline=None)
@given(texts, stop_lists)
def test_no_part_of_a_stop_string_is_shown_before_it_is_certain(
    text: str, stops: list[str]
) -> None:
    matcher = StopMatcher(stops)
    shown = ""
    for end, char in enumerate(text, 1):
        shown += matcher.feed(char)
        if matcher.hit is not None:
            break
        held = text[len(shown) : end]
        assert not held or any(s.startswith(held) and s != held for s in stops)


def test_text_behind_a_hit_is_dropped() -> None:
    matcher = StopMatcher(["END"])
    assert matcher.feed("a EN") == "a "
    assert matcher.feed("D b") == ""
    assert matcher.hit == "END"
    assert matcher.feed("more") == ""


@pytest.mark.parametrize("stops", [[], [""]])
def test_no_stop_strings(stops: list[str]) -> None:
    assert run(["a", "b"], stops) == ("ab", None)


def test_long_stop_strings_take_memory_in_proportion() -> None:
    tracemalloc.start()
    try:
        matcher = StopMatcher([letter * 100_000 for letter in "abcd"])
        matcher.feed("a" * 1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
