"""What a model's workers compute, what they offer, and who may name them."""

import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from shepherd.backends.llamacpp.native.devices import Device, DeviceKind
from shepherd.backends.llamacpp.native.fitting import GPU_RESERVE, fit_model, free_memory
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.rpc.serve import MemoryMeter
from shepherd.backends.llamacpp.rpc.workers import (
    Workers,
    has_rpc,
    memory_shares,
    open_workers,
)
from shepherd.cli.commands.doctor import State, check_all
from shepherd.config.load import load_config
from shepherd.errors import ConfigError
from tests.backends.llamacpp.support import PUP, settings

GIB = 1024**3
WORKER = Device("RPC0", "10.0.0.2:50052", DeviceKind.GPU, 6 * GIB, 8 * GIB, remote=True)


@pytest.fixture
def without_rpc() -> None:
    """For a test of a build that lacks RPC; asked while it runs, because it loads llama.cpp."""
    if has_rpc():
        pytest.skip("this llama.cpp is built with RPC")


def test_layers_are_divided_by_free_memory() -> None:
    assert memory_shares([WORKER, replace(WORKER, free=2 * GIB)]) == [0.75, 0.25]
    assert memory_shares([replace(WORKER, free=0)] * 2) == [0.5, 0.5]


def test_the_shares_and_devices_reach_llamacpp() -> None:
    own = Workers((), (WORKER, replace(WORKER, free=2 * GIB)), (4096, 8192))
    params = SimpleNamespace(devices=None, tensor_split=None)
    own.divide(params, 3)
    assert [*params.tensor_split] == [0.75, 0.25, 0.0]
    pointers = ctypes.cast(params.devices, ctypes.POINTER(ctypes.c_void_p))
    assert [pointers[index] for index in range(3)] == [4096, 8192, None]
    with pytest.raises(ConfigError, match="2 devices, and"):
        own.divide(params, 1)


def test_a_worker_keeps_its_own_reserve() -> None:
    assert free_memory([WORKER]).vram == WORKER.free
    assert free_memory([replace(WORKER, remote=False)]).vram == WORKER.free - GPU_RESERVE


def test_what_does_not_fit_onto_workers_stays_here() -> None:
    header, own = check_model_file(PUP), settings(context_size=512, cache_type_k="f16")
    fit = fit_model(header, own, devices=[WORKER])
    assert "7 of 7 layers on the RPC workers" in fit.text
    small = fit_model(header, own, devices=[replace(WORKER, free=11 * 1024**2)])
    assert 0 < small.layers < 7
    assert small.notice is not None
    assert "layers are on the RPC workers" in small.notice


def test_a_worker_offers_at_most_its_limit() -> None:
    cpu = Device("CPU", "", DeviceKind.CPU, 8 * GIB, 16 * GIB)
    meter = MemoryMeter(lambda *_: None, cpu, 2 * GIB)
    assert meter.offer(8 * GIB, 16 * GIB, 0) == (2 * GIB, 2 * GIB)
    assert meter.offer(7 * GIB, 16 * GIB, GIB) == (GIB, 2 * GIB)
    assert meter.offer(GIB // 2, 16 * GIB, GIB) == (GIB // 2, 2 * GIB)
    assert meter.offer(-1, 16 * GIB, 3 * GIB) == (0, 2 * GIB)
    unlimited = MemoryMeter(lambda *_: None, cpu, 0)
    assert unlimited.offer(8 * GIB, 16 * GIB, 0) == (8 * GIB, 16 * GIB)


@pytest.mark.usefixtures("without_rpc")
def test_a_llamacpp_without_rpc_names_the_command_that_builds_it() -> None:
    with pytest.raises(ConfigError, match="make chat RPC=1"):
        open_workers(settings(rpc_servers=["127.0.0.1:1"]))


def test_without_workers_nothing_is_needed() -> None:
    assert open_workers(settings()) is None


@pytest.mark.parametrize("name", ["tensor_parallel", "pipeline_parallel"])
def test_workers_divide_the_model_alone(name: str) -> None:
    with pytest.raises(ConfigError, match="divides the model by memory"):
        open_workers(settings(rpc_servers=["127.0.0.1:1"], **{name: 2}))


@pytest.mark.usefixtures("without_rpc")
def test_doctor_says_what_is_wrong_with_a_worker(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": ""}
    overrides = {"llamacpp.rpc_servers": ["127.0.0.1:1"]}
    [without] = [c for c in check_all(tmp_path, env, overrides) if c.name == "rpc"]
    assert (without.state, "make chat RPC=1" in without.text) == (State.BROKEN, True)
    assert not [c for c in check_all(tmp_path, env, {}) if c.name == "rpc"]


def test_a_project_can_not_name_a_worker(tmp_path: Path) -> None:
    (tmp_path / ".shepherd.toml").write_text('[llamacpp]\nrpc_servers = ["10.0.0.2:50052"]\n')
    config = load_config(tmp_path, {"HOME": str(tmp_path / "home")}, {})
    assert config.llamacpp.rpc_servers == []
    assert "rpc_servers" in " ".join(config.warnings)


def test_this_module_asks_the_real_library_once() -> None:
    assert has_rpc() in (True, False)
