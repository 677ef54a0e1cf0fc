"""The memory's tools, through the runner."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode
from shepherd.memory.memory import Memory
from shepherd.memory.store import ArchivedMessage, Place
from shepherd.messages import Role
from shepherd.tools.memory import memory_tools
from shepherd.tools.registry import ToolRegistry
from tests.tools.workshop import Workshop, open_workshop

HERE, THERE = Place("/work/here", "/work/here"), Place("/work/there", "/work/there")


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncGenerator[Memory]:
    memory = Memory(tmp_path / "memory.db", lambda text: None)
    yield memory
    await memory.aclose()


def workshop_at(place: Place, tmp_path: Path, memory: Memory) -> Workshop:
    registry = ToolRegistry(memory_tools(memory, place))
    return open_workshop(tmp_path, mode=ApproveMode.ASK, registry=registry)


@pytest.fixture
def here(tmp_path: Path, memory: Memory) -> Workshop:
    return workshop_at(HERE, tmp_path, memory)


@pytest.fixture
def there(tmp_path: Path, memory: Memory) -> Workshop:
    return workshop_at(THERE, tmp_path, memory)


async def test_messages_and_facts_are_found_with_time_and_role(
    here: Workshop, there: Workshop, memory: Memory
) -> None:
    assert await here.call("search_memory", query="heron") == "(no matches)"
    noon = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
    local = noon.astimezone().strftime("%Y-%m-%d %H:%M")
    memory.keep(
        [
            ArchivedMessage("s", HERE, noon, Role.USER, "", "The heron nests in staging."),
            ArchivedMessage("s", HERE, noon, Role.TOOL, "grep", "a.txt:1: heron"),
        ]
    )
    await here.call("set_fact", key="bird", value="a heron")
    lines = (await here.call("search_memory", query="heron")).splitlines()
    assert lines[0] == "[fact] bird: a heron"
    assert sorted(lines[1:]) == [
        f"[{local} grep] a.txt:1: heron",
        f"[{local} user] The heron nests in staging.",
    ]
    assert f"[{local} user in /work/here]" in await there.call("search_memory", query="heron")
    assert len((await here.call("search_memory", query="heron", limit=1)).splitlines()) == 2
    assert here.request_count == 0


async def test_facts_belong_to_a_project_or_to_all(here: Workshop, there: Workshop) -> None:
    assert await here.call("get_fact") == "(no facts)"
    assert await here.call("set_fact", key=" build ", value="make\nall") == "Remembered build"
    await here.call("set_fact", key="name", value="Ada", everywhere=True)
    assert await here.call("get_fact") == "build: make all\nname: Ada"
    assert await here.call("get_fact", key="build") == "make\nall"
    assert await there.call("get_fact") == "name: Ada"
    assert await there.call("clear_fact", key="name") == "Forgot name"
    assert await here.call("get_fact", key=None) == "build: make all"
    for tool in ("get_fact", "clear_fact"):
        text = await here.call(tool, key="name")
        assert text == "Error: no fact name; get_fact without key lists all"


@pytest.mark.parametrize("key", ["", "  ", "x" * 201])
async def test_a_key_is_a_short_text(here: Workshop, key: str) -> None:
    assert "bad arguments" in await here.call("set_fact", key=key, value="x")
    assert await here.call("get_fact") == "(no facts)"


async def test_the_model_is_told_when_the_memory_can_not_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    memory = Memory(tmp_path / "file" / "memory.db", lambda text: None)
    shop = workshop_at(HERE, tmp_path, memory)
    for tool, arguments in (
        ("search_memory", {"query": "x"}),
        ("set_fact", {"key": "a", "value": "b"}),
    ):
        assert (await shop.call(tool, **arguments)).startswith(f"Error: {memory.path}: ")
    await memory.aclose()
