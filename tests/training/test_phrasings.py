"""The phrasings of the training: each makes a sensible request, whatever is chosen in it."""

import random
import re

import pytest

from training.asks import more_asks
from training.joints import BOTH, HELD_BOTH, HELD_THEN, THEN
from training.lists import sections
from training.phrasing import expand

VALUE = re.compile(r"\{\w\}")


@pytest.mark.parametrize("file", ["requests", "everyday", "talk"])
def test_no_phrasing_becomes_empty_or_keeps_a_choice(file: str) -> None:
    rng = random.Random(1)
    for intent, lines in sections(file).items():
        for line in lines:
            text = expand(rng, line)
            assert text, (intent, line)
            assert not set("[]") & set(text), (intent, line)


@pytest.mark.parametrize("file", ["requests", "everyday"])
def test_a_request_names_all_that_its_call_needs(file: str) -> None:
    rng = random.Random(1)
    for intent, lines in sections(file).items():
        if intent.startswith("pick"):
            continue  # by an ordinal or by a number
        wanted = set(VALUE.findall(lines[0]))
        for line in lines:
            assert set(VALUE.findall(expand(rng, line))) == wanted, (intent, line)


def test_a_request_for_a_client_tool_names_all_its_arguments() -> None:
    lines = sections("clients")["train"]
    for head, asks in zip(lines[::2], lines[1::2], strict=True):
        count = len(head.split(", ")) if "()" not in head else 0
        for ask in asks.strip().split("|"):
            assert set(VALUE.findall(ask)) == {f"{{{i}}}" for i in range(count)}, ask


@pytest.mark.parametrize("args", [[], ["city"], ["city", "year"], ["city", "year", "unit"]])
def test_a_request_for_a_made_up_tool_names_all_its_arguments(args: list[str]) -> None:
    for ask in more_asks("get_moon", "get", "moon", args):
        assert set(VALUE.findall(ask)) == {f"{{{i}}}" for i in range(len(args))}, ask


def test_joints_are_disjoint() -> None:
    assert not set(THEN) & set(HELD_THEN)
    assert not set(BOTH) & set(HELD_BOTH)
