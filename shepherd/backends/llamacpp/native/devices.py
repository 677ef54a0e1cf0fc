"""The devices that llama.cpp computes on: their memory, and the sizes of batches that suit them."""

import ctypes
import functools
import os
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from shepherd.backends.llamacpp.native.bindings import bindings, native_functions

_CGROUP = Path("/sys/fs/cgroup")


class DeviceKind(IntEnum):
    """The kinds of devices, by ggml's numbers; an accelerator helps the CPU."""

    CPU = 0
    GPU = 1
    INTEGRATED = 2
    ACCELERATOR = 3
    META = 4


class Device(Struct, frozen=True):
    """A device; `free` and `total` are bytes of its memory, 0 if it does not report them.

    A `remote` one belongs to an RPC worker, which keeps a reserve of its own.
    """

    name: str
    description: str
    kind: DeviceKind
    free: int
    total: int
    remote: bool = False


def has_gpu() -> bool:
    """Whether llama.cpp computes on a GPU here.

    A llama.cpp with the RPC backend says that it can use GPUs, also without any.
    """
    library = bindings()
    if not library.llama_supports_gpu_offload():
        return False
    if not library.llama_supports_rpc():
        return True
    kinds = (DeviceKind.GPU, DeviceKind.INTEGRATED)
    return any(device.kind in kinds for device, _ in all_devices())


def gpus(count: int = 1) -> Sequence[Device]:
    """The GPUs that a model uses: the first `count` if it is shared among several, else all.

    Integrated ones only count if there are no others, as in llama.cpp.
    """
    return [device for device, _ in gpu_handles(count)]


def gpu_handles(count: int = 1) -> Sequence[tuple[Device, int]]:
    """As `gpus`, with llama.cpp's pointer to each."""
    if not has_gpu():
        return ()
    devices = all_devices()
    chosen = [item for item in devices if item[0].kind is DeviceKind.GPU]
    if not chosen:
        chosen = [item for item in devices if item[0].kind is DeviceKind.INTEGRATED][:1]
    return chosen[:count] if count > 1 else chosen


def all_devices() -> Sequence[tuple[Device, int]]:
    """All devices, each with llama.cpp's pointer."""
    ggml = _ggml()
    count: int = ggml.ggml_backend_dev_count()
    handles: list[int] = [ggml.ggml_backend_dev_get(index) for index in range(count)]
    return [(describe_device(ctypes.c_void_p(handle)), handle) for handle in handles]


def describe_device(handle: ctypes.c_void_p) -> Device:
    """What ggml's library says of a device now."""
    ggml = _ggml()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    return Device(
        ggml.ggml_backend_dev_name(handle).decode("utf-8", "replace"),
        ggml.ggml_backend_dev_description(handle).decode("utf-8", "replace"),
        _kind(ggml.ggml_backend_dev_type(handle)),
        free.value,
        total.value,
    )


def _kind(number: int) -> DeviceKind:
    """The kind of a number; a kind that is not known yet is not computed on."""
    return next((kind for kind in DeviceKind if kind == number), DeviceKind.ACCELERATOR)


@functools.cache
def _ggml() -> Any:
    """llama.cpp's library with the functions about devices."""
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    return native_functions(
        {
            "dev_count": (size,),
            "dev_get": (pointer, size),
            "dev_name": (ctypes.c_char_p, pointer),
            "dev_description": (ctypes.c_char_p, pointer),
            "dev_type": (ctypes.c_int, pointer),
            "dev_memory": (None, pointer, ctypes.POINTER(size), ctypes.POINTER(size)),
        }
    )


def available_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> int:
    """Free memory in bytes; half of all memory if the system does not report it.

    A container may have less than the machine: the limit of its control group counts, too.
    """
    kib = _named_number(meminfo, "MemAvailable:")
    free = _all_memory() // 2 if kib is None else kib * 1024
    limit, used = _words(cgroup / "memory.max"), _words(cgroup / "memory.current")
    if limit and used and limit[0].isdigit():  # without a limit it is "max"
        # Pages of files that nobody used for a while are dropped when memory is needed.
        files = _named_number(cgroup / "memory.stat", "inactive_file") or 0
        free = min(free, max(0, int(limit[0]) - int(used[0]) + files))
    return free


def _named_number(path: Path, name: str) -> int | None:
    """The number behind a name in a file such as `MemAvailable:  8123 kB`; None without it."""
    words = _words(path)
    return int(words[words.index(name) + 1]) if name in words else None


def _words(path: Path) -> list[str]:
    """The words of a file of the system; none if it can't be read."""
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError):
        return []


def _all_memory() -> int:
    """The machine's memory in bytes; 0 if the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


class DeviceLimits(Struct, frozen=True):
    """Numbers for a kind of device, from measurements or from what is known of it.

    `batch`: tokens of a prompt that are submitted at once, if `n_batch` does not say it.
    `initial_chunk`: tokens of the first step of a prompt, before any measurement.
    `min_chunk`, `min_shared_chunk`: the smallest steps of a prompt, alone and beside others.
    `answers_show_pace`: whether the tokens of answers show how fast prompts are read.
    `token_share`: the assumed cost of one more token as a share of a batch's time, before any
    measurement.
    `draft_chunk`: tokens that the draft model reads per step while it catches up.
    `crowding`: new tokens times tokens of an idle conversation, above which the idle one is swapped
    out first; None if that is learned from measurements.
    `full_steps`: steps of a multiple of one of these sizes are fast, the largest size first.
    """

    batch: int
    initial_chunk: int
    min_chunk: int
    min_shared_chunk: int
    answers_show_pace: bool
    token_share: float
    draft_chunk: int
    crowding: int | None
    full_steps: tuple[int, ...] = ()


CPU_LIMITS = DeviceLimits(
    batch=512,
    initial_chunk=128,
    min_chunk=32,
    min_shared_chunk=16,
    answers_show_pace=True,
    token_share=0.25,
    draft_chunk=128,
    crowding=4 * 1024,
)
"""Measured on two cores. Below 240 tokens per second two steps take longer than 0.2 s. Swapping
out costs less than attention over masked tokens: where six conversations take turns, a turn takes
0.4 to 0.9 times as long as if they stay, and with two of them 0.97 to 1.1 times."""

CPU_FLASH_LIMITS = structs.replace(CPU_LIMITS, min_chunk=64, full_steps=(128, 64))
"""With flash attention. Behind 3,000 tokens a step of 64 tokens takes 1.1 s and one of 63 takes
2.9 s (SmolLM2), because llama.cpp computes 64 rows as matrices and fewer rows one by one. Each
thread pads its rows to 64: Gemma 3 270M reads 128 tokens behind 6,144 in 0.47 s, and 140 in 0.69
s."""

GPU_LIMITS = DeviceLimits(
    batch=2048,
    initial_chunk=256,
    min_chunk=128,
    min_shared_chunk=128,
    answers_show_pace=False,
    token_share=0.02,
    draft_chunk=512,
    crowding=None,
)
"""Not measured here. `batch` is llama.cpp's own default (`llama_context_default_params`). A GPU
reads all weights for a batch of any size. A batch therefore takes about as long as one token, up to
the size at which arithmetic takes as long as reading. By the data sheets that is at 160 to 300
tokens: an RTX 4090 has 165 TFLOPS and 1.0 TB/s, an H100 989 and 3.35, an H200 989 and 4.8."""


def device_limits(*, flash: bool = False) -> DeviceLimits:
    """The limits of the device that llama.cpp computes on here; `flash`: with flash attention."""
    if has_gpu():
        return GPU_LIMITS
    return CPU_FLASH_LIMITS if flash else CPU_LIMITS
