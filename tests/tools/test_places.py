"""Odd places: links, other names of a file, what is no file, and what is not there."""

import ast
import os
from pathlib import Path
from typing import Any

import pytest

import shepherd.tools
from shepherd.config.section import ApproveMode
from shepherd.errors import ToolError
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.opening import open_directory, open_regular
from shepherd.tools.permissions.approval import Choice
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.search.grep import Grep
from shepherd.tools.tool import ToolContext
from tests.tools.workshop import Workshop, open_workshop


def asking(base: Path, *answers: Choice, **options: Any) -> Workshop:
    return open_workshop(base, mode=ApproveMode.ASK, answers=answers, **options)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("delete_file", {"path": "gone"}, "Error: no such file: gone"),
        ("delete_file", {"path": "gone/x"}, "Error: no such file: gone/x"),
        ("delete_file", {"path": "folder"}, "Error: is a directory: folder"),
        ("delete_file", {"path": "file/x"}, "Error: not a directory: file/x"),
        ("write_file", {"path": "folder", "content": ""}, "Error: is a directory: folder"),
        ("write_file", {"path": "new/", "content": ""}, "Error: is a directory: new/"),
        ("write_file", {"path": "file/x", "content": ""}, "Error: not a directory: file/x"),
        ("write_file", {"path": "fifo", "content": ""}, "Error: not a regular file: fifo"),
        ("edit_file", {"path": "gone", "old_string": "a", "new_string": "b"},
         "Error: no such file: gone"),
        ("edit_file", {"path": "file", "old_string": "a", "new_string": "b"},
         "Error: old_string not found in file"),
        ("read_file", {"path": "asked/gone"}, "Error: no such file: asked/gone"),
        ("list_directory", {"path": "asked/gone"}, "Error: no such directory: asked/gone"),
        ("http_get", {"url": "http://10.0.0.1/"}, "Error: private address refused: 10.0.0.1"),
    ],
)  # fmt: skip
async def test_nothing_is_asked_that_can_not_succeed(
    tmp_path: Path, name: str, arguments: dict[str, str], expected: str
) -> None:
    shop = asking(tmp_path, Choice.ONCE, rules=["ask read asked/*"])
    (shop.root / "folder").mkdir()
    (shop.root / "asked").mkdir()
    (shop.root / "file").write_text("text")
    os.mkfifo(shop.root / "fifo")
    assert await shop.call(name, **arguments) == expected
    assert shop.request_count == 0


@pytest.mark.parametrize("name", ["read_file", "delete_file", "list_directory"])
async def test_what_is_outside_is_not_told_unasked(tmp_path: Path, name: str) -> None:
    texts: list[str] = []
    for there in (True, False):
        shop = asking(tmp_path)
        (shop.outside / "x").touch() if there else (shop.outside / "x").unlink()
        texts.append(await shop.call(name, path="../outside/x"))
        assert shop.request_count == 1
    assert texts == ["Error: denied by the user"] * 2


SECRETS = [".env", "id_rsa", "sub/deeper/server.pem"]


@pytest.mark.parametrize("secret", SECRETS)
async def test_another_name_of_a_secret_is_denied_as_well(tmp_path: Path, secret: str) -> None:
    shop = open_workshop(tmp_path)
    (shop.root / secret).parent.mkdir(parents=True, exist_ok=True)
    (shop.root / secret).write_text("the secret\n")
    (shop.root / "notes.txt").hardlink_to(shop.root / secret)
    (shop.root / "plain.txt").write_text("no secret\n")
    (shop.root / "twin.txt").hardlink_to(shop.root / "plain.txt")
    denied = f"Error: denied by rule: the file is also {shop.root / secret}"
    edit = {"old_string": "secret", "new_string": "x"}
    assert await shop.call("read_file", path="notes.txt") == denied
    assert await shop.call("edit_file", path="notes.txt", **edit) == denied
    assert await shop.call("write_file", path="notes.txt", content="x") == denied
    assert await shop.call("read_file", path="twin.txt") == "no secret"
    assert (await shop.call("grep", pattern="secret")).split("\n") == [
        "plain.txt:1: no secret",
        "twin.txt:1: no secret",
    ]


async def test_a_secret_of_the_home_directory_is_known_by_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".aws").mkdir()
    (home / ".ssh/work").write_text("the secret\n")
    (home / ".aws/credentials").write_text("the secret\n")
    monkeypatch.setenv("HOME", str(home))
    shop = open_workshop(tmp_path)
    for number, name in enumerate((".ssh/work", ".aws/credentials")):
        (shop.root / f"{number}.txt").hardlink_to(home / name)
        text = await shop.call("read_file", path=f"{number}.txt")
        assert text == f"Error: denied by rule: the file is also {home / name}"


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("allow shell cat *", "cat notes.txt"),
        ("allow shell tail *", "tail -n5 sub/../notes.txt"),
        ("allow shell sort *", "sort < notes.txt"),
        ("allow shell grep *", "grep -h P *.txt"),
        ("allow shell cp *", "cp notes.txt copy"),
        ("allow shell *", "python3 x.py notes.txt"),
    ],
)
async def test_no_command_reads_a_secret_by_another_name(
    tmp_path: Path, rule: str, line: str
) -> None:
    shop = open_workshop(tmp_path, mode=ApproveMode.ASK, rules=[rule])
    (shop.root / "sub").mkdir()
    (shop.root / ".env").write_text("PASSWORD=x\n")
    (shop.root / "notes.txt").hardlink_to(shop.root / ".env")
    text = await shop.call("execute_command", command=line)
    assert text == f"Error: denied by rule: the file is also {shop.root / '.env'}"


async def test_where_there_are_too_many_files_a_file_with_further_names_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shepherd.tools.permissions.links.MAX_ENTRIES", 2)
    shop = open_workshop(tmp_path, mode=ApproveMode.ASK, answers=[Choice.ONCE])
    (tmp_path / "elsewhere").write_text("x")
    (shop.root / "twin").hardlink_to(tmp_path / "elsewhere")
    for name in ("a", "b", "c"):
        (shop.root / name).write_text("x")
    assert await shop.call("read_file", path="a") == "x"
    assert shop.request_count == 0
    assert await shop.call("read_file", path="twin") == "x"
    assert "further names" in shop.approver.requests[0].cause
    assert "twin" not in await shop.call("grep", pattern="x")


async def test_writing_a_file_leaves_its_other_names_as_they_are(tmp_path: Path) -> None:
    shop = open_workshop(tmp_path)
    (shop.outside / "x").write_text("kept")
    (shop.root / "twin").hardlink_to(shop.outside / "x")
    await shop.call("write_file", path="twin", content="new")
    assert (shop.outside / "x").read_text() == "kept"


async def test_a_secret_that_a_rule_opens_by_name_is_open_by_its_other_name(tmp_path: Path) -> None:
    shop = open_workshop(tmp_path, rules=["allow read .env"])
    (shop.root / ".env").write_text("A=1\n")
    (shop.root / "twin").hardlink_to(shop.root / ".env")
    assert await shop.call("read_file", path="twin") == "A=1"


@pytest.mark.parametrize(
    "path",
    ["//../{outside}/x", "{outside}/../outside/x", "a/../../outside/x", "link/x",
     "link/../outside/x", "./link//x", "deep/link/x", "/proc/self/root{outside}/x",
     "{outside}/x/", "file-link", "loop/x"],
)  # fmt: skip
async def test_every_way_outside_is_seen_as_outside(tmp_path: Path, path: str) -> None:
    shop = asking(tmp_path, Choice.DENY)
    (shop.outside / "x").write_text("the secret")
    (shop.root / "a").mkdir()
    (shop.root / "deep").mkdir()
    (shop.root / "deep/link").symlink_to(shop.root / "link")
    (shop.root / "link").symlink_to(shop.outside)
    (shop.root / "file-link").symlink_to(shop.outside / "x")
    (shop.root / "loop").symlink_to("loop")
    text = await shop.call("read_file", path=path.replace("{outside}", str(shop.outside)))
    assert text.startswith("Error: ")
    assert "the secret" not in text
    targets = {request.accesses[0].target for request in shop.approver.requests}
    assert targets <= {str(shop.outside / "x")}


async def test_an_open_file_of_this_process_is_not_a_way_in(workshop: Workshop) -> None:
    (workshop.root / ".env").write_text("the secret")
    descriptor = os.open(workshop.root / ".env", os.O_RDONLY)
    reader, writer = os.pipe()
    try:
        for number in (descriptor, reader, writer):
            for place in ("/proc/self/fd", "/dev/fd", f"/proc/{os.getpid()}/fd"):
                text = await workshop.call("read_file", path=f"{place}/{number}")
                assert text.startswith("Error: ")
                assert "the secret" not in text
    finally:
        for number in (descriptor, reader, writer):
            os.close(number)


def test_a_link_on_the_way_is_never_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("x")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real/leaf").symlink_to("file")
    base = tmp_path.resolve()
    os.close(open_regular(base / "real/file"))
    for path in ("link/file", "real/leaf"):
        with pytest.raises(OSError, match="a link was put into the path"):
            open_regular(base / path)
    for path in ("link", "real/../real"):
        with pytest.raises(OSError, match=r"a link was put|not a resolved path"):
            open_directory(base / path)
    with pytest.raises(OSError, match="a link was put into the path"):
        open_directory(base / "link/new", create=True)
    assert not (base / "real/new").exists()


def test_a_file_in_a_directory_that_can_not_be_listed_is_read(tmp_path: Path) -> None:
    place = tmp_path.resolve() / "closed"
    place.mkdir()
    (place / "file").write_text("x")
    place.chmod(0o100)
    try:
        os.close(open_regular(place / "file"))
    finally:
        place.chmod(0o700)


def test_files_are_reached_only_as_decided(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "a").write_text("a")
    (root / "b").write_text("b")
    granted = frozenset({Access(AccessKind.READ, str(root / "a"))})
    files = FileAccess(ToolContext(root, root / "spill", grants=granted))
    with files.open(root / "a") as file:
        assert file.read() == b"a"
    for work in (
        lambda: files.open(root / "b").__enter__(),
        lambda: files.open_directory(root).__enter__(),
        lambda: files.write(root / "a", b"x"),
        lambda: files.delete(root / "a"),
        lambda: FileAccess(ToolContext(root, root)).open(root / "a").__enter__(),
    ):
        with pytest.raises(ToolError, match="changed since it was approved"):
            work()
    assert (root / "a").read_text() == "a"


BY_NAME = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "touch", "rename"),
    *("mkdir", "unlink", "rmdir", "remove", "replace", "listdir", "makedirs", "symlink"),
    *("link", "copy", "copyfile", "move", "rmtree", "exists", "is_file", "stat", "lstat"),
}
"""What reaches a file by its name."""


def test_no_tool_reaches_files_but_through_what_was_decided() -> None:
    package = Path(shepherd.tools.__file__).parent
    offences: list[str] = []
    for folder in ("files", "search", "web", "memory", "."):
        for path in sorted((package / folder).glob("*.py")):
            source = path.read_text()
            if "(Tool[" not in source and "(ReadFile)" not in source:
                continue
            calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)]
            offences += [f"{path.name}: {name}" for c in calls if (name := _by_name(c.func))]
    assert offences == []


def _by_name(called: ast.expr) -> str:
    """`os.open` and the like, and methods of paths; "" for what else is called."""
    if isinstance(called, ast.Name):
        return called.id if called.id == "open" else ""
    if not isinstance(called, ast.Attribute) or called.attr not in BY_NAME:
        return ""
    of = ast.unparse(called.value)
    is_text = called.attr == "replace" and of != "os"
    return "" if of in ("files", "FileAccess(context)") or is_text else f"{of}.{called.attr}"


async def test_names_with_line_ends_and_case_stay_themselves(tmp_path: Path) -> None:
    shop = open_workshop(tmp_path, registry=ToolRegistry([Grep()]))
    (shop.root / ".ENV").write_text("needle\n")
    (shop.root / "x\n.env").write_text("needle\n")
    (shop.root / "x\nsafe.txt").write_text("needle\n")
    (shop.root / "safe.txt").write_text("nothing\n")
    assert await shop.call("grep", pattern="needle") == "(no matches)"
