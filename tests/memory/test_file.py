"""The file: private, shared by processes, and no reason to fail."""

import asyncio
import sqlite3
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from shepherd.errors import MemoryStoreError
from tests.memory.stores import content, opened, said, texts


async def test_only_its_user_can_read_it(path: Path) -> None:
    async with opened(path) as memory:
        assert content(path) == b""
        memory.keep([said("secret")])
        await memory.counts()
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def overwrite(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def damage_header(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)


def damage_pages(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:100] + Random(1).randbytes(len(data) - 100))


@pytest.mark.parametrize("damage", [damage_header, damage_pages])
async def test_a_damaged_file_is_moved_aside(path: Path, damage: Callable[[Path], None]) -> None:
    async with opened(path) as memory:
        memory.keep([said("old")])
    damage(path)
    broken = content(path)
    warnings: list[str] = []
    async with opened(path, warnings.append) as memory:
        memory.keep([said("new")])
        assert await texts(memory, "new") == ["new"]
        assert await texts(memory, "old") == []
    assert len(warnings) == 1
    (aside,) = path.parent.glob("memory.db.damaged-*")
    assert str(aside) in warnings[0]
    assert content(aside) == broken


async def test_what_is_damaged_again_at_once_is_kept_too(path: Path) -> None:
    warnings: list[str] = []
    for text in ("one", "two"):
        async with opened(path, warnings.append) as memory:
            memory.keep([said(text)])
        overwrite(path, text.encode() * 1000)
    async with opened(path, warnings.append) as memory:
        await memory.counts()
    aside = sorted(content(file)[:3] for file in path.parent.glob("memory.db.damaged-*"))
    assert aside == [b"one", b"two"]
    assert len(warnings) == 2


async def test_damage_while_it_is_open_costs_no_more(path: Path) -> None:
    warnings: list[str] = []
    async with opened(path, warnings.append) as first, opened(path, warnings.append) as second:
        for memory in (first, second):
            memory.keep([said("old")])
            await memory.counts()
        for file in (path, path.with_name("memory.db-wal")):
            file.write_bytes(b"\xff" * len(file.read_bytes()))
        first.keep([said("new")])
        assert await texts(first, "new") == ["new"]  # it was not the last to write, so it looks
        second.keep([said("new")])
        assert await texts(second, "new") == ["new"]
        assert (await first.counts()).messages == 2
    assert len(warnings) == 1


async def test_a_deleted_file_begins_afresh(path: Path) -> None:
    async with opened(path) as memory:
        memory.keep([said("old")])
        await memory.counts()
        for file in path.parent.iterdir():
            file.unlink()
        memory.keep([said("new")])
        assert await texts(memory, "new") == ["new"]
        assert await texts(memory, "old") == []


async def test_a_store_that_can_not_be_written_is_warned_of_once(path: Path) -> None:
    path.parent.parent.joinpath("state").write_text("in the way")
    warnings: list[str] = []
    async with opened(path, warnings.append) as memory:
        assert memory.works
        for _ in range(3):
            memory.keep([said("lost")])
        with pytest.raises(MemoryStoreError, match="state"):
            await texts(memory, "lost")
        assert not memory.works
        path.parent.unlink()
        memory.keep([said("kept")])
        assert await texts(memory, "kept") == ["kept"]
        assert memory.works
    assert len(warnings) == 1
    assert "not kept" in warnings[0]


async def test_a_newer_file_is_left_alone(path: Path) -> None:
    async with opened(path) as memory:
        memory.keep([said("old")])
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = content(path)
    async with opened(path) as memory:
        with pytest.raises(MemoryStoreError, match="newer Shepherd"):
            await memory.counts()
    assert content(path) == before


async def test_the_index_catches_up_with_what_was_written_without_it(path: Path) -> None:
    async with opened(path) as memory:
        memory.keep([said("first walks")])
    async with opened(path, lambda text: None, full_text=False) as memory:
        memory.keep([said("second walked")])
    async with opened(path) as memory:
        assert sorted(await texts(memory, "walking")) == ["first walks", "second walked"]


WRITER = """
import asyncio, sys
from pathlib import Path
from tests.memory.stores import opened, said
async def write():
    async with opened(Path(sys.argv[1])) as memory:
        for number in range(100):
            memory.keep([said(f"w{sys.argv[2]}n{number}"), said("reply", session=sys.argv[2])])
            await memory.set_fact("", f"{sys.argv[2]}{number}", "x")
asyncio.run(write())
"""


async def test_a_writer_waits_for_another_without_holding_up_the_loop(path: Path) -> None:
    async with opened(path) as memory:
        await memory.counts()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        memory.keep([said("patient")])
        waiting = asyncio.create_task(memory.counts())
        await asyncio.sleep(0.2)
        assert not waiting.done()
        other.execute("ROLLBACK")
        other.close()
        assert (await waiting).messages == 1


async def test_several_processes_write_at_once(path: Path) -> None:
    root = Path(__file__).parents[2]
    command = (sys.executable, "-c", WRITER, str(path))
    writers = [
        await asyncio.create_subprocess_exec(*command, str(number), cwd=root) for number in range(3)
    ]
    assert [await writer.wait() for writer in writers] == [0, 0, 0]
    async with opened(path) as memory:
        counts = await memory.counts()
        assert (counts.messages, counts.facts, counts.sessions) == (600, 300, 4)
        for number in range(3):
            assert await texts(memory, f"w{number}n57") == [f"w{number}n57"]
