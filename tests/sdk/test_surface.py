"""What `import shepherd` offers, and what it loads."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import get_origin

import pytest

import shepherd

SOURCE = Path(shepherd.__file__)
PROBE = "import sys, shepherd\n{use}\nprint(*sorted(n for n in sys.modules if '.' not in n))"
HEAVY = {"fastapi", "httpx", "keyring", "llama_cpp", "numpy", "prompt_toolkit", "rich", "typer"}


def typed_names() -> set[str]:
    """The names that a type checker sees."""
    imports = (
        n for n in ast.walk(ast.parse(SOURCE.read_text("utf-8"))) if type(n) is ast.ImportFrom
    )
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    return names - {"import_module", "TYPE_CHECKING", "Any"}


def modules(use: str) -> set[str]:
    code = PROBE.format(use=use)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_all_is_what_a_type_checker_sees() -> None:
    assert set(shepherd.__all__) == typed_names()
    assert list(shepherd.__all__) == sorted(shepherd.__all__)


@pytest.mark.parametrize("name", shepherd.__all__)
def test_each_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(shepherd, name)
    assert name in dir(shepherd)
    assert value.__doc__ or get_origin(value)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = shepherd.nothing  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def test_importing_it_loads_nothing_else() -> None:
    assert modules("") - modules("import typing, importlib") <= {"shepherd"}


def test_opening_loads_no_frontend_and_no_server() -> None:
    assert modules("shepherd.open, shepherd.ask, shepherd.tool, shepherd.Chat") & HEAVY == set()


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "shepherd", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"shepherd {shepherd.__version__}\n"
