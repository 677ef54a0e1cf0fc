"""Recorded outputs, each cut in every way that matters."""

import random
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

from shepherd.backends.output.filter import OutputFilter
from shepherd.backends.output.style import STYLES
from shepherd.events import CodeBlock
from tests.backends.output.support import TOOLS, Outcome, parse, pieces
from tests.examples import few, some

CORPUS = Path(__file__).parent / "corpus"
RANDOM_SPLITS = few(1000, 8)
MOST_CUTS = 8
FAMILIES = {
    "command", "deepseek", "gemma", "glm", "granite", "harmony", "hermes", "kimi", "llama",
    "minimax", "mistral", "phi", "pup", "qwen",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    name: str
    text: str
    style: str = "generic"
    prompt_tail: str = ""
    thinking: bool = False
    tools: bool = True
    truncated: bool = False
    content: str = ""
    reasoning: str = ""
    blocks: list[list[str]] = field(default_factory=list[list[str]])
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, Any]])
    problems: list[str] = field(default_factory=list[str])
    origin: str = "written"
    complaint: str = ""

    def parse(self, chunks: Any) -> Outcome:
        return parse(
            chunks,
            STYLES[self.style],
            TOOLS if self.tools else (),
            prompt_tail=self.prompt_tail,
            thinking=self.thinking,
            truncated=self.truncated,
        )


def with_nulls(value: Any) -> Any:
    """The value with "<null>", which TOML can't write otherwise, replaced."""
    if isinstance(value, list):
        return [with_nulls(v) for v in cast(list[Any], value)]
    if isinstance(value, dict):
        return {k: with_nulls(v) for k, v in cast(dict[str, Any], value).items()}
    return None if value == "<null>" else value


@cache
def corpus() -> dict[str, list[Case]]:
    """The cases of each family of models."""
    return {
        path.stem: [
            Case(**case) for case in with_nulls(tomllib.loads(path.read_text("utf-8"))["case"])
        ]
        for path in sorted(CORPUS.glob("*.toml"))
    }


families = pytest.mark.parametrize("family", [path.stem for path in sorted(CORPUS.glob("*.toml"))])


@families
def test_output_means_what_was_recorded(family: str) -> None:
    for case in corpus()[family]:
        outcome = case.parse(case.text)
        blocks = [[e.language, e.text] for e in outcome.events if isinstance(e, CodeBlock)]
        read = (outcome.content, outcome.reasoning, [list(call) for call in outcome.calls], blocks)
        calls = [list(call) for call in case.calls]
        assert read == (case.content, case.reasoning, calls, case.blocks), case.name
        assert outcome.shown == outcome.content, case.name
        assert len(outcome.problems) == len(case.problems), case.name
        problems = zip(case.problems, outcome.problems, strict=True)
        assert all(part in problem for part, problem in problems), case.name


@pytest.mark.long
@families
def test_cutting_the_output_changes_nothing(family: str) -> None:
    for case in corpus()[family]:
        whole = case.parse(case.text)
        assert case.parse(list(case.text)) == whole, case.name
        inside = range(1, len(case.text))
        for cut in some(inside, case.name, len(inside) // 8):
            assert case.parse([case.text[:cut], case.text[cut:]]) == whole, case.name
        for cuts in random_cuts(case.name, len(case.text)):
            assert case.parse(pieces(case.text, cuts)) == whole, case.name


@families
def test_bytes_may_end_inside_a_character(family: str) -> None:
    for case in corpus()[family]:
        whole, data = case.parse(case.text), case.text.encode()
        assert case.parse([data[i : i + 1] for i in range(len(data))]) == whole, case.name
        inside = [i for i in range(1, len(data)) if data[i] & 0xC0 == 0x80]
        for cut in inside:
            assert case.parse([data[:cut], data[cut:]]) == whole, case.name
        if inside:
            assert case.parse(pieces(data, inside)) == whole, case.name


@families
def test_a_broken_call_is_dropped_and_what_came_before_is_kept(family: str) -> None:
    for case in corpus()[family]:
        if not case.problems:
            continue
        found: set[tuple[int | None, str]] = set()
        for size in (1, 3, 7, len(case.text)):
            output = OutputFilter(STYLES[case.style], TOOLS, rewinds=True)
            pieces = [case.text[i : i + size] for i in range(0, len(case.text), size)]
            while pieces and output.kept is None:
                output.feed(pieces.pop(0))
            if output.kept is None:
                output.finish()
            found.add((output.kept, output.result.content))
            output.rewind(written=False)
            for piece in pieces:
                output.feed(piece)
            output.finish()
            assert (output.result.content, output.kept) == (case.content, None), case.name
        ((kept, content),) = found
        assert kept is not None
        assert case.text[:kept] == content, case.name


UNREAD = {
    "cwm": "its only argument has no name",
    "granite_pythonic": "a line of Python that nothing marks may be prose",
    "k2_horizon, JSON": "two tags around each object",
    "rwkv, heading": "the heading before the fence stays text",
}
"""Formats that the tests of vLLM's parsers name and that are not read, with the reason."""


@pytest.mark.parametrize("case", corpus()["servers"], ids=lambda case: case.name)
def test_the_formats_of_other_servers_are_read_in_any_pieces(case: Case) -> None:
    assert case.name not in UNREAD
    size = len(case.text)
    for step in (1, 2, 5, size // 2 + 1, size):
        outcome = case.parse(case.text[i : i + step] for i in range(0, size, step))
        assert [list(call) for call in outcome.calls] == [list(call) for call in case.calls]
        assert (outcome.content, outcome.reasoning) == (case.content, case.reasoning)


def test_the_formats_are_as_many_as_other_servers_have() -> None:
    names = {case.name.partition(",")[0] for case in corpus()["servers"]}
    assert len(names) >= 60


def random_cuts(seed: str, length: int) -> Iterator[list[int]]:
    """Places to cut a text of `length`."""
    rng = random.Random(seed)
    places = range(length + 1)
    return (rng.choices(places, k=rng.randrange(2, MOST_CUTS + 1)) for _ in range(RANDOM_SPLITS))


def test_the_corpus_is_large_and_has_every_family() -> None:
    cases = all_cases()
    assert len(cases) >= 300
    assert len({case.name for case in cases}) == len(cases)
    assert corpus().keys() >= FAMILIES
    assert {case.style for case in cases} == STYLES.keys()


def test_every_case_says_where_it_comes_from() -> None:
    for case in all_cases():
        assert case.origin in ("recorded", "reported", "written")
        assert (case.origin == "reported") == bool(case.complaint), case.name


def all_cases() -> list[Case]:
    return [case for cases in corpus().values() for case in cases]
