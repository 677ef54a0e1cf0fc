"""Items, tools and choices as sessions."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.types.responses import ResponseOutputItem
from pydantic import TypeAdapter

from shepherd.backends.base import Generation, ModelInfo
from shepherd.events import FinishReason
from shepherd.messages import Message, Role, ToolCall
from shepherd.server.errors import ApiError
from shepherd.server.openai_responses.answers import REASONING_SUMMARY, OutputWriter
from shepherd.server.openai_responses.items import input_items
from shepherd.server.openai_responses.requests import ResponsesRequest, Status
from shepherd.server.openai_responses.to_session import REASONING, Conversation, Translator
from shepherd.server.openai_responses.tools import Toolset
from shepherd.server.seal import Seal
from shepherd.server.wire.answers import texts_of
from shepherd.session import OutputFormat, Session, ToolChoice
from tests.pictures import picture

PNG = picture("")
SEAL = Seal()
INPROCESS = ModelInfo("m", "llamacpp", 2048, checks_calls=True)
REMOTE = ModelInfo("m", "openai", 2048)
FUNCTION: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CUSTOM: dict[str, Any] = {"type": "custom", "name": "patch", "description": "Patch."}
GROUP: dict[str, Any] = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "note"}],
}
HOSTED: dict[str, Any] = {"type": "shell", "environment": {"type": "container_auto"}}
TOOLS = [FUNCTION, CUSTOM, GROUP, {"type": "web_search"}, HOSTED, {"type": "shell"}]


def conversation(model: ModelInfo = INPROCESS, **fields: Any) -> Conversation:
    request = ResponsesRequest.model_validate({"input": "hi"} | fields)
    translator = Translator(SEAL)
    return translator.conversation(request, input_items(request.input), model)


def session(*items: Any, **fields: Any) -> Session:
    return conversation(input=list(items), **fields).session


def refused(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        conversation(**fields)
    assert caught.value.status == 400
    return caught.value


def said(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def test_instructions_and_developer_messages_become_one() -> None:
    found = session(
        said("developer", [{"type": "input_text", "text": "Be kind."}]),
        said("user", "hi"),
        said("system", "Be short."),
        instructions="Be brief.",
    )
    assert found.system_message == "Be brief.\n\nBe kind.\n\nBe short."
    assert found.messages == [Message.user("hi")]


def test_the_items_of_an_answer_become_one_message() -> None:
    found = session(
        {"role": "user", "content": "hi"},
        {
            "type": "reasoning",
            "summary": [],
            "encrypted_content": Translator(SEAL).sign({"text": "Hm."}),
        },
        said("assistant", [{"type": "output_text", "text": "Looking."}]),
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "+ä"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "1"}],
        },
        tools=TOOLS,
    )
    calls = (ToolCall("c1", "f", {"a": 1}), ToolCall("c2", "patch", {"input": "+ä"}))
    assert found.messages == [
        Message.user("hi"),
        Message.assistant("Looking.", "Hm.", calls),
        Message.tool(calls[1], "ok"),
        Message.tool(calls[0], "1"),
    ]


def test_images_are_sent_and_refused_by_the_model() -> None:
    parts = [{"type": "input_image", "image_url": PNG.data_url, "detail": "low"}]
    for item in (
        said("user", parts),
        {"type": "function_call_output", "call_id": "c", "output": parts},
    ):
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
        found = conversation(ModelInfo("m", "api", 0, vision=True), input=[call, item])
        assert found.session.messages[-1].images == (PNG,)
        error = refused(model=ModelInfo("m", "api", 0, vision=False), input=[call, item])
        assert error.param == "input.1"


@pytest.mark.parametrize(
    ("item", "param"),
    [
        (5, "input.0"),
        ({"type": "web_search", "id": "ws_1"}, "input.0.type"),
        ({"type": "compaction", "encrypted_content": "x"}, "input.0.encrypted_content"),
        ({"type": "shell_call", "action": {}}, "input.0.call_id"),
        ({"type": []}, "input.0.type"),
        ({"role": "nobody", "content": "x"}, "input.0.role"),
        ({"role": "user"}, "input.0.content"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}, "input.0.content"),
        ({"type": "function_call_output", "call_id": "c9", "output": "x"}, "input.0.call_id"),
        ({"type": "function_call", "call_id": "c", "arguments": "{}"}, "input.0.name"),
        ({"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}, "input.0"),
    ],
)
def test_items_that_are_wrong_are_named(item: Any, param: str) -> None:
    error = refused(input=[item])
    assert (error.param or "").startswith(param)
    assert error.message.startswith("input.0")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.data())
def test_only_signed_reasoning_comes_back(text: str, data: st.DataObject) -> None:
    signed = json.dumps({"text": text})
    word = SEAL.wrap(REASONING, signed)
    place = data.draw(st.integers(0, len(word) - 1))
    forged = word[:place] + ("A" if word[place] != "A" else "B") + word[place + 1 :]
    item: dict[str, Any] = {"type": "reasoning", "summary": [], "encrypted_content": word}
    assert session(item).messages == [Message.assistant("", text)]
    for wrong in (
        forged,
        SEAL.wrap("other", signed),
        Seal().wrap(REASONING, signed),
        word + "AAAA",
    ):
        error = refused(input=[item | {"encrypted_content": wrong}])
        assert error.code == "invalid_encrypted_content"


def test_what_a_provider_needs_again_comes_back() -> None:
    extra = {"anthropic": {"thinking": [{"signature": "s"}]}}
    call = ToolCall("c1", "f", {"a": 1}, {"gemini": {"thoughtSignature": "t"}})
    message = replace(Message.assistant("Looking.", "Hm.", (call,)), extra=extra)
    output = OutputWriter(Toolset(), REASONING_SUMMARY, Translator(SEAL).sign)
    generation = Generation(message, FinishReason.TOOL_CALLS)
    for piece in texts_of(generation):
        list(output.add(piece))
    list(output.finish(generation, Status.COMPLETED))
    for item in output.items:
        TypeAdapter(ResponseOutputItem).validate_python(item, strict=True)
    assert session(*output.items).messages == [message]


def test_reasoning_that_can_be_read_comes_back() -> None:
    content = [{"type": "reasoning_text", "text": "Hm."}]
    summary = [{"type": "summary_text", "text": t} for t in ("One.", "Two.")]
    assert session({"type": "reasoning", "content": content}).messages[0].reasoning == "Hm."
    assert (
        session({"type": "reasoning", "summary": summary}).messages[0].reasoning == "One.\n\nTwo."
    )


def test_tools_that_only_openai_runs_are_left_out() -> None:
    found = conversation(tools=TOOLS)
    assert [spec.name for spec in found.session.tools] == ALL
    assert found.session.tools[2].description == "Part of crm: Customers."
    assert found.tools.left_out == ("web_search", "shell")


def test_there_are_not_too_many_tools_in_namespaces() -> None:
    nested = [{"type": "function", "name": f"f{n}"} for n in range(501)]
    groups = [{"type": "namespace", "name": name, "tools": nested} for name in "ab"]
    assert refused(tools=groups).param == "tools"


def test_a_call_of_a_namespace_is_known_by_both_names() -> None:
    found = session(
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "f",
            "namespace": "crm",
            "arguments": "{}",
        },
        tools=TOOLS,
    )
    assert found.messages[0].tool_calls[0].name == "crm__f"
    offered = conversation(tools=TOOLS).tools.of_call(ToolCall("c", "crm__f", {}))
    assert (offered.name, offered.namespace, offered.kind) == ("f", "crm", "function")


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"name": "f"}, "tools.0.type"),
        ({"type": "function"}, "tools.0.name"),
        ({"type": "function", "name": "f", "parameters": []}, "tools.0.parameters"),
        ({"type": "custom", "name": "c", "format": {"type": "xml"}}, "tools.0.format"),
        ({"type": "namespace", "name": "n", "tools": [{"type": "custom"}]}, "tools.0.tools.0.name"),
    ],
)
def test_tools_that_are_wrong_are_named(tool: dict[str, Any], param: str) -> None:
    assert refused(tools=[tool]).param == param


def with_format(syntax: str, definition: str) -> list[dict[str, Any]]:
    grammar = {"type": "grammar", "syntax": syntax, "definition": definition}
    return [CUSTOM | {"format": grammar}]


def test_grammars_that_are_not_enforced_are_refused() -> None:
    found = conversation(tools=with_format("regex", "[a-z]+")).session.tools[0]
    assert found.parameters["properties"]["input"]["pattern"] == "^(?:[a-z]+)$"
    found = conversation(tools=with_format("lark", 'start: "a"')).session.tools[0]
    assert 'start: "a"' in found.parameters["properties"]["input"]["description"]
    assert "%lark" in found.grammar
    lark = refused(tools=with_format("lark", "start: WORD"))
    assert (lark.param, "'WORD' in line 1" in lark.message) == ("tools.0.format.definition", True)
    assert refused(tools=with_format("regex", "a(?=b)")).param == "tools.0.format.definition"
    assert refused(tools=with_format("regex", "a"), model=REMOTE).param == "tools.0.format"
    assert conversation(REMOTE, tools=[CUSTOM | {"format": {"type": "text"}}]).session.tools


NAMED = {"type": "function", "name": "f"}
ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": [NAMED, {"type": "web_search"}]}
ALL = ["f", "patch", "crm__f", "note", "shell"]


@pytest.mark.parametrize(
    ("choice", "names", "expected"),
    [
        (None, ALL, None),
        ("auto", ALL, None),
        ("none", [], None),
        ("required", ALL, ToolChoice()),
        (NAMED, ALL, ToolChoice("f")),
        ({"type": "function", "function": {"name": "f"}}, ALL, ToolChoice("f")),
        ({"type": "custom", "name": "note"}, ALL, ToolChoice("note")),
        ({"type": "shell"}, ALL, ToolChoice("shell")),
        (ALLOWED | {"tools": [{"type": "shell"}]}, ["shell"], None),
        (ALLOWED, ["f"], None),
        (ALLOWED | {"mode": "required"}, ["f"], ToolChoice()),
        (ALLOWED | {"tools": [{"type": "namespace", "name": "crm"}]}, ["crm__f", "note"], None),
        (ALLOWED | {"tools": []}, [], None),
    ],
)
def test_tool_choice_in_all_forms(choice: Any, names: list[str], expected: Any) -> None:
    found = conversation(tools=TOOLS, tool_choice=choice).session
    assert [spec.name for spec in found.tools] == names
    assert found.tool_choice == expected


@pytest.mark.parametrize(
    "choice",
    [
        "maybe",
        5,
        {},
        {"type": []},
        {"type": "web_search"},
        {"type": "function", "name": "g"},
        {"type": "custom", "name": "f"},
        ALLOWED | {"mode": "some"},
        ALLOWED | {"tools": None},
        ALLOWED | {"tools": [{"type": "function", "name": "g"}]},
        ALLOWED | {"tools": ["f"]},
        {"type": "allowed_tools", "allowed_tools": "f"},
        ALLOWED | {"mode": "required", "tools": []},
    ],
)
def test_other_choices_are_refused(choice: Any) -> None:
    error = refused(tools=TOOLS, tool_choice=choice)
    assert (error.param or "").startswith("tool_choice")


def test_a_call_that_is_required_needs_tools() -> None:
    assert refused(tool_choice="required").param == "tool_choice"
    single = conversation(tools=TOOLS, tool_choice="required", parallel_tool_calls=False).session
    assert single.tool_choice == ToolChoice(single=True)


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, OutputFormat({"type": "object"})),
        ({"type": "json_schema", "name": "s", "schema": SCHEMA}, OutputFormat(SCHEMA)),
        (
            {"type": "json_schema", "name": "s", "schema": SCHEMA, "strict": True},
            OutputFormat(SCHEMA, strict=True),
        ),
    ],
)
def test_the_format_of_the_answer(value: Any, expected: OutputFormat | None) -> None:
    assert conversation(text={"format": value}).session.output_format == expected


@pytest.mark.parametrize("value", ["text", 5, {}, {"type": "xml"}, {"type": "json_schema"}])
def test_other_formats_are_refused(value: Any) -> None:
    assert (refused(text={"format": value}).param or "").startswith("text.format")


@pytest.mark.parametrize(
    ("effort", "default", "thinks"),
    [(None, False, False), (None, True, True), ("none", True, False), ("low", False, True)],
)
def test_the_effort_says_whether_the_model_reasons(
    effort: str | None, *, default: bool, thinks: bool
) -> None:
    request = ResponsesRequest.model_validate({"reasoning": {"effort": effort, "summary": "auto"}})
    found = Translator(SEAL, thinking=default).conversation(request, [], INPROCESS)
    assert found.session.thinking is thinks


@pytest.mark.parametrize(
    "fields",
    [{"messages": ["hi"]}, {"max_tokens": 5}, {"response_format": {"type": "json_object"}}],
)
def test_fields_of_other_apis_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        ResponsesRequest.model_validate({"input": "hi"} | fields)
    assert [caught.value.param] == [*fields]


@pytest.mark.parametrize("name", ["conversation", "prompt", "moderation", "context_management"])
def test_what_is_not_served_is_refused_by_name(name: str) -> None:
    error = refused(**{name: {"id": "x"}})
    assert (error.param, error.code) == (name, "unsupported_parameter")


def test_log_probabilities_come_if_they_are_included() -> None:
    include = ["message.output_text.logprobs"]
    assert conversation(include=include, top_logprobs=3).session.sampling.logprobs == 3
    assert conversation(include=include).session.sampling.logprobs == 0
    assert conversation(top_logprobs=3).session.sampling.logprobs is None


def test_what_a_run_changes_stays_out_of_the_prompt() -> None:
    item = {"role": "user", "content": "hi"}
    first, second = (
        session(
            item | {"id": f"msg_{run}"},
            prompt_cache_key=run,
            client_metadata={"run": run},
            metadata={"run": run},
            user=run,
            safety_identifier=run,
        )
        for run in ("one", "two")
    )
    assert (first.system_message, first.messages) == (second.system_message, second.messages)
    assert first.messages[0].role is Role.USER


@given(st.dictionaries(st.text(max_size=4), st.text(max_size=8), max_size=3))
def test_arguments_come_back_as_they_went(arguments: dict[str, str]) -> None:
    text = ToolCall("c", "f", arguments).arguments_json
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": text}
    assert session(item).messages[0].tool_calls[0].arguments == json.loads(text)
