"""What a model is told about a call that was not understood."""

import pytest

from shepherd.backends.output.filter import OutputFilter
from shepherd.backends.output.style import GENERIC
from tests.backends.output.support import TOOLS

BROKEN = '<tool_call>\n{"name": "read_file", "arguments": {"path": "x}}\n</tool_call>\n'


def problems(text: str, *, truncated: bool = False) -> tuple[str, ...]:
    output = OutputFilter(GENERIC, TOOLS)
    output.feed(text)
    output.finish(truncated=truncated)
    return output.result.problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BROKEN, "The call of read_file is not valid JSON (Unterminated string"),
        (
            '{"name": "write_file", "parameters": {"path": "a",}}',
            "The arguments of write_file do not fit: content is missing.",
        ),
        (
            '<tool_call>{"name": "read_file", "arguments": {"path": 1, "limit": "x",}}</tool_call>',
            "The arguments of read_file do not fit: path must be string, limit must be integer.",
        ),
        (
            '<tool_call>{"name": "read_file", "arguments": [1]}</tool_call>',
            "The arguments of read_file must be a JSON object.",
        ),
        ("[TOOL_CALLS]get_time[ARGS]{a b}", "The arguments of get_time are not valid JSON (Expect"),
        (
            '<tool_call>{"name": "no_such", "arguments": {}}</tool_call>',
            "There is no tool no_such; the tools are list_directory, read_file, write_file,",
        ),
        (
            "<tool_call><function=read_file>a<parameter=path>x</parameter></function></tool_call>",
            "The call of read_file is not complete or not well formed.",
        ),
    ],
)
def test_the_reason_names_the_tool_and_the_mistake(text: str, expected: str) -> None:
    assert [p.startswith(expected) for p in problems(text)] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "A call is written as <tool_call>…</tool_call>, with JSON inside.",
        "Write <function=read_file> and then <parameter=path>.",
        '{"name": "John", "arguments": 5}',
        '{"name": "read_file"}',
        '{"name": "read_file", "version": 1, "arguments": {"path": }}',
        '```json\n{"name": "read_file", "arguments": {"path": }}\n```',
        f"```\n{BROKEN}```",
        '`<tool_call>{"name": "read_file", "arguments": {"path": }}</tool_call>`',
        f"<think>\nPerhaps:\n{BROKEN}</think>\n\nNo.",
        "<read_file path=>",
    ],
)
def test_prose_and_code_are_no_broken_calls(text: str) -> None:
    assert problems(text) == ()


def test_nothing_is_said_when_another_call_was_understood() -> None:
    assert problems(BROKEN + "<get_time/>") == ()


def test_nothing_is_said_about_a_call_that_was_cut() -> None:
    assert problems(BROKEN[:40], truncated=True) == ()


def test_nothing_is_said_without_tools() -> None:
    output = OutputFilter(GENERIC)
    output.feed(BROKEN)
    output.finish()
    assert output.result.problems == ()


def test_each_mistake_is_told_once_and_only_some() -> None:
    assert len(problems(BROKEN * 3)) == 1
    unknown = (f'<tool_call>{{"name": "no_{i}", "arguments": {{}}}}</tool_call>' for i in range(9))
    assert len(problems("".join(unknown))) == 3


@pytest.mark.parametrize(
    "call",
    [
        '{"name": "read_file", "arguments": {"path": 5}}',
        '<tool_call>{"name": "read_file", "arguments": {}}</tool_call>',
        "<tool_call>\n<function=read_file>\n<parameter=limit>\n1\n</parameter>\n</function>",
    ],
)
def test_a_call_that_does_not_fit_is_written_again(call: str) -> None:
    output = OutputFilter(GENERIC, TOOLS, rewinds=True)
    output.feed(f"So:\n{call}\n")
    output.finish()
    assert (output.kept, output.separator, output.result.content) == (3, "\n", "So:")
    output.rewind(written=True)
    output.feed('<tool_call>{"name": "read_file", "arguments": {"path": "x"}}</tool_call>')
    output.finish()
    (read,) = output.result.tool_calls
    assert (read.arguments, output.result.content) == ({"path": "x"}, "So:")
    assert output.result.problems == ()


def test_a_call_behind_a_good_one_is_not_written_again() -> None:
    output = OutputFilter(GENERIC, TOOLS, rewinds=True)
    output.feed(f"<get_time/>\n{BROKEN}")
    output.finish()
    assert output.kept is None
    assert len(output.result.tool_calls) == 1
