"""Commands in the background: what they change stands in a layer until they end, or it is kept."""

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from shepherd.config.section import ApproveMode, SandboxMode
from shepherd.messages import ToolCall
from shepherd.tools import settlement
from shepherd.tools.layer.change import Change
from shepherd.tools.layer.commit import commit, recover
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.layer.patch import rescue_killed
from shepherd.tools.layer.shared import SharedLayer
from shepherd.tools.pending import copy_so_far
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.sandbox import Finding, Sandbox
from shepherd.tools.shell.background import BackgroundCommand, BackgroundCommands
from shepherd.tools.tool import ToolResult
from shepherd.undo.keeper import UndoKeeper
from shepherd.undo.store import UndoLimits
from tests.patience import PATIENCE
from tests.tools.layer.running import BOX, make_lines, run_layered
from tests.tools.sandbox.boxes import need
from tests.tools.workshop import Workshop, open_workshop, until
from tests.undo.project import view

ASK, AUTO, ALL = ApproveMode.ASK, ApproveMode.AUTO, ApproveMode.ALL
NOBODY = Approval(Choice.DENY, reason="nobody is here", unanswered=True)


class Yard:
    """A workshop with background commands; a command goes on when the file `go` is written."""

    def __init__(self, base: Path, box: Box, mode: ApproveMode, **options: Any) -> None:
        self.layers = base / "layers"
        sandbox = Sandbox(
            SandboxMode.REQUIRED, layers=(self.layers,), find=lambda: Finding(box, ())
        )
        self.ends: list[str] = []
        self.commands = BackgroundCommands(lambda command: self.ends.append(command.report))
        self.workshop: Workshop = open_workshop(
            base,
            mode=mode,
            sandbox=sandbox,
            background=self.commands,
            review=SharedLayer(),
            **options,
        )
        self.root = self.workshop.root
        (self.root / "notes").write_text("one\ntwo\nthree\nfour\nfive\n")
        (self.root / "kept.txt").write_text("kept\n")
        for number in range(3):  # a new file below may stay unseen in a layer
            (self.root / f"go{number}").touch()

    @property
    def requests(self) -> list[ApprovalRequest]:
        return self.workshop.approver.requests

    async def start(self, line: str, **arguments: Any) -> BackgroundCommand:
        """Start a line; `@N` in it waits until `go` has been called with N."""
        for number in range(3):
            line = line.replace(f"@{number}", f"until [ -s go{number} ]; do sleep 0.02; done")
        text = await self.workshop.call(
            "execute_command", command=line, background=True, **arguments
        )
        assert text.startswith("[command"), text
        return self.commands.all[-1]

    def go(self, number: int = 0) -> None:
        """Let commands go on that wait for the number."""
        (self.root / f"go{number}").write_text("go")

    async def end(self, command: BackgroundCommand) -> str:
        """Let the command go on to its end; returns what became of its changes."""
        for number in range(3):
            self.go(number)
        await until(lambda: not command.is_running)
        return command.outcome

    async def has_changed(self, command: BackgroundCommand, name: str) -> None:
        """Wait until something stands in a layer of this name."""
        await until(lambda: any(self.layers.glob(f"layer-*/upper/{name}")))
        assert command.is_running

    @property
    def has_layers(self) -> bool:
        return any(self.layers.iterdir())


Open = Callable[..., Yard]


@pytest.fixture
def yard(layered_box: Box, tmp_path: Path) -> Open:
    def opened(
        mode: ApproveMode = ASK, answers: Iterable[Approval | Choice] = (), **options: Any
    ) -> Yard:
        return Yard(tmp_path, layered_box, mode, answers=answers, **options)

    return opened


async def test_the_effect_is_asked_about_at_the_end(yard: Open) -> None:
    shop = yard(answers=[Choice.ONCE])
    command = await shop.start("echo 1 > made; @0; cat made >> notes")
    await shop.has_changed(command, "made")
    assert shop.requests == []
    assert not (shop.root / "made").exists()
    assert await shop.end(command) == "its changes were kept"
    [request] = shop.requests
    assert "changed 1 file, made 1:" in request.preview
    assert "(in the background)" in request.preview
    assert "+1" in request.detail
    assert (shop.root / "made").read_text() == "1\n"
    assert (shop.root / "notes").read_text().endswith("five\n1\n")
    assert [end.partition(" after")[0] for end in shop.ends] == ["ended with exit code 0"]
    assert shop.ends[0].endswith("; its changes were kept")
    result = await shop.workshop.call("check_command", id="1")
    assert "\n[its changes were kept]" in result
    assert not shop.has_layers


async def test_no_drops_all_and_the_model_is_told(yard: Open) -> None:
    shop = yard(answers=[Approval(Choice.DENY, feedback="not so")])
    command = await shop.start("@0; rm kept.txt")
    assert await shop.end(command) == "its changes were not kept: denied by the user: not so"
    assert (shop.root / "kept.txt").exists()
    assert not shop.has_layers
    quiet = await shop.start("@0; cat notes")
    assert await shop.end(quiet) == ""
    assert len(shop.requests) == 1


async def test_auto_asks_nothing_and_all_comes_back(yard: Open, tmp_path: Path) -> None:
    shop = yard(AUTO)
    keeper = UndoKeeper(
        tmp_path / "undo.db", shop.root, UndoLimits(), lambda _path: False, lambda _text: None
    )
    keeper.begin("one", lambda: 1)
    shop.workshop.runner.undo = keeper
    (shop.root / ".git").mkdir()
    (shop.root / ".gitignore").write_text("data\n")
    (shop.root / "data").mkdir()
    (shop.root / "data" / "base.db").write_bytes(bytes(range(256)) * 1000)
    for number in range(3):
        shop.go(number)
    before = view(shop.root)
    command = await shop.start("@0; sleep 0.6; rm -r data kept.txt; echo 1 > made")
    assert await shop.end(command) == "its changes were kept"
    assert shop.requests == []
    assert not (shop.root / "data").exists()
    await keeper.undo()
    assert view(shop.root) == before
    await keeper.aclose()


@pytest.mark.parametrize("by_user", [True, False])
async def test_killing_drops_the_changes(yard: Open, *, by_user: bool) -> None:
    shop = yard(AUTO)
    command = await shop.start("echo 1 > made; sleep 3600")
    await shop.has_changed(command, "made")
    if by_user:
        await shop.commands.kill(command, by_user=True)
        await until(lambda: bool(shop.ends))
        assert shop.ends[0].endswith("; its changes were dropped")
    else:
        text = await shop.workshop.call("check_command", id="1", kill=True)
        assert "\n[its changes were dropped]" in text
    assert not (shop.root / "made").exists()
    assert not shop.has_layers


async def test_the_end_of_the_session_keeps_a_patch(yard: Open, tmp_path: Path) -> None:
    shop = yard(AUTO)
    before = view(shop.root)
    command = await shop.start("sed -i s/two/2/ notes; sleep 3600")
    await shop.has_changed(command, "notes")
    [sentence] = await shop.commands.aclose(tmp_path / "patches")
    assert "changed 1 file" in sentence
    [patch] = (tmp_path / "patches").iterdir()
    assert "-two\n+2\n" in patch.read_text()
    assert view(shop.root) == before
    assert not shop.has_layers


async def test_what_is_kept_so_far_is_not_asked_about_again(yard: Open) -> None:
    shop = yard(answers=[Choice.ONCE, Choice.ONCE])
    command = await shop.start(
        "echo a > a; echo b > b; sed -i s/two/2/ notes; rm kept.txt; touch ready;"
        "@0; echo aa >> a; rm b; sed -i s/five/5/ notes; echo back > kept.txt"
    )
    await shop.has_changed(command, "ready")
    assert await shop.commands.keep(command) == "its changes were kept"
    assert command.is_running
    assert (shop.root / "a").read_text() == "a\n"
    assert (shop.root / "notes").read_text() == "one\n2\nthree\nfour\nfive\n"
    assert not (shop.root / "kept.txt").exists()
    assert await shop.commands.keep(command) == "it has changed nothing"

    assert await shop.end(command) == "its changes were kept"
    _, last = shop.requests
    assert "changed 2 files, made 1, deleted 1:" in last.preview
    assert (shop.root / "a").read_text() == "a\naa\n"
    assert not (shop.root / "b").exists()
    assert (shop.root / "notes").read_text() == "one\n2\nthree\nfour\n5\n"
    assert (shop.root / "kept.txt").read_text() == "back\n"
    assert not shop.has_layers


async def test_a_no_to_what_is_so_far_drops_nothing_yet(yard: Open) -> None:
    shop = yard(answers=[Choice.DENY, Choice.ONCE])
    command = await shop.start("echo a > a; @0; echo b > b")
    await shop.has_changed(command, "a")
    assert await shop.commands.keep(command) == "its changes were not kept: denied by the user"
    assert not (shop.root / "a").exists()
    assert await shop.end(command) == "its changes were kept"
    assert (shop.root / "a").read_text() == "a\n"


async def test_what_somebody_changes_after_a_keep_is_merged(yard: Open) -> None:
    shop = yard(AUTO)
    command = await shop.start("sed -i s/one/1/ notes; touch ready; @0; sed -i s/five/5/ notes")
    await shop.has_changed(command, "ready")
    assert await shop.commands.keep(command) == "its changes were kept"
    notes = shop.root / "notes"
    notes.write_text(notes.read_text().replace("three", "3"))
    assert "merged" in await shop.end(command)
    assert notes.read_text() == "1\ntwo\n3\nfour\n5\n"


async def test_two_that_change_one_file_are_merged_or_wait(yard: Open) -> None:
    shop = yard(AUTO)
    first = await shop.start("sed -i s/one/1/ notes; @0")
    second = await shop.start("sed -i s/five/5/ notes; @1")
    third = await shop.start("sed -i s/one/I/ notes; echo 1 > other; @2")
    await shop.has_changed(third, "other")
    shop.go(0)
    await shop.commands.wait(first, PATIENCE)
    shop.go(1)
    await shop.commands.wait(second, PATIENCE)
    assert "merged" in second.outcome
    notes = shop.root / "notes"
    assert notes.read_text() == "1\ntwo\nthree\nfour\n5\n"

    assert (await shop.end(third)).startswith("its changes wait: something else changed notes")
    assert notes.read_text() == "1\ntwo\nthree\nfour\n5\n"
    assert not (shop.root / "other").exists()
    assert await shop.commands.settle_waiting() == []  # nobody is asked again without a reason
    notes.write_text("one\ntwo\nthree\nfour\n5\n")
    assert "merged" in await shop.commands.keep(third)
    assert notes.read_text() == "I\ntwo\nthree\nfour\n5\n"
    assert not shop.has_layers


async def test_changes_wait_while_there_is_nobody_to_ask(yard: Open) -> None:
    shop = yard(answers=[NOBODY, NOBODY, Choice.ONCE])
    command = await shop.start("@0; echo 1 > made")
    assert await shop.end(command) == "its changes wait for an answer"
    assert command.waits
    assert await shop.commands.settle_waiting() == []
    assert not (shop.root / "made").exists()
    assert await shop.commands.settle_waiting() == [command]
    assert command.outcome == "its changes were kept"
    assert (shop.root / "made").read_text() == "1\n"
    assert not shop.has_layers


async def test_live_changes_files_at_once_and_is_asked_about(yard: Open) -> None:
    shop = yard(AUTO, answers=[Choice.DENY, Choice.ONCE])
    arguments = {"command": "echo 1 > made; sleep 3600", "background": True, "live": True}
    assert await shop.workshop.call("execute_command", **arguments) == "Error: denied by the user"
    command = await shop.start("echo 1 > made; @0; cat seen > copy; sleep 3600", live=True)
    assert [request.sandbox for request in shop.requests] == ["It changes files as it runs."] * 2
    await until((shop.root / "made").exists)
    (shop.root / "seen").write_text("seen\n")
    shop.go(0)
    await until((shop.root / "copy").exists)
    assert await shop.commands.keep(command) == "it changes files as it runs"
    await shop.commands.kill(command)
    assert (shop.root / "made").exists()


@pytest.mark.parametrize(
    ("mode", "rules"), [(ALL, ()), (AUTO, ["allow shell touch *"]), (ASK, ["allow shell touch *"])]
)
async def test_a_rule_of_the_user_allows_what_is_live(
    yard: Open, mode: ApproveMode, rules: Iterable[str]
) -> None:
    shop = yard(mode, rules=rules)
    command = await shop.start("touch made", live=True)
    assert await shop.end(command) == ""
    assert (shop.root / "made").exists()
    assert shop.requests == []


async def test_plan_mode_keeps_nothing(yard: Open, tmp_path: Path) -> None:
    shop = yard(ApproveMode.PLAN)
    command = await shop.start("@0; echo 1 > made", live=True)
    assert await shop.end(command) == "plan mode: its changes were not kept"
    running = await shop.start("echo 1 > other; sleep 3600")
    await shop.has_changed(running, "other")
    assert await shop.commands.aclose(tmp_path / "patches") == []
    assert not (tmp_path / "patches").exists()
    assert not (shop.root / "made").exists()


async def test_in_review_it_has_a_layer_of_its_own(yard: Open) -> None:
    shop = yard(ApproveMode.REVIEW, answers=[Choice.ONCE, Choice.ONCE])
    await shop.workshop.call("write_file", path="new.txt", content="new\n")
    command = await shop.start("echo 1 > made; @0; ls new.txt")
    await shop.has_changed(command, "made")
    # the layer of the turn can be used meanwhile
    assert await shop.workshop.call("execute_command", command="cat new.txt") == "new"
    assert await shop.end(command) == "its changes were kept"
    assert (shop.root / "made").exists()
    assert not (shop.root / "new.txt").exists()
    await shop.workshop.runner.review()
    assert (shop.root / "new.txt").read_text() == "new\n"


class Gate:
    """A commit that waits in its middle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        monkeypatch.setattr(settlement, "commit", self._commit)

    def _commit(self, layer: Layer, changes: Iterable[Change]) -> None:
        self.entered.set()
        assert self.opened.wait(PATIENCE)
        commit(layer, [*changes])


async def test_killing_in_the_middle_of_a_commit_lets_it_end(
    yard: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, gate = yard(AUTO), Gate(monkeypatch)
    command = await shop.start("@0; rm kept.txt; echo 1 > made; mkdir d; echo 2 > d/e")
    for number in range(3):
        shop.go(number)
    await until(gate.entered.is_set)
    kill = asyncio.ensure_future(shop.commands.kill(command))
    await asyncio.sleep(0)
    gate.opened.set()
    await kill
    assert (shop.root / "made").read_text() == "1\n"
    assert (shop.root / "d" / "e").read_text() == "2\n"
    assert not (shop.root / "kept.txt").exists()
    assert command.outcome == ""
    assert not shop.has_layers


async def test_stopping_a_call_in_the_middle_of_its_commit_lets_it_end(
    yard: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, gate = yard(AUTO), Gate(monkeypatch)
    call = ToolCall("1", "execute_command", {"command": "rm kept.txt; echo 1 > made"})
    task: asyncio.Task[ToolResult] = asyncio.create_task(shop.workshop.runner.run(call))
    await until(gate.entered.is_set)
    task.cancel()
    await asyncio.sleep(0.05)  # it must not take the layer away from the commit meanwhile
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (shop.root / "made").read_text() == "1\n"
    assert not (shop.root / "kept.txt").exists()
    assert not shop.has_layers


@pytest.mark.parametrize("seed", range(12))
def test_a_copy_has_the_same_effect(
    tmp_path: Path, make_layer: Callable[[Path], Layer], seed: int
) -> None:
    need(BOX)
    chance = random.Random(seed)
    root = tmp_path / "root"
    root.mkdir()
    subprocess.run(["bash", "-c", "; ".join(make_lines(chance) * 2)], cwd=root, check=False)
    layer = make_layer(root)
    run_layered(BOX, root, layer, "; ".join(make_lines(chance)))
    copied = copy_so_far(layer)
    assert read_effect(copied) == read_effect(layer)
    assert view(copied.upper) == view(layer.upper)


def test_a_copy_follows_nothing(tmp_path: Path, make_layer: Callable[[Path], Layer]) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("secret")
    layer = make_layer(tmp_path / "root")
    (layer.upper / "directory").symlink_to(tmp_path / "secrets")
    (layer.upper / "file").symlink_to(tmp_path / "secrets" / "key")
    copied = copy_so_far(layer)
    assert sorted(copied.upper.rglob("*")) == [copied.upper / "directory", copied.upper / "file"]
    assert (copied.upper / "directory").is_symlink()
    assert (copied.upper / "file").is_symlink()


OWNER = """
import asyncio, sys
from pathlib import Path
from tests.tools.layer.test_background_layers import AUTO, Yard
from tests.tools.sandbox.boxes import BOXES

async def main():
    box = next(box for box in BOXES if box.name == sys.argv[2])
    yard = Yard(Path(sys.argv[1]), box, AUTO)
    command = await yard.start("sed -i s/two/2/ notes; rm kept.txt; touch ready; sleep 3600")
    await yard.has_changed(command, "ready")
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_kill_9_changes_nothing_and_leaves_a_patch(tmp_path: Path, layered_box: Box) -> None:
    words = [sys.executable, "-c", OWNER, str(tmp_path), layered_box.name]
    root = Path(__file__).parents[3]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=root) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        owner.kill()
    layers, patches = tmp_path / "layers", tmp_path / "patches"
    [sentence] = rescue_killed(layers, patches)
    assert "changed 1 file" in sentence
    [patch] = patches.iterdir()
    assert "-two\n+2\n" in patch.read_text()
    assert recover(layers) == []
    assert [*layers.iterdir()] == []
    assert (tmp_path / "project" / "kept.txt").exists()
    assert "two" in (tmp_path / "project" / "notes").read_text()
