"""Requests as sessions: what is honoured, and what is refused by its name."""

from typing import Any

import pytest
from pydantic import BaseModel

from shepherd.backends.base import ModelInfo
from shepherd.messages import Message, Role
from shepherd.sampling import Sampling
from shepherd.server.errors import ApiError
from shepherd.server.ollama.requests import (
    ChatRequest,
    GenerateRequest,
    Options,
    chat_session,
    generate_session,
)
from shepherd.session import Infill, OutputFormat, RawPrompt, Session
from tests.server.ollama.harness import HI

MODEL = ModelInfo("m", "test", 0, raw_prompts=True)


def chat(model: ModelInfo = MODEL, **fields: Any) -> Session:
    body = {"model": "m", "messages": HI} | fields
    return chat_session(ChatRequest.model_validate(body), model, thinking=False)


def generate(**fields: Any) -> Session:
    body = {"model": "m", "prompt": "hi"} | fields
    return generate_session(GenerateRequest.model_validate(body), MODEL, thinking=False)


def test_options_are_honoured() -> None:
    options = {
        "temperature": 0.5, "top_k": 10, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.7, "seed": 3,
        "repeat_last_n": 33, "repeat_penalty": 1.2, "presence_penalty": 1.5, "mirostat": 1,
        "frequency_penalty": 1.0, "mirostat_tau": 0.8, "mirostat_eta": 0.6, "stop": ["a", ""],
    }  # fmt: skip
    expected = Sampling(
        temperature=0.5, top_k=10, top_p=0.9, min_p=0.1, typical_p=0.7, seed=3,
        penalty_last_n=33, penalty_repeat=1.2, penalty_present=1.5, mirostat=1,
        penalty_freq=1.0, mirostat_tau=0.8, mirostat_eta=0.6, stop=("a",),
    )  # fmt: skip
    assert chat(options=options).sampling == generate(options=options).sampling == expected


@pytest.mark.parametrize("model", [ChatRequest, GenerateRequest, Options])
def test_null_is_as_good_as_nothing(model: type[BaseModel]) -> None:
    body = {"model": "m"}
    for name in model.model_fields:
        if name != "model":
            assert model.model_validate(body | {name: None}) == model.model_validate(body)


def test_options_that_load_a_model_have_no_effect() -> None:
    options = {"num_ctx": 4096, "num_keep": 5, "num_gpu": -1, "num_batch": 2, "use_mmap": True}
    assert chat(options=options, keep_alive="5m") == chat()


@pytest.mark.parametrize("seed", [-1, -5])
def test_a_negative_seed_is_random(seed: int) -> None:
    assert chat(options={"seed": seed}).sampling.seed is None


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, 7), (5, 5), (0, 0), (-1, 0), (-2, 0), (2**70, 2**31 - 1)]
)
def test_the_limit_of_tokens(limit: int | None, expected: int) -> None:
    body = ChatRequest.model_validate({"model": "m", "options": {"num_predict": limit}})
    assert body.token_limit(7) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("", None),
        ("json", OutputFormat({"type": "object"})),
        ({"type": "array"}, OutputFormat({"type": "array"})),
    ],
)
def test_formats(value: Any, expected: OutputFormat | None) -> None:
    assert chat(format=value).output_format == generate(format=value).output_format == expected


def test_raw_prompts_and_gaps() -> None:
    assert generate(raw=True).raw_prompt == RawPrompt(("hi",))
    assert generate(raw=True).messages == []
    assert generate(suffix="end").raw_prompt == Infill("hi", "end")
    assert generate(suffix="").raw_prompt is None


def test_system_messages_are_merged() -> None:
    messages = [
        {"role": "system", "content": "a"},
        *HI,
        {"role": "developer", "content": "b"},
    ]
    made = chat(messages=messages)
    assert (made.system_message, made.messages) == ("a\n\nb", [Message.user("hi")])


def test_an_answer_that_has_begun_is_continued_where_the_model_can() -> None:
    begun = [*HI, {"role": "assistant", "content": "The capital is"}]
    assert chat(messages=begun).continues
    assert not chat(ModelInfo("m", "test", 0), messages=begun).continues
    assert not chat(messages=HI).continues


def test_results_find_their_calls_by_id_name_or_order() -> None:
    def calls(*items: dict[str, Any]) -> dict[str, Any]:
        return {"role": "assistant", "content": "", "tool_calls": list(items)}

    def result(**fields: Any) -> dict[str, Any]:
        return {"role": "tool", "content": "x"} | fields

    a = {"function": {"name": "a", "arguments": {"n": 1}}}
    b = {"id": "id-b", "function": {"name": "b", "arguments": '{"n": 2}'}}
    messages = [
        *HI,
        calls(a, b),
        result(tool_call_id="id-b"),
        result(tool_name="a"),
        calls(a, a),
        result(),
        result(name="a"),
        result(tool_name="unknown"),
    ]
    made = chat(messages=messages).messages
    assert [call.arguments for call in made[1].tool_calls] == [{"n": 1}, {"n": 2}]
    told = [(m.name, m.tool_call_id) for m in made if m.role is Role.TOOL]
    assert told == [
        ("b", "id-b"), ("a", "call_1"), ("a", "call_2"), ("a", "call_3"), ("unknown", "call_4"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"template": "{{ .Prompt }}"}, "template"),
        ({"context": [1, 2]}, "context"),
        ({"width": 512}, "width"),
        ({"steps": 5}, "steps"),
        ({"raw": True, "system": "x"}, "system"),
        ({"suffix": "x", "system": "x"}, "system"),
        ({"top_logprobs": 3}, "top_logprobs"),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(ApiError) as caught:
        generate(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in caught.value.message


def test_a_level_of_thought_is_an_effort() -> None:
    assert chat(think="low").thinking_effort == "low"
    assert generate(think="max").thinking_effort == "xhigh"
    assert chat(think=True).thinking_effort == ""
    assert not chat(think=False).thinking
