"""The live lines of sub-agents and commands, and the results of calls that run together."""

import io

from shepherd.cli.render.renderer import Renderer
from shepherd.cli.render.status import Status, status_text
from shepherd.cli.render.surface import Actions
from shepherd.cli.repl.plain import PlainSurface
from shepherd.cli.terminal.paint import Painter
from shepherd.events import Notice, PrefillProgress, Thinking, Topic
from shepherd.events import ToolResult as ToolResultEvent
from shepherd.messages import ToolCall
from shepherd.tools.tool import ToolResult


def stage(*, live: bool = True) -> tuple[Renderer, io.StringIO]:
    """A renderer, and all that it writes permanently."""
    target = io.StringIO()
    actions = Actions()
    surface = PlainSurface(Painter(styled=False), actions, io.StringIO(), target)
    surface.has_live_area = live
    return Renderer(surface, Status()), target


def live_text(renderer: Renderer) -> list[str]:
    return Painter(styled=False).paint_all(renderer.live(), 60).splitlines()


def test_each_sub_agent_has_one_line_until_its_result() -> None:
    renderer, target = stage()
    for call_id, text in (("1", "task 1: starting"), ("2", "task 2: starting"), ("1", "task 1: x")):
        renderer(Notice(text, Topic.TASK, call_id))
    assert live_text(renderer) == ["  · task 1: x", "  · task 2: starting"]
    renderer(ToolResultEvent("1", "task", "report"))
    assert "task 1: x" not in "\n".join(live_text(renderer))
    renderer.end_turn()
    assert live_text(renderer) == []
    assert "starting" not in target.getvalue()


def test_a_result_follows_its_own_call() -> None:
    renderer, target = stage()
    calls = [ToolCall(number, "task", {"prompt": f"part {number}"}) for number in ("1", "2")]
    for call in calls:
        renderer(call)
        renderer.tool_started(call)
    for call in calls:
        renderer.tool_finished(call, ToolResult("x"))
        renderer(ToolResultEvent(call.id, call.name, f"report {call.id}"))
    lines = [line for line in target.getvalue().splitlines() if line]
    assert lines == [
        "● task prompt=part 1", "  └ report 1", "● task prompt=part 2", "  └ report 2",
    ]  # fmt: skip


def test_tasks_without_a_result_are_shown_at_the_end() -> None:
    renderer, target = stage()
    renderer.tool_started(ToolCall("1", "task", {"prompt": "part 1"}))
    assert target.getvalue() == ""
    renderer.interrupted()
    assert target.getvalue().split("\n")[:2] == ["", "● task prompt=part 1"]


def test_the_tail_of_a_command_is_live_short_and_harmless() -> None:
    renderer, target = stage()
    text = "".join(f"line {number}\n" for number in range(9)) + "\x1b[2J\x07" + "x" * 500
    renderer(Notice(text, Topic.OUTPUT, "1"))
    lines = live_text(renderer)
    assert [line.strip("└ ") for line in lines[:4]] == [f"line {n}" for n in range(5, 9)]
    assert lines[4].startswith("    \\x1b[2J\\x07xxx")
    assert len(lines) == 5
    assert max(map(len, lines)) == 60
    assert target.getvalue() == ""


def test_without_a_live_area_tasks_are_lines_and_the_tail_is_left_out() -> None:
    renderer, target = stage(live=False)
    renderer(Notice("task 1: starting", Topic.TASK, "1"))
    renderer(Notice("line", Topic.OUTPUT, "1"))
    assert target.getvalue().strip() == "task 1: starting"


def test_the_status_counts_a_prompt_while_it_is_read() -> None:
    actions = Actions()
    surface = PlainSurface(Painter(styled=False), actions, io.StringIO(), io.StringIO())
    status = Status(model="pup", context_size=8192, directory="work")
    renderer = Renderer(surface, status)
    renderer(PrefillProgress(2557, 5557, 193))
    assert renderer.activity.label == "reading the prompt"
    assert "2.6k/8.2k tokens (31%)" in status_text(status, 100, "·")
    renderer(PrefillProgress(0, 5557, place=2, seconds=30.0))
    assert renderer.activity.label == "waiting, position 2 in the queue, about 30 s"
    assert "2.6k/8.2k tokens (31%)" in status_text(status, 100, "·")


def test_newlines_before_reasoning_show_one_blank_line() -> None:
    renderer, target = stage()
    for text in ("\n", "\n", "First\n\nthen"):
        renderer(Thinking(text))
    renderer.settle()
    assert target.getvalue().splitlines() == ["", "  First", "", "  then"]
