"""JSON as it goes out."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.json_text import frame, to_json
from shepherd.server.responses import JsonResponse

values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["NaN", "-Infinity"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(values)
def test_it_is_the_same_value_on_one_line(value: Any) -> None:
    assert json.loads(to_json(value)) == value
    assert len(to_json(value).splitlines()) == 1
    assert len(frame({"value": value}).splitlines()) == 2
    assert json.loads(bytes(JsonResponse(value).body)) == value


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_allow_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_json({"text": "NaN", "value": [number]})


@given(st.text(alphabet=st.characters(categories=("Cs", "Lu"))))
def test_half_pairs_are_no_failure(text: str) -> None:
    sent = json.loads(to_json(text).encode())
    assert [c.isupper() for c in sent if c != "?"] == [c.isupper() for c in text if c.isupper()]
