"""The workers that compute parts of a model, as devices of llama.cpp."""

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field, structs

from shepherd.backends.llamacpp.native.bindings import bindings, native_functions
from shepherd.backends.llamacpp.native.devices import Device, describe_device, gpu_handles
from shepherd.backends.llamacpp.rpc.protocol import Address, WorkerError, parse_addresses, probe
from shepherd.backends.llamacpp.rpc.relay import Relay
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import BackendError, ConfigError

BUILD_COMMAND = "make chat RPC=1"

NO_RPC = (
    "This llama.cpp is built without its RPC backend. Build it again: "
    f"`{BUILD_COMMAND}` (docs/install.md has the switches for uv and pip)."
)


class WorkerLostError(BackendError):
    """A worker was lost while its model was loaded; the model must be loaded again."""


class Workers(Struct, eq=False):
    """The workers of one model, in the order of the settings.

    The `devices` are theirs, then the GPUs of this machine.
    """

    relays: tuple[Relay, ...]
    devices: tuple[Device, ...]
    handles: tuple[int, ...]
    _listeners: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    @property
    def lost(self) -> str:
        """A sentence about the first lost worker; "" if all are there."""
        return next((relay.lost for relay in self.relays if relay.lost), "")

    def check(self) -> None:
        """Raise WorkerLostError if a worker was lost."""
        if self.lost:
            raise WorkerLostError(
                f"{self.lost} The conversation is kept; the model is loaded again at the next "
                "prompt, once the worker is back."
            )

    def divide(self, params: Any, max_devices: int) -> None:
        """Set the devices of llama.cpp's model parameters, and each one's share of the layers.

        Raises ConfigError if there are more than `max_devices`.
        """
        count = len(self.handles)
        if count > max_devices:
            raise ConfigError(
                f"The RPC workers have {count} devices, and llama.cpp takes {max_devices}."
            )
        devices = (ctypes.c_void_p * (count + 1))(*self.handles, None)  # which ends the list
        params.devices = ctypes.cast(devices, ctypes.c_void_p)
        params.kept_devices = devices  # the pointer alone would not keep them alive
        shares = memory_shares(self.devices)
        params.tensor_split = (ctypes.c_float * max_devices)(*shares)

    def watch(self, listener: Callable[[], None]) -> None:
        """Call `listener` from another thread when a worker is lost, or now if one is lost."""
        self._listeners.append(listener)
        for relay in self.relays:
            relay.add_listener(listener)
        if self.lost:
            listener()

    def release(self) -> None:
        """Stop watching; the model is closed."""
        for relay in self.relays:
            for listener in self._listeners:
                relay.remove_listener(listener)
        self._listeners.clear()


def open_workers(settings: LlamaCppSection) -> Workers | None:
    """The workers of the settings, reached and ready; None without any.

    Raises WorkerError for a worker that can't be used, and ConfigError for a wrong address or a
    llama.cpp without RPC.
    """
    if not settings.rpc_servers:
        return None
    addresses = parse_addresses(settings.rpc_servers)
    if max(settings.tensor_parallel, settings.pipeline_parallel) > 1:
        raise ConfigError(
            "llamacpp.rpc_servers divides the model by memory; remove llamacpp.tensor_parallel "
            "and llamacpp.pipeline_parallel."
        )
    library = rpc_library()
    relays = tuple(_open_relay(address, settings.rpc_timeout) for address in addresses)
    devices, handles = list[Device](), list[int]()
    for relay in relays:
        for handle in _handles(library, relay):
            device = describe_device(ctypes.c_void_p(handle))
            # llama.cpp knows the address of the relay only.
            name, place = f"RPC{len(devices)}", str(relay.info.address)
            devices.append(structs.replace(device, name=name, description=place, remote=True))
            handles.append(handle)
    for relay in relays:
        if relay.lost:  # then its devices are described by substitutes
            raise WorkerError(relay.lost)
    local = gpu_handles()
    return Workers(
        relays,
        (*devices, *(device for device, _ in local)),
        (*handles, *(handle for _, handle in local)),
    )


def memory_shares(devices: Sequence[Device]) -> list[float]:
    """The share of the layers that each device computes: its part of all free memory."""
    total = sum(device.free for device in devices)
    # Equal parts if none of them reports its memory.
    return [device.free / total if total else 1 / len(devices) for device in devices]


def _handles(library: Any, relay: Relay) -> Sequence[int]:
    """llama.cpp's pointers to the devices of a worker; raises WorkerError if it has none."""
    register = library.ggml_backend_rpc_add_server(relay.endpoint.encode())
    if not register:
        raise WorkerError(relay.lost or f"The RPC worker at {relay.info.address} has no devices.")
    count: int = library.ggml_backend_reg_dev_count(register)
    return [library.ggml_backend_reg_dev_get(register, index) for index in range(count)]


def has_rpc() -> bool:
    """Whether llama.cpp is built with its RPC backend."""
    return bool(bindings().llama_supports_rpc())


@functools.cache
def rpc_library() -> Any:
    """llama.cpp's library with the types of its RPC functions; raises ConfigError without them."""
    if not has_rpc():
        raise ConfigError(NO_RPC)
    pointer, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    return native_functions(
        {
            "rpc_add_server": (pointer, text),
            "rpc_start_server": (None, text, text, size, size, ctypes.POINTER(pointer)),
            "reg_dev_count": (size, pointer),
            "reg_dev_get": (pointer, pointer, size),
        }
    )


_relays: dict[Address, Relay] = {}
"""Those of this process: llama.cpp keeps the devices of a relay's endpoint for ever."""

_opening = threading.Lock()


def _open_relay(address: Address, timeout: float) -> Relay:
    """A relay to a worker that answers; raises WorkerError."""
    with _opening:
        relay = _relays.get(address)
        if relay is not None and relay.connected and not relay.lost:
            return relay  # another model uses it, and the worker answers nobody else
        info = probe(address)
        if relay is None or not relay.can_serve(info):
            relay = _relays[address] = Relay(info, timeout)
        relay.timeout = timeout
        relay.restore(info)
        return relay
