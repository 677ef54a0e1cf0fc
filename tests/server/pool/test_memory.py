"""The memory for models of a server, with a GPU of set size."""

from pathlib import Path

import httpx
import pytest

from shepherd.backends.base import Backend, Memory
from shepherd.backends.llamacpp.native.fitting import GPU_RESERVE
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.config.settings import Config
from shepherd.models import builtin_model
from shepherd.server.app import create_app
from shepherd.server.pool.catalog import MachineMemory
from tests.backends.llamacpp.machines import GPU, use_devices, use_library
from tests.server.pool.places import Home

MIB = 1024**2
SETTINGS = LlamaCppSection(flash_attention="on")


def has(monkeypatch: pytest.MonkeyPatch, *sizes: int) -> None:
    """Let the machine have GPUs with so many free bytes behind the reserve."""
    use_devices(monkeypatch, *((GPU, size + GPU_RESERVE) for size in sizes))


def test_a_model_takes_what_fits_onto_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, 20 * MIB)
    memory = MachineMemory(SETTINGS)
    assert memory.limit().vram == 20 * MIB
    needs = memory.needs(builtin_model(), SETTINGS)
    assert 0 < needs.vram <= 20 * MIB
    assert needs.ram > 0
    has(monkeypatch, 500 * MIB, 500 * MIB)
    both = MachineMemory(SETTINGS)
    assert both.limit().vram == 1000 * MIB
    assert both.needs(builtin_model(), SETTINGS).vram > needs.vram


def test_without_a_gpu_only_the_memory_of_the_cpu_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch)
    memory = MachineMemory(SETTINGS, memory_mib=300)
    assert memory.limit() == Memory(300 * MIB)
    small, large = (
        memory.needs(builtin_model(), SETTINGS.model_copy(update={"context_size": size}))
        for size in (512, 8192)
    )
    assert small.vram == large.vram == 0
    assert builtin_model().stat().st_size < small.ram < large.ram


async def test_the_prompt_caches_of_all_models_are_within_the_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    has(monkeypatch)
    home, opened = Home(tmp_path / "home"), list[int]()
    home.add_model("qwen")

    async def opener(config: Config) -> Backend:
        opened.append(config.llamacpp.cache_ram_mib)
        return await home.open_scripted(config)

    weights = MachineMemory(SETTINGS).needs(builtin_model(), home.config().llamacpp).ram
    limit = weights * 2 // MIB + 2
    pool = await home.open(home.config(memory_mib=limit), opener)
    async with pool.lease("qwen"):
        pass
    assert opened == [limit // 8] * 2
    [loaded] = pool.loaded()  # with both caches it would be too much
    assert loaded.memory.ram == weights + limit // 8 * MIB
    await pool.aclose()


async def test_ollama_lists_the_part_on_the_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home")
    for sizes in ((20 * MIB,), ()):
        has(monkeypatch, *sizes)
        pool = await home.open(home.config())
        transport = httpx.ASGITransport(create_app(pool))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            (running,) = (await client.get("/api/ps")).json()["models"]
        memory = pool.loaded()[0].memory
        assert running["size"] == memory.ram + memory.vram
        assert running["size_vram"] == memory.vram
        assert bool(memory.vram) is bool(sizes)
        await pool.aclose()


def test_gpus_are_looked_at_only_for_a_local_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of providers loads no llama.cpp."""

    def fails() -> None:
        raise AssertionError

    use_library(monkeypatch, fails)
    memory = MachineMemory(SETTINGS)
    with pytest.raises(AssertionError):
        memory.limit()
