"""Errors of many servers: which are overflows, and what their numbers mean."""

import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.api.overflow import (
    OVERFLOW,
    Overflow,
    error_text,
    is_rate_limit,
    parse_overflow,
)
from shepherd.errors import ContextFullError
from shepherd.server.errors import to_api_error
from shepherd.server.wire.errors import error_body

CORPUS = json.loads(Path(__file__).with_name("overflow_corpus.json").read_text("utf-8"))
"""What servers really say, from their sources, their documentation and their users' reports."""

BODIES = [case["body"] for cases in CORPUS.values() for case in cases]
WORDS = st.sampled_from(sorted({w for body in BODIES for w in json.dumps(body).split()}))
"""The words of the errors, one by one."""

Case: TypeAlias = dict[str, Any]


def cases(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", CORPUS[kind], ids=lambda case: case["source"])


@cases("overflows")
def test_an_overflow_is_known_with_its_numbers(case: Case) -> None:
    overflow = parse_overflow(case["body"])
    assert overflow is not None
    assert overflow.limit == case.get("limit")
    assert overflow.prompt_tokens == case.get("prompt")
    assert overflow.output_tokens == case.get("asked")
    assert overflow.tokens_over == case.get("over")
    assert overflow.fits_with == case.get("fits_with")
    assert not is_rate_limit(400, case["body"])


@cases("rate_limits")
def test_a_rate_limit_is_no_overflow(case: Case) -> None:
    assert parse_overflow(case["body"]) is None
    assert is_rate_limit(case["status"], case["body"])


@cases("others")
def test_another_error_is_neither(case: Case) -> None:
    assert parse_overflow(case["body"]) is None
    assert not is_rate_limit(400, case["body"])


@cases("overflows")
def test_the_same_error_is_understood_through_any_wrapper(case: Case) -> None:
    body = case["body"]
    expected, text = parse_overflow(body), json.dumps(body)
    for wrapped in (
        text,
        {"error": {"message": text}},
        {"error": {"message": "Provider returned error", "metadata": {"raw": text}}},
        [body],
        {"message": [body]},
    ):
        assert parse_overflow(wrapped) == expected


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_what_our_own_server_says_comes_back_as_it_was(size: int, over: int) -> None:
    told = to_api_error(ContextFullError("full", over, size + over), size)
    assert parse_overflow(error_body(told)) == Overflow(size, size + over)


@given(st.one_of(st.none(), st.integers(1, 10**6)))
def test_our_own_server_is_understood_without_numbers(over: int | None) -> None:
    error = to_api_error(ContextFullError("It does not fit", over))
    overflow = parse_overflow(error_body(error))
    assert overflow == Overflow()


@given(st.integers(1, 10**7), st.integers(0, 10**7), st.one_of(st.none(), st.integers(1, 10**7)))
def test_less_output_is_only_proposed_where_it_gets_further(
    limit: int, prompt: int, asked: int | None
) -> None:
    overflow = Overflow(limit, prompt, asked)
    if overflow.tokens_over is not None:
        assert overflow.tokens_over >= 1
    if overflow.fits_with is not None:
        assert overflow.fits_with + prompt == limit
        assert 0 < overflow.fits_with < (asked or limit + 1)


@given(st.lists(WORDS, max_size=30).map(" ".join) | st.text(max_size=200))
def test_without_a_known_phrase_there_is_no_number(text: str) -> None:
    overflow = parse_overflow({"error": {"message": text}})
    assert (overflow is None) or OVERFLOW.search(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(BODIES),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(
                ["error", "message", "detail", "code", "n_ctx", "n_prompt_tokens", "raw"]
            )
            | st.text(),
            inner,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_nothing_that_a_server_sends_is_a_surprise(body: Any) -> None:
    overflow = parse_overflow(body)
    assert overflow is None or all(
        n is None or n >= 0 for n in (overflow.limit, overflow.output_tokens)
    )
    assert isinstance(error_text(body), str)
    assert is_rate_limit(429, body)


@pytest.mark.parametrize("text", ["[" * 5000, '{"error":' * 4000, "9" * 19_000, "<" * 19_000])
def test_a_hostile_body_is_read_like_any_other(text: str) -> None:
    assert parse_overflow(text) is None
    assert len(error_text(text)) < 2_100


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"error": {"message": "No."}}, "No."),
        ({"error": "No."}, "No."),
        ({"message": "No."}, "No."),
        ({"error": {"message": ["No.", "Never."]}}, "No.: Never."),
        ({"error": {"message": "Said", "metadata": {"raw": '{"message":"No."}'}}}, "Said: No."),
        ([{"error": {"message": "No."}}], "No."),
        ({"detail": [{"msg": "No.", "loc": ["body"]}]}, "No."),
        ("No.", "No."),
        ("<html><title>502 Bad Gateway</title></html>", "502 Bad Gateway"),
        ({"odd": 1}, '{"odd": 1}'),
        ({}, ""),
        ("", ""),
    ],
)
def test_the_user_reads_what_the_server_said(body: Any, text: str) -> None:
    assert error_text(body) == text
