"""The GPUs of machines that are doubles of ggml's list of devices."""

from collections.abc import Callable
from pathlib import Path

import pytest

from shepherd.backends.base import Memory
from shepherd.backends.llamacpp.native.devices import DeviceKind, gpus
from shepherd.backends.llamacpp.native.fitting import (
    GPU_RESERVE,
    fit_model,
    free_memory,
    model_gpus,
)
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.cli.commands.doctor import check_all
from shepherd.config.llamacpp import LlamaCppSection
from tests.backends.llamacpp.machines import (
    ACCELERATOR,
    CPU,
    GPU,
    INTEGRATED,
    NEW,
    use_devices,
)
from tests.backends.llamacpp.support import PUP, settings

GIB = 1024**3

Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Lets the machine have devices of these kinds and GiB of free memory."""

    def build(*kinds: tuple[int, int]) -> None:
        use_devices(monkeypatch, *((kind, size * GIB) for kind, size in kinds))

    return build


def names(count: int = 1) -> list[str]:
    return [device.name for device in gpus(count)]


def test_all_gpus_hold_a_model_or_as_many_as_share_it(machine: Machine) -> None:
    machine((GPU, 8), (GPU, 24), (INTEGRATED, 4), (ACCELERATOR, 0), (CPU, 64), (NEW, 99))
    assert names() == ["D0", "D1"]
    assert names(1) == names(2) == names(5)
    assert gpus()[1].kind is DeviceKind.GPU
    assert (gpus()[1].free, gpus()[1].total) == (24 * GIB, 48 * GIB)


def test_an_integrated_gpu_counts_only_alone(machine: Machine) -> None:
    machine((CPU, 64), (INTEGRATED, 4), (INTEGRATED, 4))
    assert names() == ["D1"]


def test_the_free_memory_leaves_a_reserve_on_each(machine: Machine) -> None:
    machine((GPU, 8), (GPU, 24), (GPU, 0))
    apart = free_memory(model_gpus(LlamaCppSection()))
    assert apart.vram == 32 * GIB - 2 * GPU_RESERVE
    equal = free_memory(model_gpus(LlamaCppSection(tensor_parallel=2)))
    assert equal.vram == 16 * GIB - 2 * GPU_RESERVE
    assert apart.ram > 0


def test_a_gpu_of_unknown_size_gets_the_model_as_the_settings_say(machine: Machine) -> None:
    machine((GPU, 0))
    own = settings(flash_attention="on", context_size=0)
    little = Memory(ram=1, vram=1)
    assert fit_model(check_model_file(PUP), own, limit=little).applied(own) is own
    machine((GPU, 8))
    assert fit_model(check_model_file(PUP), own, limit=little).notice


def test_doctor_names_the_gpu_and_what_goes_there(machine: Machine, tmp_path: Path) -> None:
    machine((GPU, 8))
    env = {"HOME": str(tmp_path), "PATH": ""}
    checks = {check.name: check.text for check in check_all(tmp_path, env, {})}
    assert "D0 (a double, 8.0 of 16.0 GiB free)" in checks["llama.cpp"]
    assert "7 of 7 layers on the GPU, a context of 8,192 tokens" in checks["model"]
