"""The store: what goes in is found again, by its words and in a sensible order."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shepherd.errors import MemoryStoreError
from shepherd.memory.store import MAX_FACTS
from tests.examples import examples
from tests.memory.stores import HERE, NOW, THERE, content, fail, opened, said, texts

UNIQUE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=examples(25),
)


@pytest.mark.parametrize("full_text", [True, False])
async def test_what_is_kept_is_found_again_later_and_in_order(
    path: Path, *, full_text: bool
) -> None:
    warnings: list[str] = []
    warn = fail if full_text else warnings.append
    async with opened(path, warn, full_text=full_text) as memory:
        memory.keep([said("the staging database is heron-7"), said("noted")])
        assert await texts(memory, "which Staging-Database?") == ["the staging database is heron-7"]
    async with opened(path, warn, full_text=full_text) as memory:
        assert await texts(memory, "heron") == ["the staging database is heron-7"]
        assert await texts(memory, "penguin") == []
    assert [("FTS5" in text) for text in warnings] == ([] if full_text else [True, True])


@UNIQUE
@given(bodies=st.lists(st.text(max_size=40), min_size=1, max_size=5), full_text=st.booleans())
def test_every_distinctive_word_leads_back(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[str], *, full_text: bool
) -> None:
    async def check() -> None:
        path = tmp_path_factory.mktemp("memory") / "memory.db"
        marked = [f"{body} mark{number}er {body}" for number, body in enumerate(bodies)]
        safe = [text.encode("utf-8", "replace").decode().replace("\0", "") for text in marked]
        async with opened(path, lambda text: None, full_text=full_text) as memory:
            memory.keep([said(text) for text in safe])
            for number, text in enumerate(safe):
                assert await texts(memory, f"mark{number}er") == [text]

    asyncio.run(check())


@UNIQUE
@given(st.text() | st.text(alphabet="\"'*^():-+{}ANDORNEAR _a\\%", max_size=60))
def test_no_query_is_an_error(tmp_path_factory: pytest.TempPathFactory, query: str) -> None:
    async def check() -> None:
        path = tmp_path_factory.getbasetemp() / "queries.db"
        async with opened(path) as memory:
            memory.keep([said("NEAR AND far OR a")])
            await texts(memory, query)

    asyncio.run(check())


async def test_parts_of_words_and_scripts_without_spaces_are_found(path: Path) -> None:
    async with opened(path) as memory:
        memory.keep([said("数据库的密码是苍鹭"), said("ticket AB4711X is open"), said("100% _x_")])
        assert await texts(memory, "密码") == ["数据库的密码是苍鹭"]
        assert await texts(memory, "4711") == ["ticket AB4711X is open"]
        assert await texts(memory, "%") == []


async def test_this_project_goes_first_then_words_and_age(path: Path) -> None:
    month = timedelta(days=60)
    async with opened(path) as memory:
        memory.keep([said("the key lies under the mat, elsewhere", THERE)])
        memory.keep([said("the key lies under the old mat", age=month)])
        memory.keep([said("the key lies under the new mat")])
        memory.keep([said("the key and nothing about where")])
        memory.keep([said("the key lies under the new mat")])
        assert await texts(memory, "key mat") == [
            "the key lies under the new mat",
            "the key lies under the old mat",
            "the key lies under the mat, elsewhere",
        ]
        matches = await memory.search("key mat", HERE.project, 50)
        assert [f.directory for f in matches] == ["", "", "/work/there"]
        assert [f.said for f in matches] == [NOW, NOW - month, NOW]
        assert len(await texts(memory, "key mat", limit=2)) == 2
        assert await texts(memory, "nothing mat") != []


async def test_a_long_message_is_found_by_its_middle(path: Path) -> None:
    async with opened(path) as memory:
        memory.keep([said(f"{'alpha ' * 3000} the heron {'omega ' * 3000}")])
        (text,) = await texts(memory, "heron")
        assert "the heron" in text
        assert len(text) < 1000
        (text,) = await texts(memory, "hero")
        assert "the heron" in text


async def test_beyond_its_size_the_oldest_go(path: Path) -> None:
    async with opened(path, max_bytes=10_000) as memory:
        for number in range(100):
            memory.keep([said(f"number{number:03} {'x' * 990}")])
        counts = await memory.counts()
        assert 8_000 < counts.text_bytes <= 10_000
        assert await texts(memory, "number099") != []
        assert await texts(memory, "number080") == []
        kept = [n for n in range(100) if await texts(memory, f"number{n:03}")]
        assert kept == list(range(100 - counts.messages, 100))


async def test_facts_of_a_project_and_of_all(path: Path) -> None:
    async with opened(path) as memory:
        await memory.set_fact("", "name", "Ada")
        await memory.set_fact("", "build", "make")
        await memory.set_fact("/work/here", "build", "ninja")
        await memory.set_fact("/work/here", "build", "meson")
        here = await memory.facts("/work/here")
        assert [(f.key, f.value, f.everywhere) for f in here] == [
            ("build", "meson", False),
            ("name", "Ada", True),
        ]
        assert [f.value for f in await memory.facts("/work/there")] == ["make", "Ada"]
        cleared = [await memory.clear_fact("/work/here", "build") for _ in range(3)]
        assert cleared == [True, True, False]


async def test_facts_are_limited_and_everything_can_be_cleared(path: Path) -> None:
    async with opened(path) as memory:
        for number in range(MAX_FACTS):
            await memory.set_fact("/p", str(number), "x")
        with pytest.raises(MemoryStoreError, match="clear one"):
            await memory.set_fact("/p", "one more", "x")
        assert len(await memory.facts("/p")) == MAX_FACTS
        memory.keep([said("a unique flamingo")])
        await memory.clear()
        counts = await memory.counts()
        assert (counts.messages, counts.facts, counts.oldest) == (0, 0, None)
        assert await texts(memory, "flamingo") == []
        memory.keep([said("a second flamingo")])
        assert await texts(memory, "flamingo") == ["a second flamingo"]
    assert b"unique" not in content(path)
