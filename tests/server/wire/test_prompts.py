"""Prompts without messages."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shepherd.server.errors import ApiError
from shepherd.server.wire.content import prompts_of
from shepherd.session import RawPrompt
from tests.patience import PATIENCE
from tests.server.harness import scripted

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
JSON: Any = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
FIELDS = [
    *("prompt", "suffix", "max_tokens", "n_predict", "echo", "logprobs", "n", "best_of", "stream"),
    *("stream_options", "grammar", "json_schema", "stop", "logit_bias", "seed", "temperature"),
    *("n_probs", "n_cmpl", "response_fields", "return_progress", "return_tokens", "model"),
    *("content", "tokens", "add_special", "with_pieces", "input_prefix", "input_suffix", "id_slot"),
    *("input_extra", "messages", "tools", "tool_choice", "continue_final_message", "verbose"),
]
PATHS = [
    *("/v1/completions", "/completion", "/completions", "/infill", "/tokenize", "/detokenize"),
    *("/apply-template", "/v1/chat/completions", "/chat/completions/input_tokens"),
]
PROMPTS = st.text() | st.lists(st.text() | st.integers(0, 9)) | JSON


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    headers = {"Content-Type": "application/json"}
    with scripted("text: hi") as server, httpx.Client(base_url=server.url) as opened:
        opened.headers.update(headers)
        opened.timeout = httpx.Timeout(PATIENCE)
        yield opened


@given(st.sampled_from(PATHS), st.dictionaries(st.sampled_from(FIELDS), PROMPTS, max_size=5))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_request_is_a_fault_of_the_server(
    client: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    response = client.post(path, content=json.dumps(body))
    assert response.status_code in (200, 400)
    if response.status_code == 400:
        assert response.json()["error"]["message"]


@given(JSON)
def test_a_prompt_is_understood_or_refused(value: Any) -> None:
    with suppress(ApiError):
        found = prompts_of(value)
        assert found.prompts
        assert all(prompt.parts for prompt in found.prompts)


@pytest.mark.parametrize(
    ("value", "prompts"),
    [
        ("a", ["a"]),
        ([1, 2], [(1, 2)]),
        (["a", "b"], ["a", "b"]),
        ([1, "a", 2], [(1, "a", 2)]),
        ([[1], "a", [2, "b"]], [(1,), "a", (2, "b")]),
        ({"prompt_string": "a"}, ["a"]),
    ],
)
def test_lists_are_one_prompt_or_several(value: Any, prompts: list[Any]) -> None:
    expected = [RawPrompt((p,) if isinstance(p, str) else p) for p in prompts]
    assert [*prompts_of(value).prompts] == expected
