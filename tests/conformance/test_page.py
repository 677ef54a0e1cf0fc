"""The page of verdicts says what was run, and keeps what was not."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scripts.conformance import place
from scripts.conformance.__main__ import PAGE, judges
from scripts.conformance.page import Outcome, render
from scripts.conformance.verdict import Skipped, Verdict

NAMES = ("first", "second", "third")
TEXTS = st.text(max_size=12)
VERDICTS = st.builds(
    Verdict,
    TEXTS,
    TEXTS,
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.tuples(TEXTS),
    st.lists(TEXTS, max_size=3).map(tuple),
    st.lists(TEXTS, max_size=3).map(tuple),
)
OUTCOMES = st.dictionaries(
    st.sampled_from(NAMES), st.lists(VERDICTS, max_size=3) | st.builds(Skipped, TEXTS)
)


@given(OUTCOMES)
def test_a_run_without_judges_keeps_every_line(outcomes: dict[str, Outcome]) -> None:
    page = render(outcomes, NAMES, "")
    assert render({}, NAMES, page) == page


@given(OUTCOMES, OUTCOMES)
@example({}, {"first": [Verdict("\n", "", 0, 0, ("",), ("",), ())], "second": []})
def test_what_ran_alone_is_what_ran_together(
    before: dict[str, Outcome], after: dict[str, Outcome]
) -> None:
    page = render(before, NAMES, "")
    for name, outcome in after.items():
        page = render({name: outcome}, NAMES, page)
    assert page == render(after, NAMES, render(before, NAMES, ""))


def test_what_was_skipped_keeps_its_row_and_says_why() -> None:
    verdict = Verdict("Suite", "1.0", 6, 7, ("a|b: not served",), ("a test: 1 is not 2",))
    page = render({"first": [verdict]}, NAMES, "")
    row = "| `first` | Suite | 1.0 | 6 of 7 | a\\|b: not served |"
    assert row in page.splitlines()
    assert "- `first`, Suite: a test: 1 is not 2" in page.splitlines()
    again = render({"first": Skipped("it needs Node.js")}, NAMES, page)
    assert row in again.splitlines()
    assert "- `first`: it needs Node.js." in again.splitlines()
    assert "Node.js" not in render({"first": [verdict]}, NAMES, again)


def test_the_published_page_is_one_that_a_run_wrote() -> None:
    page = PAGE.read_text("utf-8")
    assert render({}, judges(), page) == page


def test_a_judge_that_cannot_be_installed_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "CACHE", tmp_path)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{tmp_path}/none/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://github.com/")
    with pytest.raises(Skipped, match="git clone"):
        place.repository("owner/name")
    assert not (tmp_path / "owner+name").exists()
