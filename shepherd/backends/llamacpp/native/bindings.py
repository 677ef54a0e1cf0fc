"""llama-cpp-python's low-level bindings, loaded on first use and silenced."""

import ctypes
import functools
import importlib
import importlib.util
import logging
import os
import re
import sys
import threading
from collections import Counter, deque
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from shepherd.errors import ModelLoadError

logger = logging.getLogger(__name__)

_ERROR, _CONTINUED = 4, 5
"""llama.cpp's levels of errors, and of a piece that continues the one before it."""
_PLACE = re.compile(r"layer +\d+ assigned to device ([^,]+)")
_SPINS = "1000"
"""How often a thread looks for the others before it sleeps, about 60 µs."""
TESTED = "0.3.36"
"""The version of llama-cpp-python that Shepherd is tested with."""
_IMPORTING = threading.RLock()
"""Two threads must not see the empty package of `import_submodule` at the same time."""


class NativeLog:
    """Receives the log of llama.cpp, and keeps what only it tells: errors, and layers' devices.

    `progress` is the part of the last model's weights that is loaded, from 0 to 1.
    """

    def __init__(self) -> None:
        self.progress = 0.0
        self._errors: deque[str] = deque(maxlen=20)
        self._places = Counter[str]()
        self._level = 0
        self._lock = threading.Lock()

    def receive(self, level: int, text: bytes, _data: object) -> None:
        """Take a piece of the log; level 5 continues the previous piece."""
        if level != _CONTINUED:
            self._level = level
        line = text.decode("utf-8", "replace").strip()
        if not line.strip("."):  # a sign of progress
            return
        if self._level == _ERROR:
            with self._lock:
                self._errors.append(line)
        if place := _PLACE.search(line):
            with self._lock:
                self._places[place[1]] += 1
        # Never above DEBUG: what a user should know of an error is in the exception.
        logger.debug("%s", line)

    def advance(self, progress: float, _data: object) -> bool:
        """Take a step of the loading, which goes on."""
        self.progress = progress
        return True

    def take_errors(self) -> list[str]:
        """The errors since the last call, oldest first."""
        with self._lock:
            errors = list(self._errors)
            self._errors.clear()
        return errors

    def take_places(self) -> Counter[str]:
        """The number of layers on each device that were loaded since the last call."""
        with self._lock:
            places, self._places = self._places, Counter[str]()
        return places


native_log = NativeLog()


@functools.cache
def bindings() -> Any:
    """The module `llama_cpp.llama_cpp`, initialised; raises ModelLoadError if it can't be used."""
    # Threads that wait for each other keep their cores for 18 ms otherwise, in each of a model's
    # operations. Where other programs run, an answer took twenty times as long. Read at the load.
    if "GOMP_SPINCOUNT" not in os.environ:
        os.putenv("GOMP_SPINCOUNT", _SPINS)  # for this process: commands of tools don't get it
    lib = _checked("llama_cpp", ("llama_", "LLAMA_", "GGML_"))
    lib.llama_log_set(_log_callback(lib), ctypes.c_void_p(0))
    lib.llama_backend_init()
    return lib


def _checked(module: str, prefixes: tuple[str, ...]) -> Any:
    """A module of `llama_cpp` that has the symbols with these prefixes; raises ModelLoadError."""
    try:
        lib = import_submodule("llama_cpp", module)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise ModelLoadError(
            f"llama-cpp-python can't be used: {error}. Install it again to run models in-process."
        ) from error
    check_symbols(lib, prefixes)
    return lib


def check_symbols(lib: Any, prefixes: tuple[str, ...]) -> None:
    """Raise ModelLoadError if a version of the bindings lacks what Shepherd uses of them.

    `symbols.txt` has names, with the number of arguments of a function, or with the fields of a
    structure: ctypes sets those that it does not know without an effect.
    """
    for line in Path(__file__).with_name("symbols.txt").read_text("utf-8").splitlines():
        name, *details = line.split()
        symbol: Any = getattr(lib, name, None)
        fits = (
            len(symbol.argtypes) == int(d) if d.isdigit() else hasattr(symbol, d) for d in details
        )
        if name.startswith(prefixes) and (symbol is None or not all(fits)):
            raise _misfit(name)


def _misfit(name: str) -> ModelLoadError:
    release = metadata.version("llama-cpp-python")
    return ModelLoadError(
        f"llama-cpp-python {release} does not fit this Shepherd: {name} is missing or has changed. "
        f"Install version {TESTED} of it instead."
    )


def native_functions(
    signatures: Mapping[str, tuple[Any, ...]], prefix: str = "ggml_backend_"
) -> Any:
    """llama.cpp's library with the types of functions; ModelLoadError if this build lacks one.

    `signatures` have the type of the result, then those of the arguments, by names without the
    `prefix`: `{"dev_count": (c_size_t,)}` is `size_t ggml_backend_dev_count(void)`.
    """
    library: Any = bindings()._lib  # noqa: SLF001 - the bindings have no names for them
    for name, (result, *arguments) in signatures.items():
        function = getattr(library, f"{prefix}{name}", None)
        if function is None:
            raise _misfit(f"{prefix}{name}")
        function.restype, function.argtypes = result, arguments
    return library


@functools.cache
def image_bindings() -> Any:
    """The module `llama_cpp.mtmd_cpp`, for images; raises ModelLoadError if it can't be used."""
    lib = bindings()
    images = _checked("mtmd_cpp", ("mtmd_",))
    images.mtmd_helper_log_set(_log_callback(lib), ctypes.c_void_p(0))
    return images


@functools.cache
def reads_images() -> bool:
    """Whether this build of llama.cpp has its library for images; does not load it."""
    spec = importlib.util.find_spec("llama_cpp")
    places = spec.submodule_search_locations if spec is not None else None
    return any(next(Path(place, "lib").glob("*mtmd.*"), None) for place in places or ())


@functools.cache
def _log_callback(lib: Any) -> Any:
    """The C function that takes the log; kept, because llama.cpp keeps only its address."""
    return lib.llama_log_callback(native_log.receive)


@functools.cache
def progress_callback() -> Any:
    """The C function that takes the steps of a loading; kept, as that of the log."""
    return bindings().llama_progress_callback(native_log.advance)


def import_submodule(package: str, module: str) -> Any:
    """The module `package.module` without the package's own `__init__`; raises ImportError."""
    with _IMPORTING:
        if package in sys.modules:  # somebody else has imported all of it
            return importlib.import_module(f"{package}.{module}")
        spec = importlib.util.find_spec(package)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        # llama-cpp-python imports a server's worth of packages at its top, in 0.3 s. An empty
        # package takes its place meanwhile.
        sys.modules[package] = importlib.util.module_from_spec(spec)
        try:
            return importlib.import_module(f"{package}.{module}")
        finally:
            del sys.modules[package]
