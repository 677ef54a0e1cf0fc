"""The rooms of the package: no circles, no crowds, nothing that looks like a test."""

import ast
from collections import Counter
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "shepherd"
MAX_MODULES = 20
MAX_LINES = 450


def module_name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(package: Path) -> dict[str, set[str]]:
    """What each module imports of the package, at any depth, also for types only."""
    paths = {module_name(path, package): path for path in package.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        below = set[str]()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                below.update(alias.name for alias in node.names if alias.name in paths)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
                below.update(m if m in paths else node.module for m in modules)
        graph[name] = below & paths.keys()
    return graph


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of one circle of imports, none if there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def crowded(package: Path) -> list[Path]:
    """The folders with too many modules of their own."""
    modules = (path for path in package.rglob("*.py") if path.name != "__init__.py")
    count = Counter(path.parent for path in modules)
    return [folder for folder, number in count.items() if number > MAX_MODULES]


def test_no_module_is_part_of_a_circle() -> None:
    assert circle(imports(PACKAGE)) == []


@pytest.mark.parametrize(
    "text",
    [
        "from sample.b import x",
        "import sample.b",
        "from sample import b",
        "def f():\n    from sample.b import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sample.b import x",
    ],
)
def test_a_circle_is_seen_however_it_is_imported(tmp_path: Path, text: str) -> None:
    package = tmp_path / "sample"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text(text)
    (package / "b.py").write_text("from sample.a import y")
    assert {"sample.a", "sample.b"} <= set(circle(imports(package)))


def test_no_folder_is_crowded() -> None:
    assert crowded(PACKAGE) == []


def test_a_crowd_is_seen(tmp_path: Path) -> None:
    for number in range(MAX_MODULES + 1):
        (tmp_path / f"m{number}.py").touch()
    assert crowded(tmp_path) == [tmp_path]


def test_no_file_is_long() -> None:
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}
    assert [path for path, length in lengths.items() if length > MAX_LINES] == []


def test_nothing_in_the_package_looks_like_a_test() -> None:
    names = [*PACKAGE.rglob("*_test.py"), *PACKAGE.rglob("test_*.py")]
    assert names == []
