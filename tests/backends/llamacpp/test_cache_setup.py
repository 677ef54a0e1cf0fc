"""How big the disk's tier is, and what its files belong to."""

import os
from pathlib import Path

import pytest

from shepherd.backends.llamacpp.cache import disk_file
from shepherd.backends.llamacpp.cache.disk_cache import (
    MAX_DISK_BYTES,
    disk_capacity,
    fingerprint,
    open_disk_cache,
)
from shepherd.backends.llamacpp.native.params import ModelTraits, context_params
from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.support import settings

MIB = 1024 * 1024
TRAITS = ModelTraits(MIB, heads=2, window=0, trained_context=512)


def test_the_cap_is_set_or_a_share_of_what_is_free(tmp_path: Path) -> None:
    there, not_yet = tmp_path, tmp_path / "a" / "b"
    assert disk_capacity(settings(cache_disk_mib=7), not_yet) == 7 * MIB
    for folder in (there, not_yet):
        assert 0 < disk_capacity(settings(), folder) <= MAX_DISK_BYTES


def test_the_cache_is_off_without_a_folder_or_room(tmp_path: Path, llama: Path) -> None:
    params = context_params(settings(), 1, TRAITS)
    assert open_disk_cache(None, settings(), llama, params) is None
    assert open_disk_cache(tmp_path, settings(cache_disk_mib=0), llama, params) is None
    assert open_disk_cache(tmp_path, settings(), llama, params) is not None
    assert open_disk_cache(tmp_path, settings(), tmp_path / "no model", params) is None


@pytest.mark.parametrize(
    "values",
    [
        {"context_size": 1024},
        {"cache_type_k": "q8_0"},
        {"cache_type_v": "f32"},
        {"flash_attention": "on"},
        {"swa_full": False},
    ],
)
def test_what_changes_a_states_meaning_changes_its_context(
    values: dict[str, object], llama: Path
) -> None:
    plain = fingerprint(llama, context_params(settings(), 1, TRAITS))
    other = fingerprint(llama, context_params(settings(**values), 1, TRAITS))
    assert (plain.place, plain.origin) == (other.place, other.origin)
    assert plain.context != other.context
    assert plain.digest != other.digest
    assert not plain.is_outdated(f"{other.prefix}x.state")


@pytest.mark.parametrize("values", [{"threads": 2}, {"n_batch": 64}, {"cache_ram_mib": 5}])
def test_what_does_not_keeps_it(values: dict[str, object], llama: Path) -> None:
    plain = fingerprint(llama, context_params(settings(), 1, TRAITS))
    assert plain == fingerprint(llama, context_params(settings(**values), 4, TRAITS))


def test_files_of_an_earlier_format_are_outdated(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = context_params(settings(), 1, TRAITS)
    now = fingerprint(llama, params)
    monkeypatch.setattr(disk_file, "MAGIC", b"SHEPKV1\n")
    assert now.is_outdated(f"{fingerprint(llama, params).prefix}0.state")


def test_another_file_or_part_is_another_origin(tmp_path: Path) -> None:
    path = tiny.write_llama(tmp_path / "m-00001-of-00002.gguf")
    part = tmp_path / "m-00002-of-00002.gguf"
    part.write_bytes(b"part")
    params = context_params(settings(), 1, TRAITS)
    first = fingerprint(path, params)
    assert fingerprint(path, params) == first
    assert fingerprint(path, params, ["lora 1.0"]).context != first.context
    part.write_bytes(b"other")
    second = fingerprint(path, params)
    os.utime(path, (1, 1))
    third = fingerprint(path, params)
    assert len({print_.origin for print_ in (first, second, third)}) == 3
    assert second.is_outdated(f"{first.prefix}x.state")
    elsewhere = tiny.write_llama(tmp_path / "elsewhere.gguf")
    assert not fingerprint(elsewhere, params).is_outdated(f"{first.prefix}x.state")
