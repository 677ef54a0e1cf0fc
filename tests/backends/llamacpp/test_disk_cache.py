"""The third tier: what is written comes back, and only to whom it belongs."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from stat import S_IMODE
from time import monotonic, sleep, time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shepherd.backends.llamacpp.cache.disk_cache import MIN_TOKENS, DiskCache
from shepherd.backends.llamacpp.cache.disk_file import StateFolder, file_bytes
from shepherd.backends.llamacpp.cache.prefixes import Query, packed
from shepherd.backends.llamacpp.cache.sequence import StoredSequence
from shepherd.messages import Message
from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.rooms import (
    KINDS,
    START,
    TOLERANCE,
    Room,
    difference,
    memory_settings,
    opened,
)
from tests.backends.llamacpp.states import MINE, stored
from tests.backends.llamacpp.support import Recorder, ask, conversation, loaded
from tests.examples import examples
from tests.patience import PATIENCE

MIB = 1024 * 1024
LATER = 600.0
"""Seconds from now, which is later than any file that a test makes."""


def talk(number: int, length: int = 300) -> list[int]:
    """A prompt of several messages that no other number's begins like."""
    return [t for i in range(length // 30) for t in (START, 20 + number, *range(20, 47), 50 + i)]


@dataclass
class Places:
    """Where the models of each kind are, and the settings that they need."""

    models: Callable[[str], Path]
    cache: Path

    def open(self, kind: str, sequences: int = 2, **values: object) -> AbstractContextManager[Room]:
        own = {"host": 0, "cache": self.cache, "context_size": 1024, **memory_settings(kind)}
        return opened(self.models(kind.split()[0]), sequences, **{**own, **values})


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    return Places(request.getfixturevalue, tmp_path / "conversations")


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_restart_conversations_go_on_where_they_were(kind: str, places: Places) -> None:
    first, second = talk(0), talk(1)
    with places.open(kind) as room:
        room.finish(first)
        room.finish(second)
        room.pool.save_all()
    with places.open(kind, cache=None) as cold, places.open(kind) as room:
        for prompt in ([*first, START, 21, 22], [*second, START, 23]):
            logits, cached = room.finish(prompt)
            assert cached == len(first)
            room.check()
            assert difference(logits, cold.fresh(prompt)) < TOLERANCE
        fork = [*first[:271], 40, 41, 42]
        logits, cached = room.finish(fork)
        assert difference(logits, cold.fresh(fork)) < TOLERANCE
        assert cached == (271 if kind in ("llama", "moe") else 270)
        memory, _, disk = room.pool.tiers
    assert (disk.name, disk.hits, disk.tokens, disk.entries) == ("disk", 2, 2 * len(first), 2)
    assert memory.hits == 1
    with places.open(kind) as room:
        files = list(places.cache.glob("*.state"))
        disk = room.pool.tiers[2]
        assert (disk.entries, disk.bytes) == (len(files), sum(f.stat().st_size for f in files))


@pytest.mark.parametrize("kind", KINDS)
def test_a_beginning_comes_from_disk_as_far_as_it_is_the_same(kind: str, places: Places) -> None:
    """Where a window or a state is all that is there, from the checkpoint before."""
    prompt = talk(0)
    with places.open(kind) as room:
        room.finish(prompt)
        room.pool.save_all()
    fork = [*prompt[:275], 40, 41, 42]
    with places.open(kind, cache=None) as cold, places.open(kind) as room:
        logits, cached = room.finish(fork)
        assert difference(logits, cold.fresh(fork)) < TOLERANCE
        assert cached == (275 if kind in ("llama", "moe") else 270)


def _wait_for_files(cache: Path, count: int) -> None:
    deadline = monotonic() + PATIENCE
    while len(list(cache.glob("*.state"))) < count:
        assert monotonic() < deadline, "nothing was written"
        sleep(0.005)


def test_what_loses_its_place_is_written_by_a_thread_of_its_own(places: Places) -> None:
    with places.open("llama", 1) as room:
        for number in range(4):
            room.finish(talk(number))
        _wait_for_files(places.cache, 3)
        assert room.finish([*talk(0), 30])[1] == len(talk(0))
        assert room.pool.counts.hits["disk"] == 1
        assert room.pool.counts.swap_out >= 3
        room.pool.save_all()
    assert len(list(places.cache.glob("*.state"))) == 4


def test_of_two_that_begin_alike_the_longer_one_is_kept(places: Places) -> None:
    with places.open("llama") as room:
        room.finish(talk(0))
        room.pool.save_all()
        room.finish([*talk(0), START, 30, 31])
        room.pool.save_all()
        room.pool.save_all()
    assert len(list(places.cache.glob("*.state"))) == 1
    with places.open("llama") as room:
        assert room.finish([*talk(0), START, 30, 31, 32])[1] == len(talk(0)) + 3


def test_short_prompts_are_not_worth_a_file(places: Places) -> None:
    with places.open("llama") as room:
        room.finish(talk(0)[: MIN_TOKENS - 1])
        room.pool.save_all()
    assert not places.cache.exists()


def test_only_the_user_can_read_what_is_saved(places: Places) -> None:
    places.cache.mkdir(mode=0o755)
    with places.open("llama") as room:
        room.finish(talk(0))
        room.pool.save_all()
    assert S_IMODE(places.cache.stat().st_mode) == 0o700
    files = list(places.cache.iterdir())
    assert len(files) == 2
    assert {S_IMODE(file.stat().st_mode) for file in files} == {0o600}


@pytest.mark.parametrize("values", [{"cache_type_k": "f16"}, {"context_size": 2048}])
def test_other_settings_have_other_files(values: dict[str, Any], places: Places) -> None:
    for own in ({}, values):
        with places.open("llama", **own) as room:
            assert room.finish(talk(0))[1] == 0
            room.pool.save_all()
    for own in ({}, values):
        with places.open("llama", **own) as room:
            assert room.finish(talk(0))[1] > 0


def test_another_model_in_the_same_place_drops_what_the_first_one_left(tmp_path: Path) -> None:
    cache, path = tmp_path / "cache", tiny.write_llama(tmp_path / "model.gguf")
    for seed in (0, 1):
        tiny.write_llama(path, seed=seed)
        with opened(path, cache=cache) as room:
            assert room.finish(talk(0))[1] == 0
            assert room.pool.tiers[2].entries == 0
            room.pool.save_all()
        assert len(list(cache.glob("*.state"))) == 1


@pytest.mark.parametrize("damage", ["cut", "head", "tokens", "state", "empty", "foreign"])
def test_a_damaged_file_is_removed_with_a_warning(
    damage: str, places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    with places.open("llama") as room:
        room.finish(talk(0))
        room.pool.save_all()
    (file,) = places.cache.glob("*.state")
    data = bytearray(file.read_bytes())
    match damage:
        case "cut":
            del data[-100:]
        case "empty":
            data.clear()
        case "foreign":
            data[:] = b"something else" * 1000
        case _:
            data[{"head": 45, "tokens": 200, "state": -1000}[damage]] ^= 1
    file.write_bytes(data)
    with caplog.at_level(logging.WARNING), places.open("llama") as room:
        assert room.finish(talk(0))[1] == 0
    assert not file.exists()
    assert "removed" in caplog.text


def test_a_state_that_llama_cpp_refuses_is_given_up(places: Places) -> None:
    """The file is whole, but nothing that can be restored, even with all memory free."""
    with places.open("llama") as room:
        disk = room.pool.disk
        assert disk is not None
        disk.save(StoredSequence(packed(talk(0)), bytearray(64)))
        assert len(list(places.cache.glob("*.state"))) == 1
        assert room.finish(talk(0))[1] == 0
        assert not list(places.cache.glob("*.state"))
        room.pool.host.capacity = MIB
        room.pool.host.put(StoredSequence(packed(talk(1)), bytearray(64)))
        for sequence in room.pool.sequences:
            room.pool.mirror.clear(sequence)
        assert room.finish(talk(1))[1] == 0
        assert len(room.pool.host) == 0


@hypothesis_settings(max_examples=examples(30), deadline=None)
@given(
    entries=st.lists(
        st.tuples(st.integers(0, 9), st.integers(MIN_TOKENS, 400), st.integers(1, 20_000)),
        max_size=12,
    ),
    data=st.data(),
)
def test_the_cap_holds_and_the_latest_stay(
    entries: list[tuple[int, int, int]],
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("cap") / "cache"
    capacity = 50_000
    cache = DiskCache(StateFolder(folder, capacity), MINE)
    for at, (number, length, size) in enumerate(entries):
        used = data.draw(st.sampled_from([time() + LATER + at, 500.0]))
        entry = stored(number, length, size, used)
        cache.save(entry)
        total = sum(f.stat().st_size for f in folder.glob("*.state")) if folder.exists() else 0
        assert total <= capacity
        prompt = packed([*entry.tokens, 11])
        found, known = cache.find(Query(packed(prompt)), rolls_back=True)
        if used > 500.0:
            assert found is not None
            assert known >= length
        if found is not None:
            again = cache.load(found)
            assert again is not None
            assert again.tokens == found.tokens
            assert again.checkpoints.lengths == found.lengths
            assert file_bytes(again) == found.path.stat().st_size


@hypothesis_settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_no_flipped_bit_gives_another_state(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What is loaded is what was saved, or nothing."""
    folder = tmp_path_factory.mktemp("flipped") / "cache"
    entry = stored(3, 300, data.draw(st.integers(1, 3000)), 1.0)
    DiskCache(StateFolder(folder, MIB), MINE).save(entry)
    (path,) = folder.glob("*.state")
    content = bytearray(path.read_bytes())
    flips = st.integers(0, 8 * len(content) - 1)
    for bit in data.draw(st.sets(flips, min_size=1, max_size=20)):
        content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    cache = DiskCache(StateFolder(folder, MIB), MINE)
    found, length = cache.find(Query(packed([*entry.tokens, 11])), rolls_back=True)
    assert found is None or length <= 300
    again = cache.load(found) if found is not None else None
    assert again is None
    assert not path.exists()


WRITER = """
import sys
from pathlib import Path
from shepherd.backends.llamacpp.cache.disk_cache import DiskCache
from shepherd.backends.llamacpp.cache.disk_file import StateFolder
from tests.backends.llamacpp.states import MINE, stored
folder, number = Path(sys.argv[1]), int(sys.argv[2])
cache = DiskCache(StateFolder(folder, 200_000), MINE)
for i in range(30):
    cache.save(stored(number, 256 + i, 20_000 + i, 1000.0 * number + i))
    total = sum(f.bytes for f in cache._folder.files())
    assert total <= 200_000, total
"""


def test_several_processes_share_the_folder_and_its_cap(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(n)]) for n in range(3)
    ]
    assert [writer.wait(3 * PATIENCE) for writer in writers] == [0, 0, 0]
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 200_000
    cache = DiskCache(StateFolder(folder, 200_000), MINE)
    assert len(cache) > 0
    assert all(cache.load(saved) is not None for saved in cache.entries)


def test_what_another_process_saves_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    one, other = (DiskCache(StateFolder(folder, MIB), MINE) for _ in range(2))
    entry = stored(7, 300, 1000, 1.0)
    one.save(entry)
    found, length = other.find(Query(packed([7] * 400)), rolls_back=True)
    assert found is not None
    assert length == 300
    found.path.unlink()
    assert other.load(found) is None
    assert other.find(Query(packed([7] * 400)), rolls_back=True) == (None, 0)


def test_what_a_dead_process_began_is_swept(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "cache", MIB)
    DiskCache(folder, MINE).save(stored(1, 300, 10, 1.0))
    left = folder.path / "left.unfinished"
    left.write_bytes(b"x")
    DiskCache(folder, MINE).save(stored(2, 300, 10, 1.0))
    assert not left.exists()


def test_a_folder_that_can_not_be_used_is_only_a_warning(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    places.cache.write_text("a file")
    with caplog.at_level(logging.WARNING), places.open("llama") as room:
        room.finish(talk(0))
        room.pool.save_all()
    assert "not saved" in caplog.text
    target = places.cache.with_name("elsewhere")
    target.mkdir()
    places.cache.unlink()
    places.cache.symlink_to(target)
    with pytest.raises(PermissionError):
        StateFolder(places.cache, MIB)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_disk_that_refuses_is_only_a_warning(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    places.cache.mkdir(mode=0o500)
    with caplog.at_level(logging.WARNING), places.open("llama") as room:
        room.finish(talk(0))
        places.cache.chmod(0o500)
        room.pool.save_all()
    assert "could not be saved" in caplog.text


async def test_a_backend_that_is_opened_again_goes_on_warm(tmp_path: Path) -> None:
    session, prompt = conversation(), "Hello there. " * 60
    async with loaded(cache=tmp_path / "cache") as backend:
        await ask(backend, session, prompt, max_tokens=20)
    async with loaded(cache=tmp_path / "cache") as backend:
        session.messages.clear()
        session.add(Message.user(prompt))
        generation = await backend.generate_from_session(session, Recorder(), 5)
        assert [tier.hits for tier in backend.status.cache_tiers] == [0, 0, 1]
    stats = generation.stats
    assert stats.restored_tokens == stats.cached_tokens == stats.prompt_tokens - 1
