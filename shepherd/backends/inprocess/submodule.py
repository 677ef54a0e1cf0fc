"""Imports one module of a package without the package's own `__init__`."""

import importlib
import importlib.util
import sys
import threading
from typing import Any

_LOCK = threading.RLock()


def import_submodule(package: str, module: str) -> Any:
    """The module `package.module`; raises ImportError.

    Some packages import much at their top that is not needed: that of llama-cpp-python takes 0.3 s,
    and that of llguidance reads metadata and compiles patterns.
    """
    name = f"{package}.{module}"
    with _LOCK:
        if package in sys.modules:
            return importlib.import_module(name)
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.find_spec(package)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        sys.modules[package] = importlib.util.module_from_spec(spec)
        try:
            return importlib.import_module(name)
        finally:
            del sys.modules[package]
