"""Files that look like models from outside."""

from pathlib import Path


def gguf(path: Path, size: int = 2_000_000) -> Path:
    """A file of that size, which takes no room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
    return path
