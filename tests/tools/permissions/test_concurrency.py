"""Rules, modes and answers that change while a call is decided on or waits for its answer."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode, SandboxMode
from shepherd.messages import ToolCall
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.permissions import match
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, Lifetime, Rule, parse_rule
from shepherd.tools.registry import default_registry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.tools.shielding import NO_RIGHTS, Shielding
from shepherd.tools.tool import ToolContext

SHELL = Access(AccessKind.SHELL, "make test")


class ActingApprover:
    """Says `choice` to every question, after `meanwhile` has happened."""

    def __init__(self, choice: Choice, meanwhile: Callable[[ApprovalRequest], None]) -> None:
        self.requests: list[ApprovalRequest] = []
        self._choice = choice
        self._meanwhile = meanwhile

    async def ask(self, request: ApprovalRequest) -> Approval:
        self.requests.append(request)
        self._meanwhile(request)
        return Approval(self._choice)


def runner(root: Path, approver: ActingApprover, rules: tuple[str, ...] = ()) -> ToolRunner:
    policy = PermissionPolicy(root, user=[parse_rule(rule) for rule in rules])
    context = ToolContext(root, root.parent / "spill")
    return ToolRunner(default_registry(), policy, approver, context)


def nothing(_request: ApprovalRequest) -> None:
    pass


def test_a_rule_that_is_added_while_another_thread_looks_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = PermissionPolicy(tmp_path, user=[parse_rule("allow shell make *")])
    applies_to = match.applies_to
    late = [Rule("shell", "make *", Decision.DENY, lifetime=Lifetime.SESSION)]

    def meanwhile(rule: Rule, tool: str, kind: AccessKind, cwd: Path) -> bool:
        if late:
            policy.add(late.pop())  # as the terminal does in its own thread
        return applies_to(rule, tool, kind, cwd)

    monkeypatch.setattr(match, "applies_to", meanwhile)
    policy.decide("execute_command", [SHELL])
    assert not late
    assert policy.decide("execute_command", [SHELL]).decision is Decision.DENY


class InterruptedPolicy(PermissionPolicy):
    """Once it is `interrupted`, its rules are known, but not the files that they are about."""

    interrupted = False

    def rules(self) -> list[Rule]:
        if self.interrupted and self.mode is ApproveMode.EDITS:
            raise InterruptedError
        return super().rules()


def test_a_profile_is_never_that_of_older_rules(tmp_path: Path) -> None:
    (tmp_path / "customers.csv").touch()
    policy = InterruptedPolicy(tmp_path)
    shielding = Shielding(policy, Sandbox(SandboxMode.OFF), tmp_path / "spill")
    shielding.profile(tmp_path, NO_RIGHTS)
    policy.add(parse_rule("deny read /**/customers.csv"))
    policy.interrupted = True
    with pytest.raises(InterruptedError):
        shielding.profile(tmp_path, NO_RIGHTS)  # as seen from a thread that comes between
    policy.interrupted = False
    profile, _ = shielding.profile(tmp_path, NO_RIGHTS)
    assert tmp_path / "customers.csv" in profile.hidden


async def test_an_answer_counts_for_its_call_only(tmp_path: Path) -> None:
    approver = ActingApprover(Choice.ONCE, nothing)
    tools = runner(tmp_path, approver)
    for command in ("touch a", "touch a", "touch b"):
        await tools.run(ToolCall("call_1", "execute_command", {"command": command}))
    assert [r.call.arguments["command"] for r in approver.requests] == [
        "touch a",
        "touch a",
        "touch b",
    ]


@pytest.mark.parametrize("command", ["touch asked", ["touch", "asked"]])
async def test_arguments_that_are_edited_after_the_question_change_nothing(
    tmp_path: Path, command: str | list[str]
) -> None:
    def edit(request: ApprovalRequest) -> None:
        given = request.call.arguments
        if isinstance(given["command"], list):
            given["command"][1] = "pwned"
        given["command"] = "touch pwned"

    tools = runner(tmp_path, ActingApprover(Choice.ONCE, edit))
    await tools.run(ToolCall("call_1", "execute_command", {"command": command}))
    assert (tmp_path / "asked").exists()
    assert not (tmp_path / "pwned").exists()


async def test_a_rule_that_denies_counts_though_it_came_while_the_user_thought(
    tmp_path: Path,
) -> None:
    def deny(_request: ApprovalRequest) -> None:
        tools.policy.add(parse_rule("deny shell touch *"))

    tools = runner(tmp_path, ActingApprover(Choice.ONCE, deny))
    result = await tools.run(ToolCall("call_1", "execute_command", {"command": "touch pwned"}))
    assert result.content.startswith("Error: denied by rule")
    assert not (tmp_path / "pwned").exists()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


async def test_a_repository_that_changes_again_while_the_user_thinks_is_not_accepted(
    repository: Path,
) -> None:
    hook = repository / ".git/hooks/pre-commit"

    def change(_request: ApprovalRequest) -> None:
        hook.write_text("#!/bin/sh\ntouch pwned\n")

    approver = ActingApprover(Choice.ONCE, change)
    tools = runner(repository, approver, ("allow shell git status *",))
    hook.write_text("#!/bin/sh\n")
    call = ToolCall("call_1", "execute_command", {"command": "git status"})
    result = await tools.run(call)
    assert "has changed since it was approved" in result.content
    await tools.run(call)
    assert len(approver.requests) == 2
