"""Where a path given by a model really leads."""

import os
from pathlib import Path

from shepherd.errors import ToolError


def resolve_path(text: str, cwd: Path) -> Path:
    """`text` as an absolute path with `~`, `..` and every symlink followed.

    What does not exist yet is kept behind the nearest directory that does. Raises ToolError.
    """
    if not text or "\0" in text:
        raise ToolError("the path is empty" if not text else "the path has a NUL character")
    try:
        return Path(os.path.realpath(Path(cwd, os.path.expanduser(text))))  # noqa: PTH111
    except (OSError, ValueError) as error:
        raise ToolError(f"bad path: {text} ({reason(error)})") from error


def reason(error: Exception) -> str:
    """A short cause without the path, which the caller names itself."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)
