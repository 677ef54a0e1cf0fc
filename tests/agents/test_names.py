"""Names of the tools that ask providers."""

import re

from hypothesis import given
from hypothesis import strategies as st

from shepherd.agents import tool_names

NAMES = st.sets(st.from_regex(r"[a-c0-1][a-c0-1_-]{0,3}", fullmatch=True), max_size=12)


@given(NAMES)
def test_every_provider_has_a_name_of_its_own_that_every_api_takes(providers: set[str]) -> None:
    names = tool_names(providers)
    assert names.keys() == providers
    assert len(set(names.values())) == len(providers)
    assert all(re.fullmatch(r"ask_[a-z0-9_]{1,60}", name) for name in names.values())
    assert tool_names(sorted(providers, reverse=True)) == names


def test_names_are_the_providers() -> None:
    given = ["work", "my-box", "my_box", "my_box_2"]
    assert tool_names(given) == {
        "work": "ask_work",
        "my-box": "ask_my_box",
        "my_box": "ask_my_box_2",
        "my_box_2": "ask_my_box_2_2",
    }
