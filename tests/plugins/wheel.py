"""The wheel of the sample package, made by hand: nothing is built and nothing is downloaded."""

import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).parent / "package"


def package_files() -> list[str]:
    """All files of the sample package, relative to it."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sorted(path.relative_to(PACKAGE).as_posix() for path in files)


def install(folder: Path, files: Iterable[str]) -> Path:
    """Make a wheel of these files and install it; the directory that holds the package."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text("utf-8"))["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in files:
            if file == "pyproject.toml":
                points = _entry_points(project["entry-points"])
                archive.writestr(f"{name}-{version}.dist-info/entry_points.txt", points)
            else:
                archive.write(PACKAGE / file, file)
        archive.writestr(f"{name}-{version}.dist-info/METADATA", metadata)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def _entry_points(groups: dict[str, dict[str, str]]) -> str:
    lines: list[str] = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    return "\n".join(lines) + "\n"
