"""Handing a helper program to another interpreter, as code and not as a file.

A file could be changed by an earlier command, and takes longer to find and to read.
"""

import functools
import importlib.util
import marshal
from collections.abc import Mapping
from importlib.abc import InspectLoader
from types import CodeType

from shepherd.errors import ToolError
from shepherd.tools.sandbox.view.toolchains import interpreter

_PACKAGE = "shepherd.tools.sandbox.inside"
_NEEDED = {
    "start": ("start",),
    "launch": ("start", "orders", "launch"),
    "enclose": ("start", "orders", "native", "rules", "namespaces", "processes", "enclose"),
}
_BOOT = """
import marshal, os, sys
descriptor = int(sys.argv[1])
os.lseek(descriptor, 0, 0)
with open(descriptor, "rb", buffering=0) as file:
    codes, name, values = marshal.loads(file.read())
for full, code in codes:
    module = sys.modules[full] = type(sys)(full)
    exec(code, module.__dict__)
    parent, _, short = full.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], short, module)
sys.modules[name].main(**values)
"""


def helper_argv(descriptor: int) -> list[str]:
    """The program that runs what `payload` wrote to a descriptor."""
    return [str(interpreter()), "-I", "-S", "-c", _BOOT, str(descriptor)]


def payload(module: str, values: Mapping[str, object]) -> bytes:
    """What makes the helper call `main` of a module with these arguments."""
    codes = [(_PACKAGE, compile("", _PACKAGE, "exec"))]
    codes += [(_full(name), _code(name)) for name in _NEEDED[module]]
    return marshal.dumps((codes, _full(module), dict(values)))


def _full(module: str) -> str:
    return f"{_PACKAGE}.{module}"


@functools.cache
def _code(module: str) -> CodeType:
    spec = importlib.util.find_spec(_full(module))
    loader = None if spec is None else spec.loader
    code = loader.get_code(_full(module)) if isinstance(loader, InspectLoader) else None
    if code is None:
        raise ToolError("the sandbox's helper program can't be read")
    return code
