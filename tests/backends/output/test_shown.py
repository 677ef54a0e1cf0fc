"""Which tokens are content, by the corpus of recorded outputs."""

import random
from collections.abc import Iterable, Iterator

from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.output.filter import OutputFilter
from shepherd.backends.output.markers import StopMatcher
from shepherd.backends.output.style import GENERIC, STYLES
from shepherd.backends.output.text import ContentTokens
from shepherd.sampling import TokenLogprob
from tests.backends.output.support import TOOLS, pieces
from tests.backends.output.test_corpus import Case, corpus, families


def shown(output: OutputFilter, tokens: Iterable[bytes], *, truncated: bool = False) -> list[bytes]:
    tracker = ContentTokens()
    decoder_text = _texts(tokens := list(tokens))
    told: list[TokenLogprob] = []
    for token in tokens:
        tracker.add(TokenLogprob(token, -1.0))
        told += tracker.tokens_of(output.feed(next(decoder_text)))
    tracker.finish()
    told += tracker.tokens_of(output.feed(next(decoder_text)))
    told += tracker.tokens_of(output.finish(truncated=truncated))
    return [token.piece for token in told]


def _texts(tokens: list[bytes]) -> Iterator[str]:
    """The text that each token completes, and what is left at the end."""
    known = 0
    for end in range(1, len(tokens) + 1):
        whole = b"".join(tokens[:end]).decode("utf-8", "ignore")
        yield whole[known:]
        known = len(whole)
    yield b"".join(tokens).decode("utf-8", "replace")[known:]


def output_of(case: Case) -> OutputFilter:
    tools = TOOLS if case.tools else ()
    return OutputFilter(
        STYLES[case.style], tools, prompt_tail=case.prompt_tail, thinking=case.thinking
    )


def written_content(case: Case) -> str:
    """The content less the blank lines between harmony's messages, which no token wrote."""
    made_up = case.style == "harmony" and "\n\n" not in case.text
    return case.content.replace("\n\n", "") if made_up else case.content


@families
def test_of_single_characters_exactly_the_content_is_told(family: str) -> None:
    for case in corpus()[family]:
        tokens = [character.encode() for character in case.text]
        found = shown(output_of(case), tokens, truncated=case.truncated)
        assert b"".join(found).decode() == written_content(case), case.name


@families
def test_larger_tokens_cover_the_content_and_little_else(family: str) -> None:
    for case in corpus()[family]:
        rng = random.Random(case.name)
        for _ in range(5):
            cuts = sorted(rng.randint(0, len(case.text)) for _ in range(len(case.text) // 3))
            tokens = [piece.encode() for piece in pieces(case.text, cuts) if piece]
            found = shown(output_of(case), tokens, truncated=case.truncated)
            rest = iter(b"".join(found).decode())
            assert all(character in rest for character in written_content(case)), case.name
            assert all(set(token.decode()) & set(case.content) for token in found), case.name


@given(text=st.text("aé日🙂", max_size=12), cut=st.lists(st.integers(0, 40), max_size=8))
def test_parts_of_characters_are_told_with_their_character(text: str, cut: list[int]) -> None:
    data = text.encode()
    ends = sorted({c % (len(data) + 1) for c in cut} | {len(data)})
    tokens = [data[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    assert shown(OutputFilter(GENERIC), [t for t in tokens if t]) == [t for t in tokens if t]


def test_a_character_that_never_ends_is_told() -> None:
    assert shown(OutputFilter(GENERIC), [b"a", b"\xf0", b"\x9f"]) == [b"a", b"\xf0", b"\x9f"]


@given(st.lists(st.sampled_from(["a", "b", "ab", "S", "ST", "STOP", "OP", "Pa"]), max_size=12))
def test_of_a_stop_string_nothing_is_told(tokens: list[str]) -> None:
    stop, output, tracker = StopMatcher(["STOP"]), OutputFilter(GENERIC), ContentTokens()
    told: list[TokenLogprob] = []
    for token in tokens:
        tracker.add(TokenLogprob(token.encode(), -1.0))
        told += tracker.tokens_of(output.feed(stop.feed(token)))
        if stop.hit is not None:
            break
    told += tracker.tokens_of(output.feed(stop.finish()))
    told += tracker.tokens_of(output.finish())
    assert [t.text for t in told] == tokens[: len(told)]
    covered = "".join(t.text for t in told)
    content = "".join(tokens).partition("STOP")[0]
    assert covered.startswith(content)
    assert len(covered) - len(told[-1].text if told else "") < max(1, len(content))
