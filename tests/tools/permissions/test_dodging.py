"""Links, dots, tildes, devices and process directories lead nowhere that a rule forbids."""

import os
from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.registry import default_registry
from shepherd.tools.tool import ToolContext
from tests.tools.workshop import Workshop, open_workshop


@pytest.fixture
def asking(tmp_path: Path) -> Workshop:
    """Default rules and an approver that always says no."""
    workshop = open_workshop(tmp_path, mode=ApproveMode.ASK)
    (workshop.root / "a.txt").write_text("fine")
    (workshop.root / ".env").write_text("SECRET")
    (workshop.outside / "o.txt").write_text("outside")
    (workshop.root / "out").symlink_to(workshop.outside)
    (workshop.root / "file-out").symlink_to(workshop.outside / "o.txt")
    (workshop.root / "innocent.txt").symlink_to(".env")
    (workshop.root / "root").symlink_to("/")
    (workshop.root / "self").symlink_to(".")
    (workshop.root / "loop").symlink_to("loop")
    return workshop


OUTSIDE = [
    "../outside/o.txt", "out/o.txt", "file-out", "self/out/o.txt", "out/../outside/o.txt",
    "/proc/self/cwd/../o.txt", "root/etc/hosts", "/proc/self/root/etc/hosts", "~/x", "~root/x",
    "/dev/tty", "/dev/fd/0", "self/../../outside/new.txt", "out/new/deeper.txt",
]  # fmt: skip
SECRET = [".env", "./.env", "self/self/.env", "innocent.txt", "out/../project/.env", "out/.env",
          "self/id_rsa", "/proc/self/environ", "/proc/thread-self/environ"]  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("tool", ["read_file", "write_file", "edit_file", "list_directory", "grep"])
async def test_outside_is_outside(asking: Workshop, tool: str, path: str) -> None:
    arguments = {"path": path}
    if tool == "write_file":
        arguments["content"] = "x"
    if tool == "edit_file":
        arguments |= {"old_string": "outside", "new_string": "x"}
    if tool == "grep":
        arguments["pattern"] = "."
    text = await asking.call(tool, **arguments)
    assert text == "Error: denied by the user"
    assert asking.request_count == 1
    assert (asking.outside / "o.txt").read_text() == "outside"
    assert sorted(p.name for p in asking.outside.iterdir()) == ["o.txt"]


@pytest.mark.parametrize("path", SECRET)
@pytest.mark.parametrize("tool", ["read_file", "write_file", "grep"])
async def test_a_secret_is_a_secret_by_any_way(asking: Workshop, tool: str, path: str) -> None:
    asking.runner.policy.mode = ApproveMode.ALL
    arguments = {"read_file": {}, "write_file": {"content": "x"}, "grep": {"pattern": "."}}[tool]
    text = await asking.call(tool, path=path, **arguments)
    assert text.startswith("Error: denied by rule: deny ")
    assert (asking.root / ".env").read_text() == "SECRET"


async def test_a_loop_is_an_error(asking: Workshop) -> None:
    assert (await asking.call("read_file", path="loop")).startswith("Error: ")
    assert (await asking.call("write_file", path="loop", content="x")).startswith("Error: ")


async def test_a_link_swapped_while_the_user_thinks_is_noticed(tmp_path: Path) -> None:
    workshop = open_workshop(tmp_path, mode=ApproveMode.ASK, answers=[Choice.ONCE])
    link = workshop.root / "link"
    link.symlink_to("a.txt")
    original = workshop.approver.ask

    class Swapping:
        async def ask(self, request: ApprovalRequest) -> Approval:
            link.unlink()
            link.symlink_to(workshop.outside / "o.txt")
            return await original(request)

    workshop.runner.approver = Swapping()
    text = await workshop.call("write_file", path="link", content="x")
    assert text.startswith("Error: what the call touches has changed")
    assert not (workshop.outside / "o.txt").exists()


@pytest.mark.parametrize("path", [*OUTSIDE, *SECRET, "a.txt", "new/file"])
def test_what_is_asked_for_is_where_it_really_goes(asking: Workshop, path: str) -> None:
    tool = default_registry().get("read_file")
    assert tool is not None
    context = ToolContext(asking.root, asking.root)
    (access,) = tool.accesses(tool.arguments(path=path), context)
    full = Path(access.target)
    assert full.is_absolute()
    assert ".." not in full.parts
    existing = full
    while not existing.exists():
        existing = existing.parent
    assert os.path.realpath(existing) == str(existing)


async def test_an_edit_tells_nothing_about_a_file_that_may_not_be_read(asking: Workshop) -> None:
    edits = [("outside", "x"), ("not in it", "x")]
    texts = {
        await asking.call("edit_file", path="out/o.txt", old_string=old, new_string=new)
        for old, new in edits
    }
    texts.add(await asking.call("edit_file", path="out/gone", old_string="a", new_string="b"))
    assert texts == {"Error: denied by the user"}
    assert asking.request_count == 3
