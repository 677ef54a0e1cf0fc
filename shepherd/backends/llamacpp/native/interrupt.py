"""Ends a running `llama_decode` from another thread."""

import ctypes
from typing import Any

from shepherd.backends.llamacpp.native.bindings import bindings


class Interrupt:
    """A flag that llama.cpp reads between two operations of a batch, if it computes on a CPU.

    llama.cpp calls a C function there. This is `strlen` of the flag: nothing or one character. A
    function of Python would need its lock (GIL) hundreds of times per batch. `set` may be called
    from any thread.
    """

    def __init__(self) -> None:
        lib = bindings()
        self._flag = ctypes.create_string_buffer(2)
        address = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value or 0
        self._read: Any = lib.ggml_abort_callback(address)
        self._none: Any = lib.ggml_abort_callback(0)
        self._lib = lib

    def set(self) -> None:
        """End the batch that is computed now, or the next one."""
        self._flag[0] = b"!"

    def clear(self) -> None:
        """Let batches run to their end again."""
        self._flag[0] = b"\0"

    @property
    def is_set(self) -> bool:
        """Whether the batch that is computed now ends."""
        return bool(self._flag.value)

    def attach(self, context: Any) -> None:
        """Let a context read the flag."""
        place = ctypes.cast(self._flag, ctypes.c_void_p)
        self._lib.llama_set_abort_callback(context, self._read, place)

    def detach(self, context: Any) -> None:
        """End what `attach` began."""
        self._lib.llama_set_abort_callback(context, self._none, None)
