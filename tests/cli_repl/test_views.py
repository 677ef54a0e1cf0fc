import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.cli.render.status import Status, Totals, compact, status_text
from shepherd.cli.render.tool_view import (
    MAX_DIFF_LINES,
    argument_summary,
    call_line,
    display_pieces,
    result_pieces,
)
from shepherd.cli.terminal.paint import UNICODE, Painter
from shepherd.conversation.export import as_html, as_json, as_markdown
from shepherd.events import Stats
from shepherd.messages import Message, ToolCall, message_from_json
from shepherd.prices import read_prices
from shepherd.session import Session
from shepherd.tools.text import fenced

PLAIN = Painter(styled=False)


def _result(name: str, content: str) -> str:
    return PLAIN.paint_all(result_pieces(ToolCall("1", name, {}), content, UNICODE), 80)


@pytest.mark.parametrize(
    ("name", "content", "shown"),
    [
        ("read_file", "a\nb\nc", "└ 3 lines"),
        ("read_file", "a", "└ 1 line"),
        ("read_file", "(empty file)", "└ (empty file)"),
        ("list_directory", "a\nb/", "└ 2 entries"),
        ("grep", "a:1: x", "└ 1 match"),
        ("write_file", "Wrote 4 bytes to x", "└ Wrote 4 bytes to x"),
        ("read_file", "Error: no such file: x", "└ Error: no such file: x"),
        ("execute_command", "1\n2\n3\n4\n5", "└ 1\n    2\n    3\n    4\n    5\n"),
        ("execute_command", "1\n2\n3\n4\n5\n6\n7", "└ (2 earlier lines)\n    3\n"),
        ("http_get", "1\n2\n3\n4\n5", "(2 more lines)"),
    ],
)
def test_results_in_short(name: str, content: str, shown: str) -> None:
    assert shown in _result(name, content)


@given(st.text(), st.text())
def test_a_result_never_takes_more_than_a_few_lines(name: str, content: str) -> None:
    assert len(_result(name, content[:200]).splitlines()) <= 14


def test_a_call_names_its_subject_first_and_leaves_long_texts_out() -> None:
    arguments = {"content": "x" * 999, "offset": 3, "path": "notes.txt"}
    assert argument_summary(arguments) == "notes.txt offset=3"
    line = PLAIN.paint(call_line(ToolCall("1", "read_file", arguments), UNICODE), 80)
    assert line == "● read_file notes.txt offset=3\n"


def test_a_long_diff_is_cut_and_says_so() -> None:
    diff = "--- a\n+++ b\n@@ -1 +1 @@\n" + "\n".join(f"+line {n}" for n in range(100))
    lines = PLAIN.paint_all(display_pieces(diff), 80).splitlines()
    assert len(lines) == MAX_DIFF_LINES + 1
    assert "43 more lines" in lines[-1]


def test_a_line_without_end_is_cut_and_says_so() -> None:
    shown = PLAIN.paint_all(display_pieces("x" * 1_000_000 + "\nlast"), 80)
    assert len(shown) < 200_000
    assert shown.endswith("(1 more line)\n")
    assert PLAIN.paint_all(display_pieces("x" * 1_000_000), 80).endswith("(the line goes on)\n")


def test_a_diff_is_coloured() -> None:
    diff = "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n"
    shown = Painter().paint_all(display_pieces(diff), 80)
    assert "\x1b[31m-old" in shown
    assert "\x1b[32m+new" in shown


def test_the_status_tells_model_context_and_speed() -> None:
    status = Status(model="/models/big.gguf", directory="work")
    stats = Stats(completion_tokens=50, decode_seconds=0.5, context_used=1234, context_size=4096)
    status.add_stats(stats)
    text = status_text(status, 100, "·")
    assert text == "big.gguf · 1.2k/4.1k tokens (30%) · 100 tok/s · approve: ask · work"
    assert status.totals.completion_tokens == 50


def test_the_price_of_tokens_is_added_up() -> None:
    status = Status(model="maker/big", prices=read_prices(["big 2 10 0.5", "other 1 1"]))
    stats = Stats(prompt_tokens=1_000_000, cached_tokens=400_000, completion_tokens=100)
    status.add_stats(stats)
    assert status.turn.cost == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.001)
    assert "$1.40" in status_text(status, 200, "·")
    status.model, status.turn = "unknown", Totals()
    status.add_stats(stats)
    assert status.turn.cost is None
    assert status.totals.cost == pytest.approx(1.401)
    status.add_stats(replace(stats, cost=0.5, provider="task"))
    assert (status.turn.cost, "$1.90" in status_text(status, 200, "·")) == (0.5, True)


@given(st.integers(1, 120), st.text(max_size=100))
def test_the_status_always_fits(width: int, model: str) -> None:
    status = Status(model=model, context_used=10, context_size=100, directory="x" * 30)
    assert len(status_text(status, width, "·")) < width


@given(st.integers(0, 10_000_000))
def test_compact_numbers_are_short_and_near(tokens: int) -> None:
    text = compact(tokens)
    assert len(text) <= 6
    unit = {"k": 1000, "M": 1_000_000}.get(text[-1], 1)
    value = float(text.rstrip("kM")) * unit
    assert value == pytest.approx(tokens, rel=0.06, abs=1)


MESSAGES = [
    Message.user("read it"),
    Message.assistant("", "I wonder", (ToolCall("1", "read_file", {"path": "a"}),)),
    Message.tool(ToolCall("1", "read_file", {}), "```\ncode\n```"),
    Message.assistant("done"),
]


def test_a_conversation_is_exported() -> None:
    session = Session("be kind", list(MESSAGES), id="x1")
    data = json.loads(as_json(session))
    assert [message_from_json(m) for m in data["messages"]] == MESSAGES
    assert data["system_message"] == "be kind"
    text = as_markdown(session)
    for part in ("read it", "> I wonder", '{"path": "a"}', "````\n```\ncode", "done"):
        assert part in text


def test_a_page_needs_nothing_and_runs_nothing() -> None:
    hostile = "<script>x</script> **b** ![p](http://evil/p.png) [l](javascript:x) | a"
    call = ToolCall("1", "read_file", {"path": "</details><script>"})
    messages = [
        Message.user("<b>me</b>"),
        Message.assistant(hostile, "", (call,)),
        Message.tool(call, "</pre><script>alert(1)</script>"),
    ]
    page = as_html(Session("s", messages, id="x1"))
    for part in ("<script", "<img", "<b>me", 'src="', 'href="javascript'):
        assert part not in page
    for part in ("&lt;b&gt;me&lt;/b&gt;", "<strong>b</strong>", "default-src 'none'"):
        assert part in page


@given(st.text(alphabet="`\nab"))
def test_a_fence_can_not_be_closed_from_inside(text: str) -> None:
    first, *_, last = fenced(text).split("\n")
    assert first == last
    assert first not in text
