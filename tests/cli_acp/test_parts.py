"""The parts of a turn in an editor."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError
from acp.schema import TextContentBlock
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from shepherd.cli.acp.opening import SharedModels, can_see
from shepherd.cli.acp.serve import LineWriter
from shepherd.cli.acp.session import file_path, read_blocks
from shepherd.cli.acp.updates import SessionUpdates, call_locations, call_title, one_line_span
from shepherd.config.load import load_config
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.errors import ShepherdError
from shepherd.events import (
    Event,
    Notice,
    PlanStep,
    PlanUpdate,
    PrefillProgress,
    StepStatus,
    Topic,
)
from shepherd.messages import ToolCall
from shepherd.tools.text import fenced
from tests.patience import PATIENCE

TEXT = st.text(st.sampled_from("`~ \n#*[]()<x>é"), max_size=30)


def shown(*events: Event) -> list[Any]:
    """The updates for these events, as they are sent."""
    posted: list[Any] = []
    updates = SessionUpdates("s", Path("/"), posted.append)
    for event in events:
        assert updates.receive(event)
    return [message["params"]["update"] for message in posted]


def test_every_topic_is_shown_in_its_place() -> None:
    steps = (PlanStep("one", StepStatus.COMPLETED), PlanStep("two"))
    plan, mode, steered, _, output, task, *rest = shown(
        PlanUpdate(steps, id="c"),
        Notice("plan", Topic.MODE),
        Notice("use tea", Topic.STEERING),
        ToolCall("c", "execute_command", {}),
        Notice("line 2", Topic.OUTPUT, "c"),
        Notice("scout: reads", Topic.TASK, "c"),
        PrefillProgress(1, 2, 3),
        Notice("evicted", Topic.EVICTION),
        Notice("progress of another", Topic.PROGRESS, "x"),
    )
    assert [(e["content"], e["status"]) for e in plan["entries"]] == [
        ("one", "completed"),
        ("two", "pending"),
    ]
    assert (mode["sessionUpdate"], mode["currentModeId"]) == ("current_mode_update", "plan")
    assert steered["sessionUpdate"] == "user_message_chunk"
    assert output["content"][0]["content"]["text"] == "```\nline 2\n```"
    assert task["content"][0]["content"]["text"] == "```\nline 2\nscout: reads\n```"
    assert [r["sessionUpdate"] for r in rest] == ["agent_thought_chunk"] * 2


def test_a_place_is_told_once_and_not_as_the_answer() -> None:
    waits = [(2, 30.0), (2, 28.0), (1, 9.0), (0, 0.0), (1, 0.0)]
    updates = shown(*(PrefillProgress(0, 9, 0, *wait) for wait in waits))
    assert {update["sessionUpdate"] for update in updates} == {"agent_thought_chunk"}
    assert [update["content"]["text"].strip() for update in updates] == [
        "Waiting, position 2 in the queue, about 30 s.",
        "Waiting, position 1 in the queue, about 9 s.",
        "Waiting, position 1 in the queue.",
    ]


def test_a_call_of_a_sub_agent_does_not_touch_that_of_its_model() -> None:
    posted: list[Any] = []
    updates = SessionUpdates("s", Path("/"), posted.append)
    outer, inner = ToolCall("call_1", "task", {}), ToolCall("call_1", "edit_file", {})
    updates.call_started(outer)
    assert updates.shows(outer)
    assert not updates.shows(inner)
    updates.call_ended("call_1", "the report")
    assert not updates.shows(outer)
    assert "the report" in posted[-1]["params"]["update"]["content"][0]["content"]["text"]


@given(TEXT)
def test_no_text_leaves_its_fence(text: str) -> None:
    tokens = MarkdownIt().parse(fenced(text))
    assert [(t.type, t.content) for t in tokens] == [("fence", f"{text}\n")]


@given(TEXT.filter(str.strip))
def test_no_text_leaves_its_code_span(text: str) -> None:
    children = MarkdownIt().parse(one_line_span(text))[1].children or []
    line = " ".join(text.split())
    assert [(c.type, c.content.strip()) for c in children] == [("code_inline", line)]


def test_a_title_shows_what_the_model_wrote_as_code() -> None:
    call = ToolCall("1", "[x](http://evil)", {"path": "**a**"})
    assert call_title(call) == "`[x](http://evil)` `**a**`"


def test_a_location_has_the_line(tmp_path: Path) -> None:
    call = ToolCall("1", "read_file", {"path": "a/../b", "offset": 3})
    [location] = call_locations(call, tmp_path)
    assert (location.path, location.line) == (str(tmp_path / "b"), 3)
    assert call_locations(ToolCall("1", "read_file", {"path": "\0"}), tmp_path) == []
    assert call_locations(ToolCall("1", "read_file", {}), tmp_path) == []


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a%20b/c", "/a b/c"),
        ("file://localhost/a", "/a"),
        ("file://host/a", None),
        ("https://example.org/a", None),
        ("zed:///agent/thread", None),
        ("file://[", None),
        ("", None),
    ],
)
def test_only_files_of_this_machine_have_a_path(uri: str, path: str | None) -> None:
    assert file_path(uri) == (None if path is None else Path(path))


def test_an_empty_prompt_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="empty"):
        read_blocks([TextContentBlock(type="text", text=" \n")], tmp_path)


async def test_sessions_with_the_same_model_share_it(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("text: a")
    env = {"HOME": str(tmp_path)}
    models = SharedModels(ProviderBook.from_env(env))

    def config(model: str) -> Config:
        return load_config(tmp_path, env, {"model.name": model})

    one, same = config(f"script:{script}"), config(f"script:{script}")
    backend = await models.backend(one)
    assert await models.backend(same) is backend
    missing = config(str(tmp_path / "missing.gguf"))
    with pytest.raises(ShepherdError, match="missing"):
        await models.backend(missing)
    assert not await can_see(models, missing, PATIENCE)
    await models.aclose()


def test_an_editor_that_does_not_read_stops_nothing() -> None:
    reading, writing = os.pipe()
    closed = threading.Event()
    writer = LineWriter(writing, closed.set)
    for _ in range(100):
        writer.write(b"x" * 10_000)
    os.close(reading)
    assert closed.wait(PATIENCE)
    writer.finish()
    os.close(writing)
