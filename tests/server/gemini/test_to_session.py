"""Requests as sessions: what is honoured, and what is refused by its name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.base import ModelInfo
from shepherd.messages import Message, Role, ToolCall
from shepherd.server.errors import ApiError
from shepherd.server.gemini.answers import signature
from shepherd.server.gemini.requests import (
    FunctionCallingConfig,
    GeminiModel,
    GenerateRequest,
    GenerationConfig,
    Part,
    ThinkingConfig,
)
from shepherd.server.gemini.to_session import json_schema, session_from_request
from shepherd.server.seal import Seal
from shepherd.session import OutputFormat, Session, ToolChoice
from tests.server.gemini.harness import HI

SEAL = Seal()
TOOLS: list[Any] = [
    {"functionDeclarations": [{"name": "a"}, {"name": "b"}]},
    {"function_declarations": [{"name": "c", "parametersJsonSchema": {"type": "object"}}]},
]


def session(*, thinking: bool = False, **fields: Any) -> Session:
    body = GenerateRequest.model_validate({"contents": HI} | fields)
    return session_from_request(body, ModelInfo("m", "test", 0), SEAL, thinking=thinking)


def generation(**fields: Any) -> Session:
    return session(generationConfig=fields)


def test_the_model_s_contents_in_a_row_are_one_answer() -> None:
    contents = [
        *HI,
        {"role": "model", "parts": [{"text": "I think", "thought": True}, {"text": "one "}]},
        {"role": "model", "parts": [{"text": "two"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "a", "args": {"x": 1}}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "a", "response": {"output": "y"}}}],
        },
    ]
    user, answer, result = session(contents=contents).messages
    assert user == Message.user("hi")
    call = ToolCall("call_1", "a", {"x": 1})
    assert answer == Message.assistant("one two", "I think", (call,))
    assert result == Message.tool(call, "y")


@pytest.mark.parametrize("key", ["output", "result", "content", "return_value"])
def test_a_text_is_taken_out_of_the_object_around_it(key: str) -> None:
    def content(response: dict[str, str]) -> str:
        part = {"functionResponse": {"name": "a", "response": response}}
        call = {"role": "model", "parts": [{"functionCall": {"name": "a"}}]}
        contents = [*HI, call, {"role": "user", "parts": [part]}]
        return session(contents=contents).messages[-1].content

    assert content({key: "sunny"}) == "sunny"
    assert content({key: "sunny", "more": ""}) == f'{{"{key}": "sunny", "more": ""}}'


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("ids", [True, False])
def test_results_find_their_calls(order: tuple[str, str], ids: bool) -> None:  # noqa: FBT001 - a case
    def named(name: str) -> dict[str, Any]:
        return {"name": name} | ({"id": f"id-{name}"} if ids else {})

    results = [{"functionResponse": named(name) | {"response": {"error": name}}} for name in order]
    contents = [
        *HI,
        {"role": "model", "parts": [{"functionCall": named("a")}, {"functionCall": named("b")}]},
        {"role": "function", "parts": [*results, {"text": "now?"}]},
    ]
    _, answer, *told, last = session(contents=contents).messages
    by_name = {call.name: call.id for call in answer.tool_calls}
    assert [(m.role, m.name, m.tool_call_id) for m in told] == [
        (Role.TOOL, name, by_name[name]) for name in order
    ]
    assert told[0].content == f'{{"error": "{order[0]}"}}'
    assert last == Message.user("now?")


def test_calls_of_one_function_are_answered_in_their_order() -> None:
    call = {"functionCall": {"name": "a"}}
    result = {"functionResponse": {"name": "a", "response": {"output": "x"}}}
    contents = [
        *HI,
        {"role": "model", "parts": [call, call]},
        {"role": "user", "parts": [result, result, result]},
    ]
    messages = session(contents=contents).messages[2:]
    assert [m.tool_call_id for m in messages] == ["call_1", "call_2", "call_3"]


EXTRAS = st.dictionaries(
    st.sampled_from(["gemini", "openai"]), st.dictionaries(st.text(), st.text()), max_size=2
)


@given(reasoning=st.text(min_size=1), extra=EXTRAS, calls=st.lists(EXTRAS, max_size=2))
def test_a_signature_brings_back_what_clients_leave_out(
    reasoning: str, extra: Any, calls: list[Any]
) -> None:
    reasoning = reasoning.encode("utf-8", "replace").decode()
    made = tuple(ToolCall(f"id{i}", "a", {}, each) for i, each in enumerate(calls))
    message = Message(Role.ASSISTANT, "hello", reasoning, made, extra=extra)
    word = signature(SEAL, message)
    parts: list[Any] = [{"text": "hello"}]
    parts += [{"functionCall": {"id": call.id, "name": "a"}} for call in made]
    parts[-1]["thoughtSignature"] = word
    contents = [*HI, {"role": "model", "parts": parts}]
    assert session(contents=contents).messages[1] == message


@pytest.mark.parametrize(
    "word",
    [
        "skip_thought_signature_validator",
        "AAAA",
        "",
        "ä",
        "A" * 100,
        pytest.param(signature(Seal(), Message.assistant("", "x")), id="another server's"),
    ],
)
def test_foreign_signatures_are_ignored(word: str) -> None:
    parts = [{"text": "hello", "thoughtSignature": word}]
    contents = [*HI, {"role": "model", "parts": parts}]
    assert session(contents=contents).messages[1] == Message.assistant("hello")


@pytest.mark.parametrize("name", ["systemInstruction", "system_instruction"])
@pytest.mark.parametrize("value", ["a\nb", {"parts": [{"text": "a"}, {"text": "b"}]}, ["a", "b"]])
def test_instructions(name: str, value: Any) -> None:
    assert session(**{name: value}).system_message == "a\nb"


def test_sampling_is_honoured_by_both_names() -> None:
    camel = generation(
        temperature=0.5, topP=0.9, topK=40.0, seed=-1, stopSequences=["x", ""], presencePenalty=1,
        frequencyPenalty=-1, responseLogprobs=True, logprobs=3,
    ).sampling  # fmt: skip
    snake = session(
        generation_config={
            "temperature": 0.5, "top_p": 0.9, "top_k": 40, "seed": -1, "stop_sequences": ["x"],
            "presence_penalty": 1, "frequency_penalty": -1, "response_logprobs": True,
            "logprobs": 3,
        }
    ).sampling  # fmt: skip
    assert camel == snake
    assert (camel.temperature, camel.top_p, camel.top_k, camel.stop) == (0.5, 0.9, 40, ("x",))
    assert (camel.seed, camel.penalty_present, camel.penalty_freq) == (2**32 - 1, 1, -1)
    assert camel.logprobs == 3
    assert generation(responseLogprobs=True).sampling.logprobs == 0


@pytest.mark.parametrize(
    ("config", "default", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"thinkingBudget": 0}, True, False),
        ({"thinkingBudget": -1}, False, True),
        ({"thinkingBudget": 512}, False, True),
        ({"thinkingLevel": "high"}, False, True),
        ({"thinkingLevel": "THINKING_LEVEL_UNSPECIFIED"}, False, False),
        ({"includeThoughts": True}, False, True),
        ({"includeThoughts": False}, True, True),
        ({"includeThoughts": True, "thinkingBudget": 0}, True, False),
    ],
)
def test_thinking(config: Any, default: bool, expected: bool) -> None:  # noqa: FBT001 - a table
    body = {"generationConfig": {"thinkingConfig": config}}
    assert session(thinking=default, **body).thinking is expected


def calling(mode: Any, *names: str) -> Session:
    config = {"functionCallingConfig": {"mode": mode, "allowedFunctionNames": [*names]}}
    return session(tools=TOOLS, toolConfig=config)


@pytest.mark.parametrize(
    ("mode", "names", "offered", "choice"),
    [
        (None, (), "abc", None),
        ("AUTO", (), "abc", None),
        ("auto", (), "abc", None),
        ("VALIDATED", ("b",), "b", None),
        ("NONE", (), "", None),
        ("ANY", (), "abc", ToolChoice()),
        ("ANY", ("c", "a"), "ac", ToolChoice()),
    ],
)
def test_functions_are_offered_as_the_mode_says(
    mode: Any, names: tuple[str, ...], offered: str, choice: ToolChoice | None
) -> None:
    made = calling(mode, *names)
    assert ("".join(tool.name for tool in made.tools), made.tool_choice) == (offered, choice)


SCHEMA = {
    "type": "OBJECT",
    "properties": {
        "b": {"type": "STRING", "format": "enum", "enum": ["x", "y"], "nullable": True},
        "a": {"type": "ARRAY", "minItems": "2", "items": {"type": "INTEGER", "format": "int32"}},
        "c": {"anyOf": [{"type": "NUMBER"}, {"type": "BOOLEAN"}], "title": "T"},
        "type": {"type": "string", "nullable": True},
    },
    "required": ["a"],
    "propertyOrdering": ["a", "b", "nothing"],
}


def test_schemas_in_capitals_become_json_schemas() -> None:
    schema = json_schema(SCHEMA)
    assert schema == {
        "type": "object",
        "properties": {
            "a": {"type": "array", "minItems": 2, "items": {"type": "integer"}},
            "b": {"anyOf": [{"type": "string", "enum": ["x", "y"]}, {"type": "null"}]},
            "c": {"anyOf": [{"type": "number"}, {"type": "boolean"}], "title": "T"},
            "type": {"type": ["string", "null"]},
        },
        "required": ["a"],
    }
    assert [*schema["properties"]] == ["a", "b", "c", "type"]
    declaration = {"name": "f", "description": "d", "parameters": SCHEMA}
    (tool,) = session(tools=[{"functionDeclarations": [declaration]}]).tools
    assert (tool.name, tool.description, tool.parameters) == ("f", "d", schema)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, None),
        ({"responseMimeType": "text/plain"}, None),
        ({"responseMimeType": "application/json"}, OutputFormat({"type": "object"})),
        (
            {"responseMimeType": "application/json", "responseSchema": {"type": "STRING"}},
            OutputFormat({"type": "string"}),
        ),
        (
            {"responseMimeType": "application/json", "responseJsonSchema": {"type": "string"}},
            OutputFormat({"type": "string"}),
        ),
        (
            {
                "responseMimeType": "text/x.enum",
                "responseSchema": {"type": "STRING", "enum": ["a", 'b"\\\n']},
            },
            OutputFormat(grammar='root ::= "a" | "b\\"\\\\\\x0A"'),
        ),
    ],
)
def test_formats(config: Any, expected: OutputFormat | None) -> None:
    assert generation(**config).output_format == expected


CONFIG = "generationConfig"
CALLING = "toolConfig.functionCallingConfig"
REFUSED: list[tuple[Any, str]] = [
    ({"cachedContent": "cachedContents/x"}, "cachedContent"),
    ({"continuationToken": "x"}, "continuationToken"),
    ({CONFIG: {"responseModalities": ["TEXT", "IMAGE"]}}, f"{CONFIG}.responseModalities"),
    ({CONFIG: {"speechConfig": {"a": 1}}}, f"{CONFIG}.speechConfig"),
    ({CONFIG: {"imageConfig": {"a": 1}}}, f"{CONFIG}.imageConfig"),
    ({CONFIG: {"responseMimeType": "text/html"}}, f"{CONFIG}.responseMimeType"),
    ({CONFIG: {"responseSchema": {"type": "STRING"}}}, f"{CONFIG}.responseMimeType"),
    ({CONFIG: {"responseMimeType": "text/x.enum"}}, f"{CONFIG}.responseSchema"),
    (
        {CONFIG: {"responseSchema": {}, "responseJsonSchema": {}}},
        f"{CONFIG}.responseJsonSchema",
    ),
    ({CONFIG: {"logprobs": 1}}, f"{CONFIG}.logprobs"),
    ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, f"{CALLING}.mode"),
    ({"toolConfig": {"functionCallingConfig": {"mode": "MAYBE"}}}, f"{CALLING}.mode"),
    (
        {
            "tools": TOOLS,
            "toolConfig": {"functionCallingConfig": {"allowedFunctionNames": ["a"]}},
        },
        f"{CALLING}.allowedFunctionNames",
    ),
    (
        {
            "tools": TOOLS,
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["z"]}},
        },
        f"{CALLING}.allowedFunctionNames",
    ),
    (
        {"contents": [{"role": "model", "parts": [{"functionResponse": {"name": "a"}}]}]},
        "contents.0.parts",
    ),
    ({"contents": [{"parts": [{"functionCall": {"name": "a"}}]}]}, "contents.0.parts"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_what_would_change_the_answer_is_refused_by_name(fields: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        session(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in caught.value.message


@pytest.mark.parametrize(
    "model", [GenerateRequest, GenerationConfig, ThinkingConfig, Part, FunctionCallingConfig]
)
def test_null_is_as_good_as_nothing(model: type[GeminiModel]) -> None:
    needed = {"contents"}
    names = [f.alias or name for name, f in model.model_fields.items() if name not in needed]
    body = {"contents": HI}
    for name in names:
        assert model.model_validate(body | {name: None}) == model.model_validate(body)


def test_metadata_is_accepted() -> None:
    made = session(
        safetySettings=[{"category": "X", "threshold": "Y"}], labels={"a": "b"}, store=False,
        generationConfig={"mediaResolution": "LOW", "responseModalities": ["Text"]},
        serviceTier="flex",
    )  # fmt: skip
    assert made == session()


@pytest.mark.parametrize(
    ("config", "effort", "budget"),
    [
        ({"thinkingBudget": 512}, "", 512),
        ({"thinkingBudget": -1}, "", None),
        ({"thinkingLevel": "LOW"}, "low", None),
        ({"thinkingLevel": "high"}, "high", None),
        ({"thinkingLevel": "THINKING_LEVEL_UNSPECIFIED"}, "", None),
    ],
)
def test_effort_and_budget(config: dict[str, Any], effort: str, budget: int | None) -> None:
    asked = generation(thinkingConfig=config)
    assert (asked.thinking_effort, asked.thinking_budget) == (effort, budget)
