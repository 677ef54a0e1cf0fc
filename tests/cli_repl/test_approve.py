import asyncio
import io
from pathlib import Path

import pytest

from shepherd.cli.repl.approve import TerminalApprover, offered_keys, question
from shepherd.cli.repl.paint import Painter, Piece
from shepherd.cli.repl.plain import PlainSurface
from shepherd.cli.repl.render import Renderer
from shepherd.cli.repl.status import Status
from shepherd.cli.repl.surface import Actions
from shepherd.messages import ToolCall
from shepherd.tools.base import Access, AccessKind
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.permissions.rules import Decision, Lifetime, Rule

RULE = Rule("write", "{cwd}/new.txt", Decision.ALLOW, "/work")
REQUEST = ApprovalRequest(
    call=ToolCall("1", "write_file", {"path": "new.txt", "content": "x"}),
    accesses=(Access(AccessKind.WRITE, "/work/new.txt"),),
    preview="--- new.txt\n+++ new.txt\n@@ -0,0 +1 @@\n+x",
    session=(RULE.lasting(Lifetime.SESSION),),
    always=(RULE,),
    cause="ask write *",
)


async def _asked(lines: str, request: ApprovalRequest = REQUEST) -> tuple[Approval, str]:
    target = io.StringIO()
    actions = Actions(lambda _: None, lambda: None, lambda: None, lambda: False)
    surface = PlainSurface(Painter(styled=False), actions, io.StringIO(lines), target)
    approver = TerminalApprover(surface, Renderer(surface, Status(), "ansi_dark"))
    asking = asyncio.ensure_future(approver.ask(request))
    await asyncio.sleep(0)
    running = asyncio.ensure_future(surface.run())
    approval = await asking
    surface.leave()
    await running
    return approval, target.getvalue()


@pytest.mark.parametrize(
    ("lines", "approval"),
    [
        ("y\n", Approval(Choice.ONCE)),
        ("s\n", Approval(Choice.SESSION)),
        ("a\n", Approval(Choice.ALWAYS)),
        ("n\n", Approval(Choice.DENY)),
        ("what?\n\nY\n", Approval(Choice.ONCE)),
        ("", Approval(Choice.DENY)),
    ],
)
async def test_answers(lines: str, approval: Approval) -> None:
    assert (await _asked(lines))[0] == approval


async def test_the_diff_and_every_rule_are_shown() -> None:
    _, shown = await _asked("n\n")
    assert "+x" in shown
    for rule in (*REQUEST.session, *REQUEST.always):
        assert rule.describe() in shown
    assert "ask write *" in shown


def test_lasting_answers_are_offered_only_where_there_is_a_rule_for_them() -> None:
    bare = ApprovalRequest(REQUEST.call, REQUEST.accesses)
    assert offered_keys(bare) == ["y", "f", "n"]
    assert offered_keys(REQUEST) == ["y", "s", "a", "f", "n"]


def test_a_call_can_not_forge_the_question(tmp_path: Path) -> None:
    call = ToolCall("1", "x\x1b[2Jy", {"command": "ls\rrm"})
    forged = Rule("x", "ls\x1b[1A", Decision.ALLOW, "/work")
    request = ApprovalRequest(call, (), always=(forged,), cause="\x1b[31m")
    shown = Painter(styled=False).paint(Piece(question(request)), 80)
    assert "\x1b" not in shown
