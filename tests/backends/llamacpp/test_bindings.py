"""One module of a package is imported without the rest, and the rest works later."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shepherd.backends.llamacpp.native.bindings import import_submodule

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
