"""Hooks as real programs around real calls and turns."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.section import ApproveMode
from shepherd.config.sections import Hook, HooksSection
from shepherd.conversation.additions import Additions
from shepherd.events import Event, ignore_events
from shepherd.hooks import MAX_CONTINUED, MAX_OUTPUT, HookCommand, Hooks, description
from shepherd.messages import ToolCall
from shepherd.session import Session
from shepherd.tools.permissions.approval import Choice
from shepherd.turn import run_turn
from tests.flat_events import flat
from tests.tools.workshop import Workshop, open_workshop


def answers(**outcome: str) -> str:
    """A shell line that prints an outcome."""
    return f"cat >/dev/null; printf %s {shlex.quote(json.dumps(outcome))}"


def hooked(
    base: Path,
    before: str = "",
    after: str = "",
    match: str = "*",
    timeout: float = 30.0,
    **options: Any,
) -> Workshop:
    """A workshop with at most one hook before and one after each call."""
    shop = open_workshop(base, **options)
    section = HooksSection(
        before_tool=[Hook(command=before, match=match, timeout=timeout)] if before else [],
        after_tool=[Hook(command=after, match=match, timeout=timeout)] if after else [],
    )
    shop.runner.steps = (Hooks(section, shop.root, lambda _: None, lambda: "session1"),)
    return shop


async def write(shop: Workshop) -> str:
    return await shop.call("write_file", path="a", content="x")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (answers(decision="deny", reason="no tabs"), "denied by the hook"),
        ("echo no tabs >&2; exit 2", "no tabs"),
        ("exit 1", "exit code 1"),
        ("kill -9 $$", "exit code 137"),
        ("echo nonsense", "not a JSON object"),
        ("echo '[]'", "not a JSON object"),
        (answers(decision="yes"), "not a JSON object"),
        (answers(allow="all"), "not a JSON object"),
        ("/nowhere/to/be/found", "exit code 127"),
        (f"head -c {MAX_OUTPUT + 1} /dev/zero", "longer than"),
    ],
)
async def test_a_denial_and_each_failure_deny_the_call(
    tmp_path: Path, line: str, reason: str
) -> None:
    shop = hooked(tmp_path, before=line)
    result = await write(shop)
    assert result.startswith("Error: denied")
    assert reason in result
    assert not (shop.root / "a").exists()


async def test_a_hook_that_takes_too_long_denies_the_call(tmp_path: Path) -> None:
    shop = hooked(tmp_path, before="sleep 600", timeout=0.05)
    assert "took longer than 0.05 s" in await write(shop)
    assert not (shop.root / "a").exists()


async def test_an_allow_skips_no_approval(tmp_path: Path) -> None:
    shop = hooked(tmp_path, before=answers(decision="allow"), mode=ApproveMode.ASK)
    assert await write(shop) == "Error: denied by the user"
    shop.runner.policy.mode = ApproveMode.NONE
    assert "--approve none" in await write(shop)
    shop.runner.policy.mode = ApproveMode.PLAN
    assert "plan mode" in await write(shop)
    assert not (shop.root / "a").exists()


@pytest.mark.parametrize("mode", [ApproveMode.ALL, ApproveMode.EDITS])
async def test_a_hook_can_ask_about_a_call_that_the_rules_allow(
    tmp_path: Path, mode: ApproveMode
) -> None:
    line = answers(decision="ask", reason="sure?")
    shop = hooked(tmp_path, before=line, mode=mode, answers=[Choice.ONCE])
    assert (await write(shop)).startswith("Wrote")
    (request,) = shop.approver.requests
    assert request.preview.startswith("sure?\n")
    assert "+x" in request.preview
    assert (request.session, request.always) == ((), ())
    assert await write(shop) == "Error: denied by the user"


async def test_hooks_get_the_call_and_its_result_and_add_context(tmp_path: Path) -> None:
    save = 'cat > ../{name}; printf \'{{"context": "from {name}"}}\''
    before, after = save.format(name="before"), save.format(name="after")
    shop = hooked(tmp_path, before=before, after=after)
    result = await write(shop)
    assert result.endswith("[hook: from before]\n[hook: from after]")
    told = {name: json.loads((tmp_path / name).read_text()) for name in ("before", "after")}
    assert told["before"]["tool"] == "write_file"
    assert told["before"]["arguments"] == {"path": "a", "content": "x"}
    assert told["before"]["accesses"][-1]["target"] == str(shop.root / "a")
    assert (told["after"]["ok"], told["after"]["session"]) == (True, "session1")
    assert told["after"]["result"].startswith("Wrote")


async def test_a_result_is_held_back_and_a_failure_afterwards_is_a_warning(tmp_path: Path) -> None:
    held = hooked(tmp_path, after=answers(decision="deny", reason="internal"))
    (held.root / "a").write_text("canary")
    result = await held.call("read_file", path="a")
    assert "internal" in result
    assert "canary" not in result
    broken, warnings = hooked(tmp_path, after="exit 7"), list[str]()

    def listen(event: Event) -> bool:
        _, content, _, _ = flat(event)
        warnings.append(content)
        return True

    call = ToolCall("1", "read_file", {"path": "a"})
    assert "canary" in (await broken.runner.run(call, on_event=listen)).content
    assert "exit code 7" in warnings[0]


async def test_a_hook_runs_only_for_what_it_matches(tmp_path: Path) -> None:
    shop = hooked(tmp_path, before="exit 2", match="shell*")
    assert (await write(shop)).startswith("Wrote")
    assert "denied by the hook" in await shop.call("execute_command", command="true")
    by_name = hooked(tmp_path, before="exit 2", match="write_*")
    assert "denied by the hook" in await write(by_name)


async def test_hooks_get_only_usual_variables_and_those_that_they_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "COMPANY_LOGIN", "DATABASE_URL", "DISPLAY"):
        monkeypatch.setenv(name, f"value of {name}")
    outcomes: list[str] = []
    for names in ([], ["DISPLAY", "NOT_SET"]):
        hook = Hook(command="env >&2; exit 2", env=names)
        outcome = await HookCommand(hook, tmp_path).run({})
        outcomes.append(outcome.reason)
    usual, named = ({line.partition("=")[0] for line in text.splitlines()} for text in outcomes)
    assert usual >= {"PATH", "HOME", "TMPDIR"}
    assert usual.isdisjoint({"OPENAI_API_KEY", "COMPANY_LOGIN", "DATABASE_URL", "DISPLAY"})
    assert named - usual == {"DISPLAY"}


def test_the_variables_of_a_hook_are_a_part_of_the_consent() -> None:
    hook = Hook(command="true", env=["MY_LOGIN"])
    assert "gets MY_LOGIN" in description(HooksSection(turn_end=[hook]))
    with pytest.raises(ValidationError):
        Hook.model_validate({"command": "true", "env": ["A=B"]})


async def test_a_session_starts_once_and_a_turn_is_continued_a_few_times(tmp_path: Path) -> None:
    code = "import json,sys; d=json.load(sys.stdin); print(json.dumps({'context': d['event']}))"
    line = f"{shlex.quote(sys.executable)} -I -S -c {shlex.quote(code)}"
    told: list[str] = []
    hooks = Hooks(
        HooksSection(
            session_start=[Hook(command=line), Hook(command="exit 3")],
            turn_end=[Hook(command=line)],
        ),
        tmp_path,
        told.append,
        lambda: "s",
    )
    additions = Additions(prefaces=[hooks.session_start], turn_ends=[hooks.turn_end])
    session = Session(additions=additions)
    backend = ScriptedBackend(parse_script("\n---\n".join(["text: x"] * 9)))
    shop = open_workshop(tmp_path)
    for prompt in ("one", "two"):
        await run_turn(session, prompt, backend, shop.runner, ignore_events)
    prompts = [m.content for m in session.messages if m.role == "user" and not m.is_hint]
    assert prompts == ["one\n\n<note>\nsession_start\n</note>", "two"]
    hints = [m.content for m in session.messages if m.is_hint]
    assert hints == ["turn_end"] * 2 * MAX_CONTINUED
    assert len(told) == 1
    assert "exit code 3" in told[0]
