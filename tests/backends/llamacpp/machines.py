"""Doubles of machines, by ggml's list of their devices."""

from collections.abc import Callable
from typing import Any

import pytest

from shepherd.backends.llamacpp.native import devices
from shepherd.backends.llamacpp.native.bindings import bindings

CPU, GPU, INTEGRATED, ACCELERATOR, NEW = 0, 1, 2, 3, 9


class Library:
    """ggml's functions, for devices of these kinds and bytes of free memory."""

    def __init__(self, *kinds: tuple[int, int]) -> None:
        self._kinds = kinds

    def ggml_backend_dev_count(self) -> int:
        return len(self._kinds)

    def ggml_backend_dev_get(self, index: int) -> int:
        return index + 1

    def ggml_backend_dev_name(self, handle: Any) -> bytes:
        return b"D%d" % _index(handle)

    def ggml_backend_dev_description(self, _handle: Any) -> bytes:
        return b"a double"

    def ggml_backend_dev_type(self, handle: Any) -> int:
        return self._kinds[_index(handle)][0]

    def ggml_backend_dev_memory(self, handle: Any, free: Any, total: Any) -> None:
        size = self._kinds[_index(handle)][1]
        # pointers by ctypes.byref
        free._obj.value, total._obj.value = size, 2 * size


def _index(handle: Any) -> int:
    number: int = handle.value
    return number - 1


def use_library(monkeypatch: pytest.MonkeyPatch, ggml: Callable[[], Any]) -> None:
    """Let llama.cpp be built for GPUs, and have what `ggml` returns as its list of devices."""
    monkeypatch.setattr(devices, "_ggml", ggml)
    monkeypatch.setattr(bindings(), "llama_supports_gpu_offload", lambda: True)


def use_devices(monkeypatch: pytest.MonkeyPatch, *kinds: tuple[int, int]) -> None:
    """Let the machine have devices of these kinds and bytes of free memory."""
    library = Library(*kinds)
    use_library(monkeypatch, lambda: library)
