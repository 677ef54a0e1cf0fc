"""The plan tools, and plan mode around all tools."""

import json
from pathlib import Path
from typing import Any

import pytest

from shepherd.agents.task import RunTask
from shepherd.config.section import ApproveMode
from shepherd.events import CallbackEvent, Event, PlanUpdate, Topic
from shepherd.memory.memory import Memory
from shepherd.memory.store import Place
from shepherd.messages import ToolCall
from shepherd.tools.access import Access
from shepherd.tools.access import AccessKind as Kind
from shepherd.tools.function import FunctionTool
from shepherd.tools.memory import memory_tools
from shepherd.tools.permissions.approval import NO_TERMINAL, Approval, ApprovalRequest, Choice
from shepherd.tools.permissions.policy import PLAN_MODE, PermissionPolicy
from shepherd.tools.plan import PresentPlan, UpdatePlan, plan_of
from shepherd.tools.registry import ToolRegistry, builtin_tools
from shepherd.tools.sandbox.sandbox import Finding, Sandbox
from tests.flat_events import flat
from tests.tools.sandbox.boxes import BOXES, need
from tests.tools.workshop import Workshop, open_workshop

PLAN, ASK, EDITS, AUTO = (
    ApproveMode.PLAN,
    ApproveMode.ASK,
    ApproveMode.EDITS,
    ApproveMode.AUTO,
)
DENIED = f"Error: denied by rule: {PLAN_MODE}"
GENEROUS = ["allow read /**", "allow write /**", "allow shell *", "allow network *", "allow tool *"]


def act() -> str:
    """Act."""
    return "acted"


def planning(base: Path, mode: ApproveMode = PLAN, **options: Any) -> Workshop:
    """A workshop with all tools, whose rules allow everything."""
    memory = memory_tools(Memory(base / "memory.db", lambda _: None), Place.of(base))
    own = [*builtin_tools(), *memory, UpdatePlan(), PresentPlan(), FunctionTool(act)]
    options = {"rules": GENEROUS, "allow_private_hosts": True, **options}
    return open_workshop(base, mode=mode, registry=ToolRegistry(own), **options)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write_file", {"path": "a", "content": "x"}),
        ("edit_file", {"path": "kept", "old_string": "kept", "new_string": "x"}),
        ("delete_file", {"path": "kept"}),
        ("http_request", {"method": "POST", "url": "http://127.0.0.1:1/"}),
        ("http_request", {"method": "GET", "url": "http://127.0.0.1:1/"}),
        ("set_fact", {"key": "a", "value": "b"}),
        ("clear_fact", {"key": "a"}),
        ("check_command", {"id": "1", "kill": True}),
        ("execute_command", {"command": "touch a"}),
        ("execute_command", {"command": ["touch", "a"]}),
        ("execute_command", {"command": "cat kept > a"}),
        ("execute_command", {"command": "ls; touch a"}),
        ("execute_command", {"command": "cat $(touch a)"}),
        ("execute_command", {"command": "env cat kept"}),
        ("execute_command", {"command": "PATH=. ls"}),
        ("execute_command", {"command": "git branch x"}),
    ],
)
async def test_changes_are_denied_whatever_the_rules_allow(
    tmp_path: Path, name: str, arguments: dict[str, Any]
) -> None:
    shop = planning(tmp_path, answers=[Choice.ALWAYS] * 3)
    (shop.root / "kept").write_text("kept")
    result = await shop.call(name, **arguments)
    assert result == DENIED
    assert [path.name for path in shop.root.iterdir()] == ["kept"]
    assert shop.request_count == 0


async def test_tools_that_read_follow_the_rules(tmp_path: Path) -> None:
    shop = planning(tmp_path, rules=[])
    (shop.root / "kept").write_text("kept")
    assert "kept" in await shop.call("read_file", path="kept")
    assert "kept" in await shop.call("search_memory", query="x") or shop.request_count == 0
    assert (await shop.call("execute_command", command="cat kept")).startswith("Error: denied by")
    assert [request.call.name for request in shop.approver.requests] == ["execute_command"]


def test_plan_mode_allows_requests_of_tools_that_change_nothing_by_them(tmp_path: Path) -> None:
    shop = planning(tmp_path)
    shop.runner.registry.add(_Asking())
    address = [Access(Kind.NETWORK, "https://example.com/")]
    verdicts = {
        name: shop.runner.policy.decide(name, address).decision.value
        for name in ("http_get", "task", "ask_other", "http_request", "act", "ask_stranger")
    }
    assert verdicts == {
        "http_get": "allow", "task": "allow", "ask_other": "allow",
        "http_request": "deny", "act": "deny", "ask_stranger": "deny",
    }  # fmt: skip


class _Asking(RunTask):
    """A tool that has its name from the settings."""

    def __init__(self) -> None:
        self.name = "ask_other"


async def test_a_tool_that_declares_nothing_asks_for_each_call(tmp_path: Path) -> None:
    shop = planning(tmp_path, answers=[Choice.ONCE])
    assert await shop.call("act") == "acted"
    assert shop.approver.requests[0].always == shop.approver.requests[0].session == ()
    assert await shop.call("act") == "Error: denied by the user"


@pytest.mark.parametrize("line", ["cat kept", "python3 -c 'print(open(\"kept\").read())'"])
async def test_in_a_box_commands_that_only_read_run(tmp_path: Path, line: str) -> None:
    need(BOXES[0])
    shop = planning(tmp_path, rules=[], sandbox=_boxed())
    (shop.root / "kept").write_text("kept")
    assert "kept" in await shop.call("execute_command", command=line)
    assert shop.request_count == 0


@pytest.mark.parametrize(
    "line",
    [
        "for i in a b; do echo x > $i; done",
        'python3 -c \'open("a", "w")\'',
        "cp kept a; mv kept b; rm kept; mkdir c; ln -s kept d; chmod 777 kept; touch kept",
        "git init .; git config user.name x",
    ],
)
@pytest.mark.parametrize("rules", [[], GENEROUS])
async def test_in_a_box_nothing_changes(tmp_path: Path, line: str, rules: list[str]) -> None:
    need(BOXES[0])
    shop = planning(tmp_path, rules=rules, sandbox=_boxed(), answers=[Choice.ONCE] * 3)
    kept = shop.root / "kept"
    kept.write_text("kept")
    before = kept.stat()
    result = await shop.call("execute_command", command=line)
    assert [path.name for path in shop.root.iterdir()] == ["kept"], result
    after = kept.stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert shop.request_count == 0


def _boxed() -> Sandbox:
    return Sandbox(find=lambda: Finding(BOXES[0], ()))


async def test_a_rule_that_asks_still_asks_in_the_box(tmp_path: Path) -> None:
    need(BOXES[0])
    rules = ["ask shell cat *", "deny shell head *"]
    shop = planning(tmp_path, rules=rules, sandbox=_boxed())
    (shop.root / ".env").write_text("KEY=canary")
    assert await shop.call("execute_command", command="cat a") == "Error: denied by the user"
    assert "deny shell head" in await shop.call("execute_command", command="head a")
    assert "canary" not in await shop.call("execute_command", command="strings .e*; tail .e*")


@pytest.mark.parametrize(("choice", "expected"), [(Choice.ONCE, AUTO), (Choice.SESSION, EDITS)])
async def test_an_accepted_plan_ends_plan_mode(
    tmp_path: Path, choice: Choice, expected: ApproveMode
) -> None:
    shop = planning(tmp_path, AUTO, rules=[], answers=[choice])
    policy = shop.runner.policy
    policy.mode = PLAN
    rules = policy.rules()
    topics: list[tuple[str, str]] = []

    def listen(event: Event) -> bool:
        _, content, name, _ = flat(event)
        topics.append((name, content))
        return True

    call = ToolCall("1", "present_plan", {"plan": "1. do"})
    result = await shop.runner.run(call, on_event=listen)
    assert "accepts" in result.content
    assert policy.mode is expected
    assert topics == [(Topic.PLAN, '{"proposal": "1. do"}'), (Topic.MODE, expected.value)]
    (request,) = shop.approver.requests
    assert request.preview == "1. do"
    assert len(request.session) == 1
    policy.mode = PLAN
    assert policy.rules() == rules


@pytest.mark.parametrize(
    "answer",
    [Approval(Choice.DENY, "smaller steps"), Approval(Choice.DENY, reason=NO_TERMINAL)],
)
async def test_a_plan_that_is_not_accepted_changes_nothing(
    tmp_path: Path, answer: Approval
) -> None:
    shop = planning(tmp_path, answers=[answer])
    result = await shop.result("present_plan", plan="1. do")
    assert result.ok
    assert (answer.feedback or answer.reason) in result.content
    assert shop.runner.policy.mode is PLAN
    assert await shop.call("write_file", path="a", content="x") == DENIED


async def test_no_mode_but_plan_asks_about_a_plan(tmp_path: Path) -> None:
    shop = planning(tmp_path, ASK)
    assert "off" in await shop.call("present_plan", plan="1. do")
    assert shop.request_count == 0
    assert shop.runner.policy.mode is ASK


async def test_a_mode_that_changes_while_the_user_answers_counts(tmp_path: Path) -> None:
    shop = planning(tmp_path, ASK, rules=[])

    class Switching:
        async def ask(self, request: ApprovalRequest) -> Approval:
            shop.runner.policy.mode = PLAN
            return Approval(Choice.ONCE)

    shop.runner.approver = Switching()
    for name, arguments in (
        ("write_file", {"path": "a", "content": "x"}),
        ("execute_command", {"command": "touch a"}),
    ):
        shop.runner.policy.mode = ASK
        assert await shop.call(name, **arguments) == DENIED
    assert not list(shop.root.iterdir())


def test_every_other_kind_of_access_is_denied(tmp_path: Path) -> None:
    policy = PermissionPolicy(tmp_path, PLAN, user=[])
    loose = {
        Kind.READ,
        Kind.ENVIRONMENT,
        Kind.REPOSITORY,
        Kind.PLAN,
        Kind.HOOK,
        Kind.TOOL,
        Kind.MCP,
        Kind.NONE,
    }
    for kind in set(Kind) - loose:
        assert policy.decide_one("x", Access(kind, "/x")).decision == "deny", kind


async def test_the_plan_is_checked_and_shown(tmp_path: Path) -> None:
    shop = planning(tmp_path)
    events: list[str] = []

    def listen(event: Event) -> bool:
        kind, content, name, _ = flat(event)
        assert (kind, name) == (CallbackEvent.SYSTEM, Topic.PLAN)
        events.append(content)
        return True

    steps = [
        {"step": " look ", "status": "completed"},
        "change",
        {"step": "test", "status": "pending"},
    ]
    call = ToolCall("1", "update_plan", {"steps": steps})
    result = await shop.runner.run(call, on_event=listen)
    assert "1 of 3" in result.content
    shown = json.loads(events[0])["steps"]
    assert [(s["step"], s["status"]) for s in shown] == [
        ("look", "completed"),
        ("change", "pending"),
        ("test", "pending"),
    ]
    assert [step.step for step in plan_of({"steps": steps}).steps] == ["look", "change", "test"]
    assert plan_of({"steps": 3}) == PlanUpdate()


@pytest.mark.parametrize(
    "steps",
    [
        [],
        ["x"] * 51,
        [""],
        ["x" * 301],
        [{"step": "x", "status": "done"}],
        [{"status": "pending"}],
        "x",
    ],
)
async def test_a_broken_plan_is_refused(tmp_path: Path, steps: object) -> None:
    result = await planning(tmp_path).result("update_plan", steps=steps)
    assert not result.ok
    assert "bad arguments" in result.content
