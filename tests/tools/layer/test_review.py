"""The mode `review`: the calls of a turn work in one layer, with one question at its end."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode
from shepherd.messages import ToolCall
from shepherd.tools.layer.shared import SharedLayer
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.review import DROPPED, KEPT
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.undo.keeper import UndoKeeper
from shepherd.undo.store import UndoLimits
from tests.tools.layer.test_effects_asked import until_done
from tests.tools.workshop import Workshop, open_workshop
from tests.undo.project import view

Open = Callable[..., Workshop]


@pytest.fixture
def shop(layered_sandbox: Sandbox, tmp_path: Path) -> Open:
    def opened(answers: Iterable[Approval | Choice] = (), rules: Iterable[str] = ()) -> Workshop:
        workshop = open_workshop(
            tmp_path,
            mode=ApproveMode.REVIEW,
            rules=rules,
            answers=answers,
            sandbox=layered_sandbox,
            review=SharedLayer(),
        )
        (workshop.root / "src").mkdir()
        (workshop.root / "src" / "a.txt").write_text("one\ntwo\n")
        return workshop

    return opened


class Hanging:
    """An approver that never answers."""

    async def ask(self, request: ApprovalRequest) -> Approval:
        await asyncio.Event().wait()
        raise AssertionError(request)


async def work(workshop: Workshop) -> None:
    """Calls of all kinds, each of which needs what the ones before it have changed."""
    await workshop.call("write_file", path="new.txt", content="alpha\n")
    assert await workshop.call("execute_command", command="cat new.txt; echo 3 >> src/a.txt") == (
        "alpha"
    )
    assert "3" in await workshop.call("read_file", path="src/a.txt")
    await workshop.call("edit_file", path="src/a.txt", old_string="one", new_string="1")
    assert "src/a.txt:1" in await workshop.call("grep", pattern="^1$")
    assert await workshop.call("execute_command", command="cat a.txt", cwd="src") == "1\ntwo\n3"
    await workshop.call("execute_command", command="mkdir deep; mv new.txt deep")
    assert "deep/new.txt" in await workshop.call("glob", pattern="**/new.txt")
    assert await workshop.call("execute_command", command="ls", cwd="deep") == "new.txt"


async def test_nothing_is_asked_and_nothing_changes_before_the_end(shop: Open) -> None:
    workshop = shop([Choice.ONCE])
    before = view(workshop.root)
    await work(workshop)
    assert workshop.request_count == 0
    assert view(workshop.root) == before

    reviewed = await workshop.runner.review()
    assert (reviewed.text, reviewed.feedback) == (f"{KEPT}.", "")
    [request] = workshop.approver.requests
    assert request.preview.startswith("changed 1 file, made 1:\n")
    assert "-one\n+1" in request.detail
    assert (workshop.root / "src/a.txt").read_text() == "1\ntwo\n3\n"
    assert (workshop.root / "deep/new.txt").read_text() == "alpha\n"
    assert (await workshop.runner.review()).text == ""
    assert not [*(workshop.root.parent / "layers").iterdir()]


async def test_no_drops_the_whole_turn(shop: Open) -> None:
    workshop = shop()
    before = view(workshop.root)
    await work(workshop)
    reviewed = await workshop.runner.review()
    assert (reviewed.text, reviewed.feedback) == (DROPPED, "")
    assert view(workshop.root) == before
    assert not [*(workshop.root.parent / "layers").iterdir()]


async def test_the_model_goes_on_with_what_the_user_says(shop: Open) -> None:
    workshop = shop([Approval(Choice.DENY, feedback="also b"), Choice.ONCE])
    await workshop.call("write_file", path="a", content="a")
    reviewed = await workshop.runner.review()
    assert reviewed.feedback.endswith("says: also b")
    assert await workshop.call("execute_command", command="cat a; echo b > b") == "a"
    await workshop.runner.review()
    assert (workshop.root / "a").read_text() == "a"
    assert (workshop.root / "b").read_text() == "b\n"


async def test_a_conflict_drops_nothing(shop: Open) -> None:
    workshop = shop([Choice.ONCE])
    await workshop.call("execute_command", command="sed -i s/two/2/ src/a.txt")
    (workshop.root / "src/a.txt").write_text("something else\n")
    reviewed = await workshop.runner.review()
    assert "src/a.txt has both versions between conflict markers" in reviewed.feedback
    assert "src/a.txt (changed)" in reviewed.text
    assert (workshop.root / "src/a.txt").read_text() == "something else\n"
    assert workshop.request_count == 1

    # the model sees both, and settles it
    assert await workshop.call("read_file", path="src/a.txt") == (
        "<<<<<<< this turn\none\n2\n=======\nsomething else\n"
        ">>>>>>> something else, at the same time"
    )
    await workshop.call("execute_command", command="echo something else, and 2 > src/a.txt")
    workshop.approver.script(Choice.ONCE)
    assert (await workshop.runner.review()).text.startswith(KEPT)
    assert "-something else\n+something else, and 2" in workshop.approver.requests[-1].detail
    assert (workshop.root / "src/a.txt").read_text() == "something else, and 2\n"


async def test_without_the_store_of_undo_the_turn_waits(shop: Open, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("not a directory")
    workshop = shop([Choice.ONCE, Choice.ONCE])
    limits = UndoLimits()
    keeper = UndoKeeper(tmp_path / "state/undo.db", workshop.root, limits, bool, print)
    keeper.begin("one", lambda: 1)
    workshop.runner.undo = keeper
    await work(workshop)
    reviewed = await workshop.runner.review()
    assert "can't be kept for /undo" in reviewed.text
    assert (workshop.root / "src/a.txt").read_text() == "one\ntwo\n"
    (tmp_path / "state").unlink()
    assert (await workshop.runner.review()).text.startswith(KEPT)
    assert (workshop.root / "src/a.txt").read_text() == "1\ntwo\n3\n"
    await keeper.aclose()


async def test_a_conflict_about_what_is_no_text_waits(shop: Open) -> None:
    workshop = shop([Choice.ONCE, Choice.ONCE])
    await workshop.call("execute_command", command="printf '\\0x' > src/a.txt")
    (workshop.root / "src/a.txt").write_bytes(b"\0y")
    reviewed = await workshop.runner.review()
    assert "for the end of the next turn" in reviewed.text
    assert reviewed.feedback == ""
    assert (workshop.root / "src/a.txt").read_bytes() == b"\0y"


async def test_what_programs_run_needs_its_own_question(shop: Open) -> None:
    workshop = shop([Choice.ONCE, Choice.DENY])
    await workshop.call("write_file", path=".vscode/tasks.json", content="{}")
    await workshop.call("write_file", path="b", content="b")
    assert workshop.request_count == 0
    await workshop.runner.review()
    assert workshop.request_count == 2
    assert (workshop.root / "b").exists()
    assert not (workshop.root / ".vscode").exists()


async def test_a_stopped_review_keeps_the_changes_in_the_layer(shop: Open) -> None:
    workshop = shop([Choice.ONCE])
    await workshop.call("write_file", path="a", content="a")

    approver, workshop.runner.approver = workshop.runner.approver, Hanging()
    task = asyncio.ensure_future(workshop.runner.review())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    workshop.runner.approver = approver
    assert "a" in await workshop.call("read_file", path="a")
    await workshop.runner.review()
    assert (workshop.root / "a").exists()


async def test_a_secret_stays_closed(shop: Open) -> None:
    workshop = shop()
    (workshop.root / ".env").write_text("KEY=1\n")
    assert "denied by rule" in await workshop.call("read_file", path=".env")
    assert "KEY" not in await workshop.call("execute_command", command="cat .e* || true")
    call = ToolCall("1", "write_file", {"path": ".env", "content": "x"})
    assert "denied by rule" in (await workshop.runner.run(call)).content


async def test_some_parts_of_a_turn_are_kept_as_one_step_of_undo(shop: Open) -> None:
    workshop = shop([Approval(Choice.ONCE, parts=(1,))])
    await work(workshop)
    reviewed = await workshop.runner.review()
    assert reviewed.text == f"{KEPT}; the user dropped: changed src/a.txt (8 bytes)."
    assert (workshop.root / "src/a.txt").read_text() == "one\ntwo\n"
    assert (workshop.root / "deep/new.txt").read_text() == "alpha\n"
    assert not [*(workshop.root.parent / "layers").iterdir()]


async def test_lines_of_git_wait_for_the_end_too(shop: Open) -> None:
    workshop = shop([Choice.ONCE])
    begin = ["git init -q -b main", "git config user.name a", "git config user.email b@example.org"]
    for line in begin:
        await until_done(*line.split(), cwd=workshop.root)
    await workshop.call("execute_command", command="git add -A && git commit -qm one")
    await workshop.call("write_file", path="b", content="b")
    log = await workshop.call("execute_command", command="git add b; git commit -qm two; git log")
    assert "one" in log
    assert workshop.request_count == 0
    assert not [*(workshop.root / ".git/refs/heads").iterdir()]
    assert b".git/" not in await workshop.runner.patch()
    await workshop.runner.review()
    [request] = workshop.approver.requests
    assert "git: 2 commits on main, the index" in request.preview
    assert [path.name for path in (workshop.root / ".git/refs/heads").iterdir()] == ["main"]
