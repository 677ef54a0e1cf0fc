"""Runs of placeholders, for any mixture of text and images."""

from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.llamacpp.cache.prefixes import (
    common_prefix,
    packed,
    placeholders,
    runs,
    surplus,
    whole,
)
from shepherd.backends.llamacpp.cache.sequence import CachedSequence, Checkpoints


@st.composite
def images(draw: st.DrawFn) -> tuple[int, ...]:
    count = draw(st.integers(1, 12))
    key = draw(st.sampled_from([b"cat", b"dog"]))
    return placeholders(key, count, draw(st.integers(1, count)))


texts = st.lists(st.integers(0, 3), max_size=4).map(tuple)
prompts = st.lists(st.one_of(texts, images()), max_size=6)


def joined(parts: list[tuple[int, ...]]) -> list[int]:
    return [token for part in parts for token in part]


@given(prompts)
def test_runs_are_found_again(parts: list[tuple[int, ...]]) -> None:
    tokens = joined(parts)
    pictures = [part for part in parts if part and part[0] < 0]
    assert [tuple(tokens[start:end]) for start, end in runs(tokens)] == pictures
    assert list(packed(tokens)) == tokens, "they fit an array of 32 bits"


@given(prompts, prompts)
def test_a_prefix_never_ends_inside_an_image(
    one: list[tuple[int, ...]], two: list[tuple[int, ...]]
) -> None:
    a, b = joined(one), joined(two)
    keep = whole(b, common_prefix(a, b))
    assert a[:keep] == b[:keep]
    inside = [start < keep < end for tokens in (a, b) for start, end in runs(tokens)]
    assert not any(inside)


@given(prompts, st.data())
def test_a_sequence_knows_its_position_however_it_was_made(
    parts: list[tuple[int, ...]], data: st.DataObject
) -> None:
    tokens, sequence = joined(parts), CachedSequence(0)
    for part in parts:
        sequence.append(part)
    assert sequence.position == len(tokens) - surplus(tokens)
    keep = whole(tokens, data.draw(st.integers(0, len(tokens))))
    assert sequence.position_at(keep) == keep - surplus(tokens[:keep])
    sequence.cut(keep)
    assert sequence.position == keep - surplus(tokens[:keep])
    sequence.begin(tokens, Checkpoints())
    assert sequence.position == len(tokens) - surplus(tokens)


def test_other_images_and_lengths_have_other_runs() -> None:
    kinds = [placeholders(key, 16, n) for key in (b"a", b"b") for n in (4, 16)]
    assert len(set(kinds)) == len(kinds)
    assert len({run[0] for run in (placeholders(b"%d" % i, 4, 4) for i in range(500))}) == 500
