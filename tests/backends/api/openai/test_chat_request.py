"""Sessions as requests for chat completions."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.openai.chat_adapter import OpenAIChatAdapter
from shepherd.backends.api.openai.dialects import (
    AZURE,
    DEEPSEEK,
    EXTENDED,
    MISTRAL,
    OPENAI,
    OPENROUTER,
    PLAIN,
    TENSORRT,
    Dialect,
)
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.sampling import DEFAULT_SAMPLING, Sampling
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.openai.to_session import session_from_request
from shepherd.session import OutputFormat, Session, ToolChoice
from tests.backends.api.openai.official import valid_chat
from tests.backends.api.test_normalise import histories

SPEC = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
CALL = ToolCall("call_1", "add", {"a": 1, "b": "ö"})
HISTORY = [
    Message.user("1+1?"),
    Message.assistant("", "I add.", (CALL,)),
    Message.tool(CALL, "2"),
    Message.assistant("2", "Done."),
    Message.user("sure?"),
]
MESSAGES = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "1+1?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "add", "arguments": '{"a": 1, "b": "ö"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "2"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "sure?"},
]


def session(**more: Any) -> Session:
    return Session("Be short.", list(HISTORY), **more)


def body(
    given: Session, model: str | ModelTraits = "gpt-4.1", dialect: Dialect = OPENAI, limit: int = 0
) -> JsonObject:
    traits = ModelTraits(model) if isinstance(model, str) else model
    request = OpenAIChatAdapter(dialect).chat(given, traits, limit)
    assert request.body is not None
    assert (request.path, request.method, request.stream) == ("chat/completions", "POST", True)
    return request.body


def test_a_plain_request_has_what_it_needs_and_no_more() -> None:
    assert valid_chat(body(session(), "gpt-4.1", PLAIN)) == {
        "model": "gpt-4.1",
        "messages": MESSAGES,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_tools_are_told() -> None:
    given = body(session(tools=[SPEC, ToolSpec("now", "")]))
    assert valid_chat(given)["tools"] == [
        {
            "type": "function",
            "function": {"name": "add", "description": "Adds.", "parameters": SPEC.parameters},
        },
        {
            "type": "function",
            "function": {"name": "now", "parameters": {"type": "object", "properties": {}}},
        },
    ]


@pytest.mark.parametrize(
    ("choice", "fields"),
    [
        (None, {}),
        (ToolChoice(), {"tool_choice": "required"}),
        (ToolChoice(single=True), {"tool_choice": "required", "parallel_tool_calls": False}),
        (
            ToolChoice("add"),
            {
                "tool_choice": {"type": "function", "function": {"name": "add"}},
                "parallel_tool_calls": False,
            },
        ),
    ],
)
def test_a_tool_is_chosen(choice: ToolChoice | None, fields: JsonObject) -> None:
    given = valid_chat(body(session(tools=[SPEC], tool_choice=choice)))
    assert {name: given[name] for name in given if "tool_" in name} == fields
    assert "tool_choice" not in body(session(tool_choice=choice))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4.1", "max_tokens"),
        ("qwen3", "max_tokens"),
        ("o3", "max_completion_tokens"),
        ("o4-mini-2025-04-16", "max_completion_tokens"),
        ("gpt-5-mini", "max_completion_tokens"),
        ("gpt-6-astra", "max_completion_tokens"),
        ("openai/gpt-5", "max_completion_tokens"),
        ("gpt-5-chat-latest", "max_tokens"),
        ("gpt-35-turbo", "max_tokens"),
        ("gpt-4o", "max_tokens"),
        ("o2bert", "max_tokens"),
    ],
)
def test_the_limit_has_the_model_s_name_for_it(model: str, name: str) -> None:
    given = valid_chat(body(session(), model, limit=100))
    assert {key: given[key] for key in given if key.startswith("max_")} == {name: 100}


def test_the_model_database_names_the_limit() -> None:
    traits = ModelTraits("mine", limit_parameter="max_completion_tokens")
    assert valid_chat(body(session(), traits, limit=7))["max_completion_tokens"] == 7


ANY_OBJECT: JsonObject = {"type": "object"}
SCHEMA: JsonObject = {"type": "object", "properties": {"a": {"type": "integer"}}}


def test_the_answer_s_form_is_told() -> None:
    given = valid_chat(body(session(output_format=OutputFormat(SCHEMA, strict=True))))
    assert given["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
    }
    anything = valid_chat(body(session(output_format=OutputFormat(ANY_OBJECT))))
    assert anything["response_format"] == {"type": "json_object"}
    assert "JSON" in anything["messages"][0]["content"]
    extended = body(session(output_format=OutputFormat(ANY_OBJECT)), dialect=EXTENDED)
    assert extended["messages"][0] == MESSAGES[0]


def test_a_grammar_is_for_those_that_know_them() -> None:
    wanted = OutputFormat(grammar='root ::= "a"')
    assert body(session(output_format=wanted), dialect=EXTENDED)["grammar"] == 'root ::= "a"'
    with pytest.raises(InvalidRequestError, match="grammar"):
        body(session(output_format=wanted))


def test_openai_s_sampling_parameters_have_openai_s_names() -> None:
    sampling = Sampling(
        temperature=0.5,
        top_p=0.8,
        penalty_freq=0.1,
        penalty_present=0.2,
        seed=3,
        stop=("a", "b"),
        logit_bias=((5, -100.0),),
        logprobs=2,
    )
    given = valid_chat(body(session(sampling=sampling)))
    assert {key: given[key] for key in given if key not in body(session())} == {
        "temperature": 0.5,
        "top_p": 0.8,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "seed": 3,
        "stop": ["a", "b"],
        "logit_bias": {"5": -100},
        "logprobs": True,
        "top_logprobs": 2,
    }


@pytest.mark.parametrize(
    ("sampling", "param"),
    [
        (Sampling(ignore_eos=True), "ignore_eos"),
        (Sampling(stop=("a", "b", "c", "d", "e")), "stop"),
        (Sampling(logit_bias=(("a", 1.0),)), "logit_bias"),
    ],
)
def test_what_openai_has_not_and_is_needed_is_refused_by_name(
    sampling: Sampling, param: str
) -> None:
    with pytest.raises(InvalidRequestError) as failure:
        body(session(sampling=sampling))
    assert failure.value.param == param


def test_settings_for_other_models_are_left_out() -> None:
    assert body(session(sampling=Sampling(top_k=5, mirostat=2))) == body(session())


def test_reasoning_models_sample_in_their_own_way() -> None:
    free = Sampling(temperature=0.5, top_p=0.8, penalty_freq=0.1, penalty_present=0.2, seed=1)
    given = valid_chat(body(session(sampling=free), "o3"))
    assert {"temperature", "top_p", "frequency_penalty", "presence_penalty"}.isdisjoint(given)
    assert given["seed"] == 1
    with pytest.raises(InvalidRequestError, match="stop"):
        body(session(sampling=Sampling(stop=("a",))), "gpt-5")


@pytest.mark.parametrize(
    ("model", "thinking", "tools", "effort"),
    [
        ("o3", True, True, "medium"),
        ("o3", False, True, "low"),
        ("gpt-5", False, True, "minimal"),
        ("gpt-5.1", False, True, "none"),
        ("gpt-5.1", True, True, "medium"),
        ("gpt-5.4", True, True, "none"),
        ("gpt-5.4", True, False, "medium"),
        ("openai/gpt-5.4", True, True, "medium"),
        ("gpt-4.1", True, True, None),
    ],
)
def test_openai_s_models_are_told_how_much_to_reason(
    *, model: str, thinking: bool, tools: bool, effort: str | None
) -> None:
    given = valid_chat(body(session(thinking=thinking, tools=[SPEC] if tools else []), model))
    assert given.get("reasoning_effort") == effort


def test_others_are_asked_to_reason_if_they_can() -> None:
    able = ModelTraits("magnum", thinking=True)
    assert valid_chat(body(session(thinking=True), able, PLAIN))["reasoning_effort"] == "medium"
    assert "reasoning_effort" not in body(session(), able, PLAIN)
    assert "reasoning_effort" not in body(session(thinking=True), "magnum", PLAIN)


def test_an_extended_request_says_all_that_there_is_to_say() -> None:
    given = body(session(thinking=True, sampling=DEFAULT_SAMPLING), "qwen3", EXTENDED)
    assert given["chat_template_kwargs"] == {"enable_thinking": True}
    assert given["messages"][2]["reasoning_content"] == "I add."
    assert given["messages"][2]["reasoning"] == "I add."
    assert (given["top_k"], given["min_p"]) == (40, 0.0)
    assert given["repetition_penalty"] == given["repeat_penalty"] == 1.0
    assert "typ_p" in given["samplers"]


def test_our_own_server_understands_an_extended_request() -> None:
    sampling = replace(
        DEFAULT_SAMPLING, seed=1, stop=("x",), logit_bias=((5, -1.0), ("a", 2.5)), logprobs=3
    )
    choice = ToolChoice("add", single=True)
    given = session(thinking=True, sampling=sampling, tools=[SPEC], tool_choice=choice)
    request = ChatRequest.model_validate(body(given, "pup", EXTENDED, limit=9))
    understood = session_from_request(request, thinking=False)
    assert understood == given
    assert request.max_tokens == 9


@given(histories)
def test_our_own_server_understands_every_history(history: list[Message]) -> None:
    given = Session("s", history)
    understood = session_from_request(
        ChatRequest.model_validate(body(given, "pup", EXTENDED)), thinking=True
    )
    again = session_from_request(
        ChatRequest.model_validate(body(understood, "pup", EXTENDED)), thinking=True
    )
    assert again == understood


def lost_questions(history: list[Message], request: JsonObject) -> list[str]:
    """The pieces of the user's texts between surrogates that the request does not hold."""
    sent = json.dumps(request, ensure_ascii=False)
    said = [message.content.strip() for message in history if message.role is Role.USER]
    pieces = [piece for text in said for piece in re.split("[\ud800-\udfff]", text)]
    return [text for text in pieces if json.dumps(text, ensure_ascii=False)[1:-1] not in sent]


@given(histories)
def test_openai_takes_every_history(history: list[Message]) -> None:
    request = valid_chat(body(Session("", history), "gpt-4.1"))
    assert lost_questions(history, request) == []


def test_text_before_calls_is_kept_as_it_was() -> None:
    said = Message.assistant("Let me see.\n", tool_calls=(CALL,))
    given = Session("", [HISTORY[0], said, HISTORY[2]])
    assert body(given)["messages"][1]["content"] == "Let me see.\n"


def test_deepseek_gets_every_thought_back_while_it_thinks() -> None:
    given = Session("", [*HISTORY, Message.assistant("yes"), Message.user("ok")], thinking=True)
    thinking = body(given, "deepseek-v4", DEEPSEEK)
    answers = [m for m in thinking["messages"] if m["role"] == "assistant"]
    assert [m["reasoning_content"] for m in answers] == ["I add.", "Done.", ""]
    assert thinking["thinking"] == {"type": "enabled"}
    given.thinking = False
    plain = body(given, "deepseek-v4", DEEPSEEK)
    assert plain["thinking"] == {"type": "disabled"}
    assert not any("reasoning_content" in m for m in plain["messages"])


def test_mistral_gets_ids_of_its_form_and_no_more_than_it_takes() -> None:
    given = Session("", HISTORY[:4], sampling=Sampling(seed=5), thinking=True)
    sent = body(given, ModelTraits("devstral", thinking=True), MISTRAL, limit=5)
    call, result, last = sent["messages"][1], sent["messages"][2], sent["messages"][-1]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert len(result["tool_call_id"]) == 9
    assert result["tool_call_id"].isalnum()
    assert last["role"] == "user"
    assert set(sent) == {"model", "messages", "stream", "max_tokens", "random_seed"}


def test_openrouter_gets_back_what_it_gave() -> None:
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    said = Message(Role.ASSISTANT, "hi", extra={"openai": {"reasoning_details": details}})
    given = Session("", [HISTORY[0], said, HISTORY[0]])
    sent = body(given, "anthropic/claude", OPENROUTER)["messages"][1]
    assert sent == {"role": "assistant", "content": "hi", "reasoning_details": details}
    assert "reasoning_details" not in body(given)["messages"][1]


def test_tensorrt_gets_what_it_has() -> None:
    sampling = Sampling(top_k=3, min_p=0.1, penalty_repeat=1.1)
    given = body(session(sampling=sampling), "m", TENSORRT)
    assert {k: given[k] for k in given if k not in body(session())} == {
        "top_k": 3,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
    }


def test_azure_has_a_version_and_another_header() -> None:
    adapter = OpenAIChatAdapter(AZURE, "2024-10-21")
    request = adapter.chat(session(), ModelTraits("mine"), 0)
    assert request.path == "chat/completions?api-version=2024-10-21"
    assert adapter.models().path == "../../models?api-version=2024-10-21"
    assert adapter.auth("k") == {"api-key": "k"}
    assert OpenAIChatAdapter().auth("k") == {"Authorization": "Bearer k"}
    assert OpenAIChatAdapter().auth("") == {}
