"""llama-cpp-python's modules: imported without the rest of the package, and checked."""

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shepherd.backends.llamacpp import native
from shepherd.backends.llamacpp.native.bindings import (
    TESTED,
    bindings,
    check_symbols,
    image_bindings,
    import_submodule,
)
from shepherd.errors import ModelLoadError

ROOM = Path(native.__file__).parents[1]
OF_LIBRARY = ("llama_", "LLAMA_", "GGML_", "mtmd_")
ONLY_KEPT = {"kept_overrides", "kept_devices"}
"""Attributes of structures that are none of llama.cpp's fields."""

PROBE = """
import sys
from shepherd.backends.llamacpp.native.bindings import import_submodule
library = import_submodule("llama_cpp", "llama_cpp")
assert "llama_cpp" not in sys.modules
import llama_cpp
assert llama_cpp.llama_cpp is library
assert import_submodule("llama_cpp", "llama_cpp") is library
"""


def test_a_package_is_imported_whole_when_somebody_asks_for_it() -> None:
    subprocess.run([sys.executable, "-c", PROBE], check=True)


@pytest.fixture
def package(tmp_path: Path) -> Iterator[str]:
    """A package whose top fails."""
    folder = tmp_path / "topless"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError\n")
    (folder / "slow.py").write_text("import time\ntime.sleep(0.05)\nfrom . import part\n")
    (folder / "part.py").write_text("")
    (folder / "broken.py").write_text("import nothing_of_this_name\n")
    sys.path.insert(0, str(tmp_path))
    yield folder.name
    sys.path.remove(str(tmp_path))


def test_threads_get_the_same_module(package: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        modules = [*pool.map(import_submodule, [package] * 8, ["slow"] * 8)]
    assert {id(module) for module in modules} == {id(sys.modules["topless.slow"])}
    assert package not in sys.modules
    assert import_submodule(package, "part") is sys.modules["topless.part"]


@pytest.mark.parametrize("name", ["absent", "broken"])
def test_what_is_missing_is_an_import_error(package: str, name: str) -> None:
    with pytest.raises(ImportError):
        import_submodule(package, name)
    with pytest.raises(ImportError):
        import_submodule("nothing_of_this_name", name)
    assert package not in sys.modules


def test_waiting_threads_sleep_soon_unless_the_user_says_otherwise() -> None:
    """GNU's library reads it when llama.cpp is loaded."""
    code = "from shepherd.backends.llamacpp.native.bindings import bindings as load; load(); "
    code += "import ctypes, os; get = ctypes.CDLL(None).getenv; get.restype = ctypes.c_char_p; "
    code += "print(get(b'GOMP_SPINCOUNT').decode(), os.environ.get('GOMP_SPINCOUNT'))"
    for value, expected in ((None, "1000 None"), ("77", "77 77")):  # a command gets the user's
        own = {"GOMP_SPINCOUNT": value} if value else {}
        environment = {k: v for k, v in os.environ.items() if k != "GOMP_SPINCOUNT"} | own
        output = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)
        assert output.strip() == expected


def used_symbols() -> list[str]:
    """What the room uses of the bindings, in the format of `symbols.txt`."""
    modules: tuple[Any, ...] = (bindings(), image_bindings())
    used, assigned = set[str](), set[str]()
    for path in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute):
                if node.attr.startswith(OF_LIBRARY):
                    used.add(node.attr)
                if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "params":
                    assigned.add(node.attr)
    details = dict[str, set[str]]()
    for name in used:
        found: Any = next(getattr(module, name) for module in modules if hasattr(module, name))
        arguments: Any = None if isinstance(found, type) else getattr(found, "argtypes", None)
        details[name] = set() if arguments is None else {str(len(arguments))}
    structures = ("llama_context_params", "llama_model_params", "mtmd_context_params")
    for field in assigned - ONLY_KEPT:
        owners = [n for n in structures for m in modules if hasattr(getattr(m, n, None), field)]
        assert owners, field
        for owner in owners:
            details.setdefault(owner, set()).add(field)
    return [" ".join((name, *sorted(more))) for name, more in sorted(details.items())]


def test_all_that_is_used_of_the_bindings_is_checked_when_they_are_loaded() -> None:
    checked = (ROOM / "native" / "symbols.txt").read_text().splitlines()
    assert checked == used_symbols()


@pytest.mark.parametrize("name", ["llama_decode", "llama_context_params", "GGML_TYPE_F16"])
@pytest.mark.parametrize("change", ["missing", "changed"])
def test_a_version_that_does_not_fit_is_named_before_it_is_used(name: str, change: str) -> None:
    lib = bindings()
    other = SimpleNamespace(**{n: getattr(lib, n) for n in dir(lib)})
    check_symbols(other, OF_LIBRARY[:3])
    if change == "missing" or name.isupper():
        delattr(other, name)
    else:
        setattr(other, name, SimpleNamespace(argtypes=[None] * 7))
    expected = f"llama-cpp-python {version('llama-cpp-python')} does not fit .*{name}"
    with pytest.raises(ModelLoadError, match=expected):
        check_symbols(other, OF_LIBRARY[:3])


def test_the_tested_version_is_in_the_lock_file_and_begins_the_range() -> None:
    root = Path(__file__).parents[3]
    assert f"llama-cpp-python=={TESTED} " in (root / "requirements.lock").read_text()
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert f"llama-cpp-python>={TESTED},<0.4" in project["dependencies"]
