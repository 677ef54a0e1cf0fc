"""Messages survive their JSON form; sampling parameters know their ranges."""

import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.errors import InvalidRequestError
from shepherd.images import MEDIA_TYPES, Image
from shepherd.messages import Message, Role, ToolCall, message_from_json, message_to_json
from shepherd.sampling import DEFAULT_SAMPLING, PARAMETERS, Sampling, check_sampling
from shepherd.session import Session, TokenLedger

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=3)
EXTRA = st.dictionaries(st.text(), OBJECTS, max_size=2)
CALLS = st.builds(ToolCall, st.text(), st.text(), OBJECTS, EXTRA)
MESSAGES = st.builds(
    Message,
    st.sampled_from(Role),
    st.text(),
    st.text(),
    st.lists(CALLS, max_size=3).map(tuple),
    st.text(),
    st.text(),
    EXTRA,
    st.lists(
        st.builds(Image, st.sampled_from(MEDIA_TYPES), st.binary(), st.text()), max_size=2
    ).map(tuple),
)


@given(MESSAGES)
def test_json_round_trip(message: Message) -> None:
    assert message_from_json(json.loads(json.dumps(message_to_json(message)))) == message


@pytest.mark.parametrize("data", [{}, {"role": "user"}, {"role": "king", "content": ""}])
def test_damaged_messages_are_refused(data: dict[str, str]) -> None:
    with pytest.raises((KeyError, ValueError)):
        message_from_json(data)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_value_out_of_range_is_refused_by_name(name: str) -> None:
    low, high = PARAMETERS[name].low, PARAMETERS[name].high
    check_sampling(Sampling(**{name: low}))  # pyright: ignore[reportArgumentType] # by name
    check_sampling(Sampling(**{name: high}))  # pyright: ignore[reportArgumentType] # by name
    for bad in (low - 1, high + 1, float("nan"), float("inf")):
        with pytest.raises(InvalidRequestError, match=f"{name} must be between"):
            check_sampling(Sampling(**{name: bad}))  # pyright: ignore[reportArgumentType] # by name


def test_given_parameters_win_over_defaults() -> None:
    merged = Sampling(temperature=0.0, stop=("x",)).over(DEFAULT_SAMPLING)
    assert (merged.temperature, merged.top_k, merged.stop) == (0.0, 40, ("x",))


def test_eviction_keeps_ledger_and_messages_parallel() -> None:
    session = Session(messages=[Message.user(str(i)) for i in range(5)])
    session.ledger.counts[:] = [10, 11, 12, 13, 14]
    evicted = session.evict([range(1, 3)])
    assert [m.content for m in evicted] == ["1", "2"]
    assert session.ledger.counts == [10, 13, 14]
    assert [m.content for m in session.messages] == ["0", "3", "4"]


def test_a_session_leaves_the_lists_that_it_is_made_from_alone() -> None:
    ledger, times = TokenLedger([1], context_used=1), list[datetime | None]()
    messages = [Message.user("a"), Message.user("b")]
    session = Session(messages=messages, ledger=ledger, times=times)
    assert (session.ledger.counts, session.ledger.context_used) == ([1, None], 1)
    assert session.times == [None, None]
    assert (ledger.counts, times) == ([1], [])
