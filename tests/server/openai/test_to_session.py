"""Requests as sessions."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields

from shepherd.backends.base import Generation, ModelInfo
from shepherd.events import FinishReason
from shepherd.messages import Message, Role, ToolCall, ToolSpec
from shepherd.sampling import Sampling, check_sampling
from shepherd.server.errors import ApiError
from shepherd.server.openai.answers import ChatAnswer
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.openai.to_session import session_from_request
from shepherd.server.wire.fields import MAX_TOKENS
from shepherd.session import Session

HI: dict[str, Any] = {"role": "user", "content": "hi"}


def session(*messages: dict[str, Any], **options: Any) -> Session:
    request = ChatRequest.model_validate({"messages": messages or (HI,)} | options)
    return session_from_request(request, thinking=False)


def limit(default: int = 0, **options: Any) -> int:
    return ChatRequest.model_validate({"messages": [HI]} | options).token_limit(default)


def test_system_messages_are_merged_wherever_they_stand() -> None:
    found = session(
        {"role": "system", "content": "Be brief."},
        HI,
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "system", "content": ""},
    )
    assert found.system_message == "Be brief.\n\nBe kind."
    assert found.messages == [Message.user("hi")]


def test_a_conversation_with_calls() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    found = session(
        HI,
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "assistant", "content": "ok", "tool_calls": None, "reasoning": "so"},
    )
    made = ToolCall("c1", "f", {"a": 1})
    assert found.messages == [
        Message.user("hi"),
        Message.assistant("", "hm", (made,)),
        Message.tool(made, "done"),
        Message.assistant("ok", "so"),
    ]


def test_calls_without_ids_and_results_without_calls() -> None:
    bare = {"function": {"name": "f", "arguments": {"a": 1}}}
    found = session(
        {"role": "assistant", "tool_calls": [bare, bare | {"id": None}]},
        {"role": "tool", "tool_call_id": "unknown", "name": "g", "content": "r"},
        {"role": "function", "name": "f", "content": "old"},
    )
    ids = [call.id for call in found.messages[0].tool_calls]
    assert len(set(ids)) == 2
    assert "" not in ids
    assert found.messages[1] == Message(Role.TOOL, "r", tool_call_id="unknown", name="g")
    assert found.messages[2] == Message(Role.TOOL, "old", name="f")


def test_tools_in_both_shapes() -> None:
    schema = {"type": "object", "properties": {"p": {"type": "string"}}}
    nested = {"type": "function", "function": {"name": "f", "parameters": schema, "strict": True}}
    flat = {"type": "function", "name": "g", "description": "does g", "parameters": None}
    empty: dict[str, Any] = {"type": "object", "properties": {}}
    expected = [ToolSpec("f", "", schema), ToolSpec("g", "does g", empty)]
    assert session(tools=[nested, flat]).tools == expected
    assert session(tools=[nested, flat], tool_choice="auto").tools == expected
    assert session(tools=[nested, flat], tool_choice="none").tools == []
    assert session(tools=None).tools == []


def test_sampling_is_mapped() -> None:
    found = session(
        temperature=0.5,
        top_p=0.8,
        top_k=20,
        min_p=0.1,
        repetition_penalty=1.1,
        frequency_penalty=0.2,
        presence_penalty=-0.3,
        seed=-2,
        stop="END",
    ).sampling
    assert found == Sampling(
        temperature=0.5,
        top_p=0.8,
        top_k=20,
        min_p=0.1,
        penalty_repeat=1.1,
        penalty_freq=0.2,
        penalty_present=-0.3,
        seed=2**32 - 2,
        stop=("END",),
    )


def test_every_parameter_can_be_set() -> None:
    found = session(
        min_keep=2,
        typ_p=0.9,
        top_n_sigma=-1,
        xtc_probability=0.5,
        xtc_threshold=0.2,
        dynatemp_range=0.5,
        dynatemp_exponent=2,
        repeat_last_n=-1,
        dry_multiplier=0.8,
        dry_base=2,
        dry_allowed_length=3,
        dry_penalty_last_n=100,
        dry_sequence_breakers=["\n"],
        mirostat=2,
        mirostat_tau=4,
        mirostat_eta=0.2,
        samplers=["typ_p", "top-k", "temperature"],
        ignore_eos=True,
        logprobs=True,
        top_logprobs=2,
        logit_bias={"7": -100, "text": 2.5},
        temperature=0.5,
        top_p=0.8,
        top_k=20,
        min_p=0.1,
        repeat_penalty=1.1,
        frequency_penalty=0.2,
        presence_penalty=-0.3,
        seed=1,
        stop=["x"],
    ).sampling
    names = {field.name for field in fields(Sampling)} - {"logprobs_after"}  # llama.cpp's own
    assert None not in [getattr(found, name) for name in names]
    assert found.samplers == ("typical_p", "top_k", "temperature")
    assert found.logit_bias == ((7, -100.0), ("text", 2.5))
    assert (found.typical_p, found.penalty_last_n, found.logprobs) == (0.9, -1, 2)
    assert check_sampling(found) == found


def test_biases_may_be_a_list_and_false_is_a_ban() -> None:
    found = session(logit_bias=[[7, False], ["text", 1], ["8", 2]]).sampling
    assert found.logit_bias == ((7, -100.0), ("text", 1.0), (8, 2.0))
    assert session(logit_bias={}).sampling == session(logit_bias=[]).sampling == Sampling()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
    ],
)
def test_log_probabilities(options: dict[str, Any], expected: int | None) -> None:
    assert session(**options).sampling.logprobs == expected


def test_silence_leaves_sampling_to_the_settings() -> None:
    silent = dict.fromkeys(("temperature", "top_p", "seed", "stop", "n", "stream"))
    assert session().sampling == session(**silent).sampling == Sampling()
    assert session(stop=["", "x"]).sampling.stop == ("x",)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "high"}, True),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"}, False),
        ({"chat_template_kwargs": {"other": 1}}, None),
    ],
)
def test_thinking(options: dict[str, Any], expected: bool | None) -> None:  # noqa: FBT001
    request = ChatRequest.model_validate({"messages": [HI]} | options)
    for default in (False, True):
        found = session_from_request(request, thinking=default).thinking
        assert found is (default if expected is None else expected)


def test_token_limits() -> None:
    assert limit() == limit(max_tokens=None) == limit(max_tokens=-1) == 0
    assert limit(max_tokens=5) == limit(max_completion_tokens=5, max_tokens=9) == 5
    assert limit(max_completion_tokens=None, max_tokens=9) == 9
    assert limit(default=7) == 7
    assert limit(default=7, max_tokens=-1) == 0
    assert limit(max_tokens=10**30) == MAX_TOKENS


def test_a_result_must_say_what_it_answers() -> None:
    with pytest.raises(ApiError) as caught:
        session(HI, {"role": "tool", "content": "x"})
    assert caught.value.param == "messages.1.tool_call_id"


calls = st.builds(
    ToolCall,
    id=st.text(min_size=1),
    name=st.text(min_size=1),
    arguments=st.dictionaries(st.text(), st.integers() | st.text() | st.none()),
)
assistant = st.builds(
    Message.assistant, st.text(), st.text(), st.lists(calls, max_size=3).map(tuple)
)


@given(assistant)
def test_what_is_answered_comes_back_as_it_was(message: Message) -> None:
    request = ChatRequest.model_validate({"messages": [HI]})
    answer = ChatAnswer(request, ModelInfo("m", "test", 0), reasoning=True)
    whole = answer.whole([Generation(message, FinishReason.STOP)])
    replayed = json.loads(json.dumps(whole))["choices"][0]["message"]
    assert session(replayed).messages == [message]


@pytest.mark.parametrize(
    ("options", "effort", "budget"),
    [
        ({}, "", None),
        ({"reasoning_effort": "none"}, "", None),
        ({"reasoning_effort": "low"}, "low", None),
        ({"reasoning_effort": "max"}, "xhigh", None),
        ({"reasoning_effort": "enormous"}, "", None),
        ({"thinking_budget_tokens": 100}, "", 100),
        ({"reasoning_budget_tokens": 0}, "", 0),
        ({"reasoning_effort": "high", "thinking_budget_tokens": -1}, "high", None),
    ],
)
def test_effort_and_budget(options: dict[str, Any], effort: str, budget: int | None) -> None:
    request = ChatRequest.model_validate({"messages": [HI]} | options)
    session = session_from_request(request, thinking=True)
    assert (session.thinking_effort, session.thinking_budget) == (effort, budget)
