"""The worker's side: llama.cpp's RPC server on the devices of this machine.

`python -m shepherd.backends.llamacpp.rpc.serve JSON` serves in a process of its own, which
`shepherd rpc-worker` puts into a sandbox.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from shepherd.backends.llamacpp.native.devices import (
    Device,
    DeviceKind,
    all_devices,
    available_memory,
    gpu_handles,
)
from shepherd.backends.llamacpp.native.params import usable_cores
from shepherd.backends.llamacpp.rpc.workers import rpc_library
from shepherd.errors import ConfigError, ShepherdError

GPU_RESERVE = 1024**3
RAM_RESERVE = 256 * 1024**2
"""Bytes that stay free on each GPU, and of the CPU's memory; as for models of this machine."""

_MIB = 1024**2
_GET_NAME, _GET_MEMORY = 0, 2  # places in `ggml_backend_device_i`

_SizePointer = ctypes.POINTER(ctypes.c_size_t)
_NameFunction = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
_MemoryFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p, _SizePointer, _SizePointer)


class Service(Struct, frozen=True):
    """What a worker serves: `memory` in MiB and `threads` are 0 for all; "" is no cache."""

    host: str
    port: int
    memory: int = 0
    threads: int = 0
    cache: str = ""

    def to_json(self) -> str:
        """The argument of this module as a program."""
        return json.dumps(structs.asdict(self))


def check_service(service: Service) -> None:
    """Raise ConfigError if llama.cpp has no RPC, or the address can't be served."""
    rpc_library()
    try:
        with socket.socket() as test:
            # As llama.cpp does it: an address is free at once after its last server has ended.
            test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            test.bind((service.host, service.port))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{service.host}:{service.port} can't be served: {reason}") from error


def serve(service: Service) -> None:
    """Serve one client after another; returns only on a failure, which raises ConfigError."""
    check_service(service)
    library = rpc_library()
    cpus = [item for item in all_devices() if item[0].kind is DeviceKind.CPU]
    devices = gpu_handles() or cpus[:1]
    if not devices:
        raise ConfigError("llama.cpp names no device of this machine.")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # llama.cpp's loop runs no handler of Python
    pointers = (ctypes.c_void_p * len(devices))(*(handle for _, handle in devices))
    with limited_memory(devices, service.memory * _MIB):
        library.ggml_backend_rpc_start_server(
            f"{service.host}:{service.port}".encode(),
            service.cache.encode() or None,
            service.threads or usable_cores(),
            len(devices),
            pointers,
        )
    raise ConfigError(f"llama.cpp could not serve {service.host}:{service.port}.")


@contextmanager
def limited_memory(devices: Sequence[tuple[Device, int]], limit: int) -> Generator[None]:
    """Report only memory that is free, less a reserve, and in all at most `limit` bytes if not 0.

    llama.cpp calls all memory of the machine free, and models are divided by these numbers.
    Replaces a function in llama.cpp's description of each device; raises ConfigError if the
    description is not the expected one.
    """
    changes = list[tuple[Any, int, Any]]()
    for device, handle in devices:
        # A device begins with its functions, of which those up to `get_memory` matter here.
        table = (ctypes.c_void_p * (_GET_MEMORY + 1)).from_address(handle)
        if _NameFunction(table[_GET_NAME])(handle) != device.name.encode():
            raise ConfigError("This version of llama.cpp describes devices in an unknown way.")
        meter = MemoryMeter(_MemoryFunction(table[_GET_MEMORY]), device, limit // len(devices))
        # The list keeps the new function alive, of which llama.cpp has only the address.
        changes.append((table, table[_GET_MEMORY], _MemoryFunction(meter.report)))
    for table, _, function in changes:
        table[_GET_MEMORY] = ctypes.cast(function, ctypes.c_void_p).value
    try:
        yield
    finally:
        for table, original, _ in changes:
            table[_GET_MEMORY] = original


class MemoryMeter:
    """The memory that a device offers: at most `limit` bytes, all that is free if it is 0.

    What this process uses counts against the limit; what other programs use does not.
    """

    def __init__(self, original: Callable[..., None], device: Device, limit: int) -> None:
        self._original = original
        self._is_cpu = device.kind is DeviceKind.CPU
        self._limit = limit
        self._at_start = resident_memory() if self._is_cpu else device.free
        """What this process used of the CPU's memory, or what was free of a GPU's."""

    def report(self, handle: int, free: Any, total: Any) -> None:
        """As ggml's `get_memory` of a device."""
        self._original(handle, free, total)
        if self._is_cpu:
            return_freed_memory()
            free[0], used = available_memory(), resident_memory() - self._at_start
        else:
            used = self._at_start - free[0]
        reserve = RAM_RESERVE if self._is_cpu else GPU_RESERVE
        free[0], total[0] = self.offer(free[0] - reserve, total[0], max(0, used))

    def offer(self, free: int, total: int, used: int) -> tuple[int, int]:
        """The free and the whole memory to report, of which this process uses `used`."""
        limit = self._limit or total  # 0 is no limit
        return max(0, min(free, limit - used)), min(total, limit)


def return_freed_memory() -> None:
    """Give the memory of an earlier client back to the system, where the C library can."""
    library: Any = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(ctypes.c_size_t(0))


def resident_memory() -> int:
    """The memory of this process in bytes; 0 if the system does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    """Serve what the only argument describes; returns 1 after a failure."""
    try:
        serve(Service(**json.loads(sys.argv[1])))
    except ShepherdError as error:
        sys.stderr.write(f"shepherd: {error}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
