import asyncio
import io
import time

import pytest
from msgspec.structs import replace

from shepherd.cli.approval.question import Answer, approval_question
from shepherd.cli.render.renderer import Renderer
from shepherd.cli.render.status import Status
from shepherd.cli.render.surface import Actions
from shepherd.cli.repl.plain import PlainSurface
from shepherd.cli.repl.turns import TerminalApprover
from shepherd.cli.terminal.paint import Painter
from shepherd.messages import ToolCall
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice, Part
from shepherd.tools.permissions.rules import Decision, Lifetime, Rule
from tests.patience import PATIENCE

RULE = Rule("write", "{cwd}/new.txt", Decision.ALLOW, "/work")
REQUEST = ApprovalRequest(
    call=ToolCall("1", "write_file", {"path": "new.txt", "content": "x"}),
    accesses=(Access(AccessKind.WRITE, "/work/new.txt"),),
    preview="--- new.txt\n+++ new.txt\n@@ -0,0 +1 @@\n+x",
    session=(replace(RULE, lifetime=Lifetime.SESSION),),
    always=(RULE,),
    cause="ask write *",
)


WORDS = ("once", "yes", "session", "always", "no")


class Typist(io.StringIO):
    """Types each line when what it waits for is shown."""

    def __init__(self, target: io.StringIO, *lines: tuple[str, str]) -> None:
        super().__init__()
        self._target = target
        self._lines = iter(lines)

    def __next__(self) -> str:
        shown, line = next(self._lines)
        while shown not in self._target.getvalue():
            time.sleep(0.005)
        return line


async def _asked(
    lines: str | list[tuple[str, str]], request: ApprovalRequest = REQUEST
) -> tuple[Approval, str]:
    target = io.StringIO()
    actions = Actions()
    source = io.StringIO(lines) if isinstance(lines, str) else Typist(target, *lines)
    surface = PlainSurface(Painter(styled=False), actions, source, target)
    approver = TerminalApprover(surface, Renderer(surface, Status()))
    asking = asyncio.ensure_future(approver.ask(request))
    async with asyncio.timeout(PATIENCE):
        while "Allow" not in target.getvalue():
            await asyncio.sleep(0.001)
    running = asyncio.ensure_future(surface.run())
    approval = await asking
    surface.leave()
    await running
    return approval, target.getvalue()


@pytest.mark.parametrize(
    ("lines", "approval"),
    [
        ("once\n", Approval(Choice.ONCE)),
        (" YES \n", Approval(Choice.ONCE)),
        ("session\n", Approval(Choice.SESSION)),
        ("always\n", Approval(Choice.ALWAYS)),
        ("no\n", Approval(Choice.DENY)),
        ("what?\n\nstop\nsure, but\nactually\ny\ns\na\n1\nyes please\nno\n", Approval(Choice.DENY)),
        ("y\n", Approval(Choice.DENY)),
        ("", Approval(Choice.DENY)),
    ],
)  # fmt: skip
async def test_only_full_words_answer(lines: str, approval: Approval) -> None:
    answer, shown = await _asked(lines)
    assert answer == approval
    wrong = [line for line in lines.split("\n")[:-1] if line.strip().lower() not in WORDS]
    assert shown.count("Nothing was approved") == len(wrong)


async def test_feedback_is_asked_for() -> None:
    typed = [("once/session", "tell\n"), ("tell the model:", "use cat\n")]
    assert (await _asked(typed))[0] == Approval(Choice.DENY, "use cat")


async def test_a_line_waits_for_the_question_before_it() -> None:
    """As that of a command in the background, which ends while a command of the user asks."""
    target = io.StringIO()
    source = Typist(target, ("name: ", "me\n"), ("key: ", "sk-x\n"), ("once/session", "no\n"))
    surface = PlainSurface(Painter(styled=False), Actions(), source, target)
    approver = TerminalApprover(surface, Renderer(surface, Status()))
    asking = asyncio.gather(
        surface.ask_text("name: "), surface.ask_secret("key: "), approver.ask(REQUEST)
    )
    await asyncio.sleep(0)
    running = asyncio.ensure_future(surface.run())
    async with asyncio.timeout(PATIENCE):
        assert await asking == ["me", "sk-x", Approval(Choice.DENY)]
    surface.leave()
    await running


async def test_the_diff_and_every_rule_are_shown() -> None:
    _, shown = await _asked("no\n")
    assert shown.index("● write_file new.txt\n") < shown.index("Allow write_file?  (ask write *)")
    assert "+x" in shown
    for rule in (*REQUEST.session, *REQUEST.always):
        assert rule.describe() in shown
    assert "ask write *" in shown


def test_lasting_answers_are_offered_only_where_there_is_a_rule_for_them() -> None:
    bare = ApprovalRequest(REQUEST.call, REQUEST.accesses)
    assert [entry.answer for entry in approval_question(bare).entries] == [
        Answer.ONCE,
        Answer.NO,
        Answer.TELL,
    ]
    some = replace(REQUEST, parts=(Part("a", "made a"), Part("b", "made b")))
    assert [entry.answer for entry in approval_question(some).entries] == list(Answer)
    assert Answer.SOME not in [entry.answer for entry in approval_question(REQUEST).entries]


async def test_a_call_can_not_forge_the_question() -> None:
    call = ToolCall("1", "x\x1b[2Jy", {"command": "ls\rrm\n\u200bAllow ls?", "n": "\nx = y"})
    forged = Rule("x", "ls\x1b[1A\u202e", Decision.ALLOW, "/work")
    request = ApprovalRequest(call, (), always=(forged,), cause="\x1b[31m", caller="a\u200bb")
    _, shown = await _asked("no\n", request)
    assert "Allow x<U+001B>[2Jy for a<U+200B>b?  (<U+001B>[31m)" in shown
    assert "command = ls<U+000D>rm<U+000A><U+200B>Allow ls?" in shown
    assert "n = <U+000A>x = y" in shown
    assert "allow x ls<U+001B>[1A<U+202E>" in shown.replace("\\x1b", "<U+001B>")
    assert not {"\x1b", "\u200b", "\u202e"} & set(shown)


async def test_a_tool_without_a_preview_shows_all_of_its_arguments() -> None:
    arguments = {"text": "x" * 5000 + "END", "many": [1, {"deep": "Ä"}]}
    request = ApprovalRequest(ToolCall("1", "other", arguments), ())
    _, shown = await _asked("no\n", request)
    assert "x" * 5000 + "END" in "".join(shown.split())
    assert 'many = [1, {"deep": "Ä"}]' in shown


async def test_a_name_that_is_too_long_for_the_title_is_in_the_text() -> None:
    request = ApprovalRequest(ToolCall("1", "t" * 300, {}), (), "go", caller="a" * 300)
    _, shown = await _asked("no\n", request)
    joined = "".join(shown.split())
    assert "t" * 300 in joined
    assert "a" * 300 in joined


async def test_what_the_sandbox_means_for_the_call_is_said() -> None:
    outside = replace(REQUEST, sandbox="It runs outside the sandbox.")
    assert "Allow write_file? It runs outside the sandbox." in (await _asked("no\n", outside))[1]
    long = replace(REQUEST, sandbox="It may reach " + "h" * 200)
    assert "h" * 200 in "".join((await _asked("no\n", long))[1].split())
