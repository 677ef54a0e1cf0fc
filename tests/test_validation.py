"""The sentence for each of pydantic's problems, and guesses at names."""

from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from shepherd.validation import describe_problem, did_you_mean, key_of, nearest


class Sample(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    count: Annotated[int, Field(ge=0, le=9)]
    names: Annotated[list[str], Field(max_length=2)] = []
    word: str = "a"

    @field_validator("word")
    @classmethod
    def _is_short(cls, word: str) -> str:
        if len(word) > 3:
            raise ValueError("is too long")
        return word


def sentence(data: dict[str, object], expected: str = "", *, show_value: bool = False) -> str:
    with pytest.raises(ValidationError) as caught:
        Sample.model_validate(data)
    problem = caught.value.errors(include_url=False)[0]
    return describe_problem(problem, key_of(problem), expected=expected, show_value=show_value)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({}, "count is missing"),
        ({"count": 1, "cuont": 2}, "cuont is unknown"),
        ({"count": "x"}, "count must be a valid integer"),
        ({"count": 10}, "count must be less than or equal to 9"),
        ({"count": 1, "names": ["a", 2]}, "names.1 must be a valid string"),
        ({"count": 1, "word": "long"}, "word: is too long"),
        ({"count": 1, "names": ["a", "b", "c"]}, "names must have at most 2 items"),
    ],
)
def test_each_kind_of_problem_has_its_sentence(data: dict[str, object], text: str) -> None:
    assert sentence(data) == text


def test_what_is_expected_replaces_pydantics_sentence() -> None:
    data: dict[str, object] = {"count": 1, "names": ["a", "b", "c"]}
    assert sentence(data, "two names", show_value=True) == (
        'names must be two names, got ["a", "b", "c"]'
    )


@given(st.text(), st.lists(st.text(min_size=1), max_size=5))
def test_a_guess_is_one_of_the_names(word: str, names: list[str]) -> None:
    guess = nearest(word, names)
    assert guess == "" or guess in names
    assert did_you_mean(word, names) == (f"; did you mean {guess}?" if guess else "")
    if word in names and word:
        assert guess == word
