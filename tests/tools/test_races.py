"""What was decided on is what is opened, though names change places while a tool works."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode
from tests.examples import examples
from tests.tools.flipping import flipping
from tests.tools.workshop import Workshop, open_workshop

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="names are exchanged by renameat2"),
    pytest.mark.long,
]

MIN_FLIPS = examples(4_000)
MIN_CALLS = examples(60)
SECRET = "the outer secret"
HARMLESS = "the inner text"
ALLOWED = ["allow write {cwd}/**", "allow read {cwd}/**"]


def prepare(workshop: Workshop) -> None:
    """`inner` is a directory and `outer` a link that leads out; so are `inner.txt`, `outer.txt`."""
    (workshop.root / "inner").mkdir()
    (workshop.root / "outer").symlink_to(workshop.outside)
    for place, text in (
        (workshop.root / "inner", HARMLESS),
        (workshop.root / "inner/deeper", HARMLESS),
        (workshop.outside, SECRET),
        (workshop.outside / "deeper", SECRET),
    ):
        place.mkdir(exist_ok=True)
        (place / "a.txt").write_text(f"one\n{text}\n")
        (place / "deeper").mkdir(exist_ok=True)
    (workshop.outside / "secret-name").touch()
    (workshop.outside / "deeper/secret-name").touch()
    (workshop.root / "inner.txt").write_text(f"one\n{HARMLESS}\n")
    (workshop.root / "outer.txt").symlink_to(workshop.outside / "a.txt")


def shop(base: Path) -> Workshop:
    workshop = open_workshop(base, mode=ApproveMode.ASK, rules=ALLOWED)
    prepare(workshop)
    return workshop


def state(root: Path) -> dict[str, str]:
    """Every name below `root`, with the text of files."""
    files = sorted(root.rglob("*"))
    return {str(p.relative_to(root)): p.read_text() if p.is_file() else "" for p in files}


async def attack(workshop: Workshop, leaf: str, call: Callable[[], Awaitable[str]]) -> list[str]:
    """The results of calls made while directories, or else files, change places.

    The last one is made after they have stopped, with everything where it belongs.
    """
    before = await asyncio.to_thread(state, workshop.outside)
    results: list[str] = []
    first, second = workshop.root / f"inner{leaf}", workshop.root / f"outer{leaf}"
    with flipping(first, second) as flips:
        while flips.count < MIN_FLIPS or len(results) < MIN_CALLS:
            results.append(await call())
    if first.is_symlink():
        first.rename(spare := workshop.root / "spare")
        second.rename(first)
        spare.rename(second)
    results.append(await call())
    assert await asyncio.to_thread(state, workshop.outside) == before
    for text in results:
        assert SECRET not in text
        assert "secret-name" not in text
    return results


READS = [
    ("read_file", {"path": "inner/a.txt"}, ""),
    ("read_file", {"path": "inner/deeper/a.txt"}, ""),
    ("read_file", {"path": "inner.txt"}, ".txt"),
    ("list_directory", {"path": "inner"}, ""),
    ("list_directory", {"path": "inner/deeper"}, ""),
    ("glob", {"pattern": "**/*.txt"}, ""),
    ("glob", {"pattern": "**/*", "path": "inner"}, ""),
    ("glob", {"pattern": "inner/**/secret*"}, ""),
]


@pytest.mark.parametrize(("name", "arguments", "leaf"), READS)
async def test_nothing_outside_is_read(
    tmp_path: Path, name: str, arguments: dict[str, str], leaf: str
) -> None:
    workshop = shop(tmp_path)
    results = await attack(workshop, leaf, lambda: workshop.call(name, **arguments))
    assert not results[-1].startswith("Error")


@pytest.mark.parametrize(
    ("path", "leaf"), [(".", ""), ("inner", ""), ("inner/deeper", ""), ("inner.txt", ".txt")]
)
async def test_nothing_outside_is_searched(tmp_path: Path, path: str, leaf: str) -> None:
    workshop = shop(tmp_path)
    results = await attack(workshop, leaf, lambda: workshop.call("grep", pattern="t", path=path))
    assert HARMLESS in results[-1]


@pytest.mark.parametrize(
    ("path", "leaf"),
    [
        ("inner/a.txt", ""),
        ("inner/deeper/a.txt", ""),
        ("inner/new/b.txt", ""),
        ("inner.txt", ".txt"),
    ],
)
async def test_nothing_outside_is_written(tmp_path: Path, path: str, leaf: str) -> None:
    workshop = shop(tmp_path)
    results = await attack(
        workshop, leaf, lambda: workshop.call("write_file", path=path, content=HARMLESS)
    )
    assert results[-1].startswith("Wrote")


@pytest.mark.parametrize(("path", "leaf"), [("inner/a.txt", ""), ("inner.txt", ".txt")])
async def test_nothing_outside_is_edited(tmp_path: Path, path: str, leaf: str) -> None:
    workshop = shop(tmp_path)

    async def edit() -> str:
        result = await workshop.result("edit_file", path=path, old_string="one", new_string="one+")
        return result.content + result.display

    results = await attack(workshop, leaf, edit)
    assert results[-1].startswith("Edited")


async def test_nothing_outside_is_deleted(tmp_path: Path) -> None:
    workshop = shop(tmp_path)
    inner = os.open(workshop.root / "inner", os.O_RDONLY)

    async def delete() -> str:
        os.close(os.open("a.txt", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
        return await workshop.call("delete_file", path="inner/a.txt")

    try:
        results = await attack(workshop, "", delete)
    finally:
        os.close(inner)
    assert results[-1].startswith("Deleted")
