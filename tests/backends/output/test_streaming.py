"""What is shown when: nothing is held back longer than it can still be a marker."""

import pytest

from shepherd.backends.output.filter import OutputFilter
from shepherd.backends.output.style import GENERIC
from shepherd.events import CodeBlock, Text
from shepherd.messages import ToolSpec
from tests.backends.output.support import TOOLS, schema


def shown_at_once(text: str, before: str = "") -> str:
    output = OutputFilter(GENERIC, TOOLS)
    output.feed(before)
    return "".join(e.text for e in output.feed(text))


@pytest.mark.parametrize(
    "text",
    [
        "</div>",
        "<b>",
        "< 3",
        "{ x",
        "{}",
        '{"key"',
        '{"name": "John"',
        '{"name": "read_file", "version"',
        '{"type": "object"',
        "[1",
        "[link](x)",
        "<readme",
        "<read_file is a",
        "<function=send_mail>",
        "<function=read_file> is",
        "<tool_call> is",
        "<tool_call>send_mail",
        "<tool_call>read_file is a",
        "[TOOL_CALLS]send_mail",
        "[TOOL_CALLS] begins",
        "<|python_tag|>print",
        "<｜tool▁sep｜>",
        "`x`",
        "```x``` y",
        "~ x",
        "**bold**",
    ],
)
def test_prose_is_shown_at_once(text: str) -> None:
    assert shown_at_once(text) == text
    assert shown_at_once(text, "Well:\n\n") == "\n\n" + text


@pytest.mark.parametrize(
    "text",
    ["<", "</", "<tool_", "<tool_call>", "<tool_call>\n{", '{"name', '{"name": "read_file"', "``",
     "```json", "[TOOL", "<read_file ", "<thi", "[read_f", "\n"],
)  # fmt: skip
def test_what_may_be_a_marker_is_held_back_and_then_shown(text: str) -> None:
    output = OutputFilter(GENERIC, TOOLS)
    held = output.feed(text)
    rest = output.finish(truncated=True)
    assert "".join(e.text for e in held + rest) == text
    assert sum(len(e.text) for e in held) < len(text)


def test_a_marker_is_not_waited_for_in_the_middle_of_a_line() -> None:
    assert shown_at_once(' {"name": "read_file"', "As in") == ' {"name": "read_file"'
    assert shown_at_once("``", "so ") == "``"
    assert shown_at_once("<read_file ", "so ") == "<read_file "


def test_code_is_shown_line_by_line() -> None:
    assert shown_at_once("x = 1\ny", "```python\n") == "x = 1\ny"


def test_events_of_one_feed_are_merged() -> None:
    output = OutputFilter(GENERIC, TOOLS)
    assert output.feed("a <b> {c} </d> e") == [Text("a <b> {c} </d> e")]
    assert output.feed("\n```py\nx\ny") == [
        Text("\n"),
        CodeBlock("```py\nx\ny", "py"),
    ]


def test_call_ids_are_fresh_and_stay() -> None:
    output = OutputFilter(GENERIC, TOOLS)
    output.feed("<get_time/>\n")
    first = output.result.tool_calls
    output.feed("<get_time/>\n")
    output.finish()
    both = output.result.tool_calls
    assert both[:1] == first
    assert len({c.id for c in both}) == 2
    assert all(c.id.startswith("call_") and len(c.id) >= 13 for c in both)


def test_a_repeated_long_failure_costs_no_more_than_the_text() -> None:
    """Each of these could be a call to the end of the output; none is."""
    output = OutputFilter(GENERIC, TOOLS)
    text = '<tool_call>{"name": "read_file", "arguments": {"path": "' * 3000
    output.feed(text)
    output.finish()
    assert output.result.content == text
    assert output.result.tool_calls == ()


def test_many_tools_are_told_apart() -> None:
    tools = [ToolSpec(f"tool_{n}", "", schema()) for n in range(300)]
    output = OutputFilter(GENERIC, tools)
    output.feed('<tool_1/>\n<function=tool_12></function>\n{"name": "tool_123", "arguments": {}}')
    output.finish()
    assert [c.name for c in output.result.tool_calls] == ["tool_1", "tool_12", "tool_123"]
