"""Requests as sessions."""

from base64 import b64encode
from typing import Any

import pytest

from shepherd.backends.base import ModelInfo
from shepherd.messages import Message, Role, ToolCall
from shepherd.sampling import Sampling
from shepherd.server.anthropic.answers import Thoughts
from shepherd.server.anthropic.requests import MessagesRequest
from shepherd.server.anthropic.to_session import session_of
from shepherd.server.errors import ApiError
from shepherd.server.seal import Seal
from shepherd.session import OutputFormat, Session, ToolChoice
from tests.pictures import png
from tests.server.anthropic.support import HI, READ

THOUGHTS = Thoughts(Seal())
PNG = png()
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": b64encode(PNG).decode()},
}
CALL = {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "a"}}
WEB = {"type": "web_search_20250305", "name": "web"}
BILLING = "x-anthropic-billing-header: cc_version=2.1.197.f39; cc_entrypoint=sdk-cli;"


def session(*messages: Any, vision: bool | None = None, **options: Any) -> Session:
    body = {"max_tokens": 100, "messages": messages or HI} | options
    request = MessagesRequest.model_validate(body)
    return session_of(request, THOUGHTS, ModelInfo("m", "b", 100, vision=vision), thinking=False)


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks]}


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **more}


def result(content: Any = "done", id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def test_system_prompts() -> None:
    assert session(system="Be brief.").system_message == "Be brief."
    blocks = [text("One.", cache_control={"type": "ephemeral"}), text(""), text("Two.")]
    assert session(system=blocks).system_message == "One.\n\nTwo."
    assert session(system=None).system_message == session().system_message == ""


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ([text(BILLING), text("Be kind.")], "Be kind."),
        ([text(f"{BILLING}\nBe kind.")], "Be kind."),
        (f"{BILLING}\nBe kind.", "Be kind."),
        ([text("Be kind."), text(f"About {BILLING}")], f"Be kind.\n\nAbout {BILLING}"),
        ([text(BILLING)], ""),
    ],
)
def test_the_billing_line_is_no_part_of_the_prompt(system: Any, expected: str) -> None:
    assert session(system=system).system_message == expected


def test_system_messages_stay_where_they_are() -> None:
    late = {"role": "system", "content": "Late."}
    empty: Any = {"role": "system", "content": []}
    first = {"role": "system", "content": [text("First.")]}
    found = session(first, *HI, late, empty, assistant(text("ok")), *HI, system="Top.")
    assert found.system_message == "Top.\n\nFirst."
    assert [(m.role, m.content) for m in found.messages] == [
        (Role.USER, "hi"),
        (Role.SYSTEM, "Late."),
        (Role.ASSISTANT, "ok"),
        (Role.USER, "hi"),
    ]


def test_a_conversation_with_calls() -> None:
    found = session(
        user(text("a"), text("b")),
        assistant(text("I "), text("look."), CALL, CALL | {"id": "c2", "input": "{}"}),
        user(text("And?"), result([text("x"), text("y")]), result("bad", "c2", is_error=True)),
    )
    calls = (ToolCall("c1", "read_file", {"path": "a"}), ToolCall("c2", "read_file", {}))
    assert found.messages == [
        Message.user("a\nb"),
        Message.assistant("I look.", "", calls),
        Message.tool(calls[0], "x\ny"),
        Message.tool(calls[1], "Error: bad"),
        Message.user("And?"),
    ]


def test_images_and_documents() -> None:
    plain = {"type": "document", "title": "T", "source": {"type": "text", "data": "words"}}
    nested = {"type": "document", "source": {"type": "content", "content": [text("in"), IMAGE]}}
    data_url = {"type": "url", "url": f"data:image/png;base64,{IMAGE['source']['data']}"}  # type: ignore[index]
    found = session(
        user(IMAGE, plain, text("What?"), nested),
        assistant(CALL),
        user(result([text("seen"), {"type": "image", "source": data_url}])),
    )
    first, _, last = found.messages
    assert first.content == "T\nwords\nWhat?\nin"
    assert [image.data for image in (*first.images, *last.images)] == [PNG] * 3
    assert (last.role, last.content) == (Role.TOOL, "seen")


def test_other_content_that_is_text() -> None:
    search = {"type": "search_result", "title": "T", "source": "s", "content": [text("found")]}
    reference = {"type": "tool_reference", "tool_name": "grep"}
    found = session(
        assistant({"type": "compaction", "content": "Before."}, CALL),
        user(result([search, reference])),
        user(search),
    )
    assert [m.content for m in found.messages] == [
        "Before.",
        "T\ns\nfound\nThe tool grep is available.",
        "T\ns\nfound",
    ]


def test_blocks_of_tools_that_only_anthropic_runs_are_left_out() -> None:
    use: Any = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found: Any = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    assert session(*HI, assistant(use, found, text("ok")), *HI).messages[1].content == "ok"


def test_tools() -> None:
    server = [{"type": "web_search_20260318", "name": "web_search"}, {"type": "mcp_toolset"}]
    bash = {"type": "bash_20250124", "name": "bash"}
    edit = {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}
    custom = {"type": "custom", "name": "f", "description": None}
    tools = session(tools=[READ, *server, bash, edit, custom]).tools
    assert [tool.name for tool in tools] == ["read_file", "bash", edit["name"], "f"]
    assert tools[0].parameters == READ["input_schema"]
    assert all(tool.parameters["type"] == "object" for tool in tools)
    assert "view" in tools[2].parameters["properties"]["command"]["enum"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, None),
        ({"type": "auto"}, None),
        ({"type": "auto", "disable_parallel_tool_use": True}, None),
        ({"type": "any"}, ToolChoice()),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice(single=True)),
        ({"type": "tool", "name": "read_file"}, ToolChoice("read_file")),
    ],
)
def test_tool_choices(choice: Any, expected: ToolChoice | None) -> None:
    found = session(tools=[READ], tool_choice=choice)
    assert (found.tool_choice, len(found.tools)) == (expected, 1)


def test_without_a_choice_the_tools_are_not_offered() -> None:
    found = session(tools=[READ], tool_choice={"type": "none"})
    assert (found.tools, found.tool_choice) == ([], None)


def test_sampling_formats_and_prefilled_answers() -> None:
    found = session(temperature=1, top_p=0.5, top_k=3, stop_sequences=["a", ""]).sampling
    assert found == Sampling(temperature=1.0, top_p=0.5, top_k=3, stop=("a",))
    assert session(stop_sequences=[]).sampling == session().sampling == Sampling()
    wanted: Any = {"type": "json_schema", "schema": {"type": "object"}}
    expected = OutputFormat({"type": "object"})
    assert session(output_config={"effort": "low", "format": wanted}).output_format == expected
    assert session(output_format=wanted).output_format == expected
    assert session(output_config={"effort": "max"}).output_format is None
    assert session(*HI, assistant(text("It is"))).continues
    assert not session(*HI, assistant(text("It is")), *HI).continues


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        (None, False),
        ({"type": "disabled"}, False),
        ({"type": "between_tools"}, False),
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "adaptive", "display": "omitted"}, True),
    ],
)
def test_thinking(thinking: Any, expected: bool) -> None:  # noqa: FBT001
    assert session(thinking=thinking).thinking is expected


@pytest.mark.parametrize(
    ("messages", "options", "param"),
    [
        ([], {"tool_choice": {"type": "any"}}, "tool_choice"),
        ([], {"tools": [READ], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice.name"),
        ([], {"tools": [WEB], "tool_choice": {"type": "tool", "name": "web"}}, "tool_choice.name"),
        ([], {"tools": [WEB], "tool_choice": {"type": "any"}}, "tool_choice"),
        ([], {"tools": [{"description": "nameless"}]}, "tools.0.name"),
        ([], {"container": "c"}, "container"),
        ([], {"thread": {"type": "create"}}, "thread"),
        ([], {"compaction": {"type": "enabled"}}, "compaction"),
        ([*HI, assistant(CALL)], {}, "messages.1"),
        ([assistant(IMAGE), *HI], {}, "messages.0.content.0"),
        ([assistant(text("a"), result()), *HI], {}, "messages.0.content.1"),
        ([user(text("a"), CALL)], {}, "messages.0.content.1"),
        ([{"role": "system", "content": [IMAGE]}, *HI], {}, "messages.0.content.0"),
        ([user(IMAGE)], {"vision": False}, "messages.0.content.0"),
        ([user(result([IMAGE]))], {"vision": False}, "messages.0.content.0"),
        ([user(*[IMAGE] * 21)], {}, "messages.0.content"),
    ],
)
def test_what_is_not_possible_is_named(messages: Any, options: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        session(*messages, **options)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert caught.value.message


def test_effort_and_budget() -> None:
    limited = session(thinking={"type": "enabled", "budget_tokens": 2048})
    assert (limited.thinking, limited.thinking_budget, limited.thinking_effort) == (True, 2048, "")
    told = session(thinking={"type": "adaptive"}, output_config={"effort": "max"})
    assert (told.thinking, told.thinking_budget, told.thinking_effort) == (True, None, "xhigh")
