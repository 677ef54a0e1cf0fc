"""Custom tools, whose input is text."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.messages import Message, ToolCall
from shepherd.models import BUILTIN_NAME, builtin_model
from shepherd.sampling import Sampling
from tests.server.harness import RunningServer, ask, scripted, stream
from tests.server.openai.test_to_session import HI, session

PATCH: dict[str, Any] = {"type": "custom", "custom": {"name": "patch", "description": "Patch."}}
INPUT = 'line 1\n"line 2"'
SCRIPT = 'call: patch {"input": "line 1\\n\\"line 2\\""}'


def grammar(syntax: str, definition: str) -> dict[str, Any]:
    rule = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    return {**PATCH, "custom": {**PATCH["custom"], "format": rule}}


@pytest.fixture(scope="module")
def engine() -> Iterator[RunningServer[LlamaCppBackend]]:
    async def load() -> LlamaCppBackend:
        section = LlamaCppSection(threads=1, context_size=2048)
        greedy = Sampling(temperature=0.0)
        return await LlamaCppBackend.load(builtin_model(), section, greedy, name=BUILTIN_NAME)

    loop = asyncio.new_event_loop()
    with RunningServer(loop.run_until_complete(load()), loop=loop) as running:
        yield running


def test_a_call_of_a_custom_tool_has_its_text() -> None:
    with scripted(SCRIPT) as server, server.client() as client:
        answer = ask(client, tools=[PATCH]).choices[0]
        chunks = stream(client, tools=[PATCH])
    assert answer.finish_reason == "tool_calls"
    call = (answer.message.tool_calls or [])[0].model_dump()
    assert call["type"] == "custom"
    assert call["custom"] == {"name": "patch", "input": INPUT}
    deltas = [
        delta.model_dump()
        for chunk in chunks
        for choice in chunk.choices
        for delta in choice.delta.tool_calls or []
    ]
    assert deltas[0]["type"] == "custom"
    assert deltas[0]["custom"] == {"name": "patch", "input": ""}
    assert "".join(delta["custom"]["input"] for delta in deltas) == INPUT


def test_calls_and_results_come_back() -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "patch", "input": INPUT}}
    found = session(
        HI,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        tools=[PATCH],
    )
    made = ToolCall("c", "patch", {"input": INPUT})
    assert found.messages[1:] == [Message.assistant("", "", (made,)), Message.tool(made, "done")]


def test_a_custom_tool_may_be_chosen() -> None:
    choice = {"type": "custom", "custom": {"name": "patch"}}
    for tool in (PATCH, {"type": "custom", **PATCH["custom"]}):
        found = session(tools=[tool], tool_choice=choice)
        assert found.tool_choice is not None
        assert found.tool_choice.name == "patch"
        assert [spec.name for spec in found.tools] == ["patch"]


@pytest.mark.parametrize(
    ("syntax", "definition"),
    [("regex", "[a-f]{3,5}!"), ("lark", 'start: LETTER ~ 3..5 "!"\nLETTER: "a".."f"')],
)
def test_a_grammar_holds(
    engine: RunningServer[LlamaCppBackend], syntax: str, definition: str
) -> None:
    tool = grammar(syntax, definition)
    with engine.client() as client:
        answer = ask(client, tools=[tool], tool_choice="required").choices[0]
    call = (answer.message.tool_calls or [])[0].model_dump()
    assert re.fullmatch("[a-f]{3,5}!", call["custom"]["input"])


@pytest.mark.parametrize("syntax", ["lark", "regex"])
def test_a_grammar_that_cannot_be_enforced_is_refused(syntax: str) -> None:
    tool = grammar(syntax, "start: /a+/")
    refused = pytest.raises(openai.BadRequestError)
    with scripted(SCRIPT) as server, server.client() as client, refused as caught:
        ask(client, tools=[tool])
    assert caught.value.code == "unsupported_parameter"
    assert str(caught.value.param).startswith("tools.0.custom.format")


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "custom"},
        {"type": "custom", "function": {"name": "a"}},
        {"type": "function", "custom": {"name": "a"}},
        {"type": "custom", "custom": {"name": "a", "format": {"type": "grammar"}}},
        {"type": "custom", "custom": {"name": "a", "format": "text"}},
    ],
)
def test_a_tool_that_lacks_its_parts_is_refused(tool: Any) -> None:
    refused = pytest.raises(openai.BadRequestError, match=r"tools\.0")
    with scripted(SCRIPT) as server, server.client() as client, refused:
        ask(client, tools=[tool])
