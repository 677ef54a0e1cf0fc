"""What a command changed is what the user is asked about, and what rules are about."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from shepherd.config.section import ApproveMode
from shepherd.errors import ConfigError
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.permissions.rules import parse_rule
from shepherd.tools.sandbox.sandbox import Sandbox
from tests.tools.workshop import Workshop, open_workshop

Open = Callable[..., Workshop]
ASK, EDITS, AUTO, PLAN = ApproveMode.ASK, ApproveMode.EDITS, ApproveMode.AUTO, ApproveMode.PLAN


@pytest.fixture
def shop(layered_sandbox: Sandbox, tmp_path: Path) -> Open:
    def opened(
        mode: ApproveMode = ASK,
        answers: Iterable[Approval | Choice] = (),
        rules: Iterable[str] = (),
    ) -> Workshop:
        workshop = open_workshop(
            tmp_path, mode=mode, rules=rules, answers=answers, sandbox=layered_sandbox
        )
        (workshop.root / "src").mkdir(exist_ok=True)
        (workshop.root / "src" / "a.txt").write_text("one\ntwo\n")
        (workshop.root / "notes").write_text("text\n")
        return workshop

    return opened


async def run(workshop: Workshop, command: str, **arguments: Any) -> str:
    return await workshop.call("execute_command", command=command, **arguments)


async def until_done(*line: str, cwd: Path) -> None:
    process = await asyncio.create_subprocess_exec(*line, cwd=cwd)
    assert await process.wait() == 0


def only_request(workshop: Workshop) -> ApprovalRequest:
    [request] = workshop.approver.requests
    return request


async def test_what_changes_nothing_is_not_asked_about(shop: Open) -> None:
    workshop = shop()
    assert await run(workshop, "for f in src/*; do cat $f; done; touch notes") == ("one\ntwo")
    assert await run(workshop, "mkdir -p .pytest_cache/v; echo 1 > .pytest_cache/v/last") == (
        "(no output)"
    )
    assert workshop.request_count == 0
    assert (workshop.root / ".pytest_cache/v/last").read_text() == "1\n"


async def test_the_question_is_about_the_effect(shop: Open) -> None:
    workshop = shop(answers=[Choice.ONCE])
    line = "sed -i s/two/2/ src/a.txt; rm notes; echo done"
    assert await run(workshop, line) == "done"

    request = only_request(workshop)
    assert request.is_effect
    assert request.preview.startswith(f"{line}\n\nchanged 1 file, deleted 1:\n")
    assert "-two\n+2" in request.detail
    targets = {access.target for access in request.accesses}
    assert targets == {f"write {workshop.root}/src/a.txt", f"delete {workshop.root}/notes"}
    assert (workshop.root / "src/a.txt").read_text() == "one\n2\n"
    assert not (workshop.root / "notes").exists()


async def test_no_drops_everything_and_tells_the_model(shop: Open) -> None:
    workshop = shop(answers=[Approval(Choice.DENY, feedback="keep the notes")])
    result = await run(workshop, "echo ran; rm -rf src notes")
    assert result == ("ran\n[its changes were not kept: denied by the user: keep the notes]")
    assert (workshop.root / "src/a.txt").exists()
    assert (workshop.root / "notes").exists()
    assert not [*(workshop.root.parent / "layers").iterdir()]


async def test_an_answer_for_the_session_is_a_rule_about_effects(shop: Open) -> None:
    workshop = shop(answers=[Choice.SESSION])
    await run(workshop, "echo 1 > made; echo 3 >> src/a.txt")
    assert [str(rule) for rule in only_request(workshop).session] == ["allow effect write **"]
    assert [str(rule) for rule in only_request(workshop).always] == [
        "allow effect write made",
        "allow effect write src/**",
    ]
    await run(workshop, "echo 2 > other")  # another line, the same kind of effect
    assert workshop.request_count == 1
    await run(workshop, "rm notes")
    assert workshop.request_count == 2
    assert (workshop.root / "notes").exists()


@pytest.mark.parametrize(
    ("rule", "line", "is_kept"),
    [
        ("allow effect write src/**", "echo 1 > src/b", True),
        ("allow effect write src/**", "echo 1 > src/b; echo 1 > b", False),
        ("allow effect write src/**", "rm src/a.txt", False),
        ("allow effect delete src/**", "rm src/a.txt", True),
        ("allow effect any below 3 files", "rm src/a.txt; echo 1 > b", True),
        ("allow effect any below 3 files", "for i in 1 2 3; do echo > n$i; done", False),
        ("allow effect any untracked", "echo 1 > b", True),
        ("allow effect any **", "rm -r src; echo 1 > b; chmod 700 notes", True),
        ("deny effect any **", "echo 1 > b", False),
    ],
)
async def test_rules_about_effects(shop: Open, rule: str, line: str, *, is_kept: bool) -> None:
    workshop = shop(rules=[rule])
    before = sorted(str(p) for p in workshop.root.rglob("*"))
    result = await run(workshop, line)
    assert ("not kept" not in result) == is_kept
    assert (sorted(str(p) for p in workshop.root.rglob("*")) != before) == is_kept
    assert workshop.request_count == (0 if is_kept or rule.startswith("deny") else 1)


@pytest.mark.parametrize("mode", [AUTO, ApproveMode.ALL])
async def test_a_rule_that_denies_an_effect_holds_in_every_mode(
    shop: Open, mode: ApproveMode
) -> None:
    workshop = shop(mode, rules=["deny effect delete **", "allow shell rm *"])
    assert "denied by rule: deny effect delete **" in await run(workshop, "rm notes; echo > new")
    assert (workshop.root / "notes").exists()
    assert not (workshop.root / "new").exists()


async def test_a_rule_of_the_user_asks_in_auto(shop: Open) -> None:
    workshop = shop(AUTO, rules=["ask effect delete untracked"], answers=[Choice.ONCE])
    await run(workshop, "echo 1 > made")
    assert workshop.request_count == 0
    await run(workshop, "rm notes")
    assert workshop.request_count == 1
    assert not (workshop.root / "notes").exists()


async def test_what_git_has_is_tracked(shop: Open) -> None:
    workshop = shop(AUTO, rules=["deny effect delete untracked"])
    await until_done("git", "init", "-q", cwd=workshop.root)
    await until_done("git", "add", "notes", cwd=workshop.root)
    assert "denied by rule" in await run(workshop, "rm src/a.txt")
    assert await run(workshop, "rm notes") == "(no output)"
    assert not (workshop.root / "notes").exists()


async def test_edits_covers_writes_and_asks_about_deletions(shop: Open) -> None:
    workshop = shop(EDITS)
    await run(workshop, "echo 1 > src/b; mkdir -p x/__pycache__; echo > x/__pycache__/b.pyc")
    assert workshop.request_count == 0
    assert (workshop.root / "x/__pycache__/b.pyc").exists()
    await run(workshop, "rm notes")
    assert workshop.request_count == 1
    assert (workshop.root / "notes").exists()


async def test_a_line_that_was_approved_is_not_asked_about_again(shop: Open) -> None:
    workshop = shop(rules=["ask shell rm *"], answers=[Choice.ONCE])
    await run(workshop, "rm notes")
    assert not only_request(workshop).is_effect
    assert not (workshop.root / "notes").exists()


async def test_bytecode_alone_is_neither_asked_about_nor_kept(shop: Open) -> None:
    workshop = shop(answers=[Choice.ONCE])
    line = "mkdir src/__pycache__; echo evil > src/__pycache__/a.pyc"
    assert await run(workshop, line) == "(no output)"
    assert workshop.request_count == 0
    assert not (workshop.root / "src/__pycache__").exists()
    await run(workshop, f"{line}; echo > made")
    assert "a.pyc" in only_request(workshop).preview
    assert (workshop.root / "src/__pycache__/a.pyc").exists()


async def test_files_that_programs_run_need_a_question_of_their_own(shop: Open) -> None:
    workshop = shop(rules=["allow effect any **"])
    result = await run(workshop, "mkdir .vscode; echo x > .vscode/tasks.json; echo 1 > made")
    assert "not kept, as they need approval: .vscode" in result
    assert (workshop.root / "made").exists()
    assert not (workshop.root / ".vscode").exists()


async def test_a_renamed_folder_is_offered_to_run_through(shop: Open) -> None:
    workshop = shop(answers=[Choice.DENY])
    line = "python3 -c \"import os; os.rename('src', 'lib')\""
    assert "not run again" in await run(workshop, line)
    assert "without a layer" in only_request(workshop).sandbox
    assert (workshop.root / "src/a.txt").exists()
    workshop.approver.script(Choice.ONCE)
    await run(workshop, line)
    assert (workshop.root / "lib/a.txt").exists()


async def test_plan_mode_runs_commands_and_keeps_nothing(shop: Open) -> None:
    workshop = shop(PLAN)
    line = "echo 1 > made; rm -r src; cat made"
    assert await run(workshop, line) == "1\n[plan mode: its changes were not kept]"
    assert await run(workshop, "cat notes") == "text"
    rename = "python3 -c \"import os; os.rename('src', 'lib')\""
    assert "not run again" in await run(workshop, rename)
    assert workshop.request_count == 0
    assert sorted(p.name for p in workshop.root.iterdir()) == ["notes", "src"]


def test_a_pattern_that_can_never_match_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a pattern of changes"):
        parse_rule("allow effect src/**")
    assert str(parse_rule("ask effect delete untracked")) == "ask effect delete untracked"


async def test_some_parts_are_kept_and_the_model_reads_which_not(shop: Open) -> None:
    workshop = shop(answers=[Approval(Choice.SESSION, parts=(2,)), Approval(Choice.ONCE, parts=())])
    line = "sed -i s/two/2/ src/a.txt; echo 1 > made; echo done"
    assert await run(workshop, line) == ("done\n[the user dropped: made made (2 bytes)]")
    request = only_request(workshop)
    assert [(part.path, part.name) for part in request.parts] == [
        ("made", "made made (2 bytes)"),
        ("src/a.txt", "changed src/a.txt (6 bytes)"),
    ]
    assert request.parts[1].diff.endswith("-two\n+2")
    assert (workshop.root / "src/a.txt").read_text() == "one\n2\n"
    assert not (workshop.root / "made").exists()
    # no rule comes from an answer about a part, and no part at all is a no
    assert await run(workshop, line + "; echo 2 > other") == (
        "done\n[its changes were not kept: denied by the user]"
    )
    assert workshop.request_count == 2
    assert not (workshop.root / "other").exists()


async def test_a_single_change_has_no_parts(shop: Open) -> None:
    workshop = shop(answers=[Choice.ONCE])
    await run(workshop, "echo 1 > made")
    assert only_request(workshop).parts == ()


async def test_a_part_is_merged_with_what_changed_meanwhile(shop: Open) -> None:
    workshop = shop()
    lines = [f"{n}\n" for n in range(60)]
    (workshop.root / "notes").write_text("".join(lines))

    class Busy:
        async def ask(self, request: ApprovalRequest) -> Approval:
            (workshop.root / "notes").write_text("".join(["new\n", *lines]))
            return Approval(Choice.ONCE, parts=(2,))

    workshop.runner.approver = Busy()
    result = await run(workshop, "sed -i -e s/^10$/ten/ -e s/^40$/forty/ notes")
    assert "[the user dropped: changed notes (" in result
    assert "hunk 1 of 2]" in result
    lines[40] = "forty\n"
    assert (workshop.root / "notes").read_text() == "".join(["new\n", *lines])


async def test_the_first_commands_have_layers_also_at_the_same_time(shop: Open) -> None:
    workshop = shop(ASK)
    names = [f"old{number}" for number in range(4)]
    for name in names:
        (workshop.root / name).write_text("1\n")

    await asyncio.gather(*(run(workshop, f"sh -c 'rm {name}'") for name in names))

    assert all((workshop.root / name).exists() for name in names)
    assert all(request.is_effect for request in workshop.approver.requests)
    assert workshop.request_count == len(names)


async def test_a_box_masks_what_programs_read_instead_of_guessing(shop: Open) -> None:
    workshop = shop()
    (workshop.root / ".env").write_text("KEY=1\n")
    ended = await run(workshop, "python3 -c 'print(open(\".env\").read())'; grep -r KEY .")
    assert "KEY=1" not in ended
    assert "denied by rule" not in ended
    assert await run(workshop, "echo .env; grep -c text notes") == ".env\n1"
    assert await run(workshop, "cat .env") == "Error: denied by rule: deny read /**/.env"
    assert workshop.request_count == 0


async def test_in_the_mode_none_a_command_does_not_run(shop: Open) -> None:
    workshop = shop(ApproveMode.NONE)
    for line in ("make", "make .env", "touch x"):
        assert (await run(workshop, line)).startswith("Error: denied")
