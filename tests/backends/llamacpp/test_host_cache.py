"""The second tier's book-keeping, and how big it may be."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.llamacpp.cache.disk_cache import MAX_MEMORY_BYTES, cache_capacity
from shepherd.backends.llamacpp.cache.prefixes import Query, packed
from shepherd.backends.llamacpp.cache.sequence import CachedSequence, HostCache, StoredSequence
from shepherd.backends.llamacpp.native.devices import available_memory
from tests.backends.llamacpp.support import settings

MIB = 1024 * 1024
TOKENS = st.lists(st.integers(0, 2), max_size=12)


@given(stored=st.lists(st.tuples(TOKENS, st.integers(0, 900)), max_size=12), prompt=TOKENS)
def test_the_cap_holds_and_the_longest_match_is_found(
    stored: list[tuple[list[int], int]], prompt: list[int]
) -> None:
    cache = HostCache(2000)
    for tokens, size in stored:
        cache.put(StoredSequence(packed(tokens), bytearray(size)))
        assert cache.bytes <= cache.capacity
    entry, length = cache.find(Query(packed(prompt)), rolls_back=True)
    if entry is not None:
        assert list(entry.tokens[:length]) == prompt[:length]
        assert 0 < length < len(prompt)
        assert not cache.wants(CachedSequence(0, list(entry.tokens)), 1)


def test_the_one_unused_for_longest_goes_and_a_longer_one_replaces_its_beginning() -> None:
    cache = HostCache(3000)
    a, b = (
        StoredSequence(packed([1, 1]), bytearray(1000)),
        StoredSequence(packed([2, 2]), bytearray(1000)),
    )
    cache.put(a)
    cache.put(b)
    cache.touch(a)
    cache.put(StoredSequence(packed([3]), bytearray(1000)))
    assert cache.find(Query(packed([1, 1, 5])), rolls_back=True) == (a, 2)
    assert cache.find(Query(packed([2, 2, 5])), rolls_back=True) == (None, 0)
    longer = StoredSequence(packed([1, 1, 4]), bytearray(1000))
    cache.put(longer)
    assert cache.find(Query(packed([1, 1, 5])), rolls_back=True) == (longer, 2)
    assert len(cache) == 2
    assert not cache.wants(CachedSequence(0, [5]), 3000)


def test_the_cap_is_set_or_a_share_of_what_is_free(tmp_path: Path) -> None:
    assert cache_capacity(settings(cache_ram_mib=0)) == 0
    assert cache_capacity(settings(cache_ram_mib=7)) == 7 * MIB
    assert 0 < cache_capacity(settings()) <= MAX_MEMORY_BYTES
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:    2048 kB\n")
    assert available_memory(meminfo, tmp_path) == 2 * MIB
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert available_memory(meminfo, tmp_path) == 2 * MIB
    (tmp_path / "memory.max").write_text("5000\n")
    assert available_memory(meminfo, tmp_path) == 4000
    assert available_memory(tmp_path / "none", tmp_path) == 4000
    (tmp_path / "memory.stat").write_text("anon 300\ninactive_file 600\n")
    assert available_memory(meminfo, tmp_path) == 4600  # the system drops files when it must
