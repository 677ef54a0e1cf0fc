"""Changes as a patch that `git apply` takes: modes, links and binary files too."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tools.files import opening
from shepherd.tools.layer.change import Change, Deed, Sort
from shepherd.tools.layer.layer import LayerFiles
from shepherd.tools.program import run_git

_PATCH_SECONDS = 60.0
_DIFF = (
    *("-c", "diff.noprefix=false", "-c", "core.quotePath=true", "diff", "--no-index", "--binary"),
    # the names of renamed files would have the names of the two directories
    *("--no-renames", "--no-color", "--no-ext-diff", "--no-textconv"),
    *("--src-prefix=", "--dst-prefix=", "a", "b"),
)


def patch(changes: Sequence[Change], layer: LayerFiles) -> bytes:
    """The patch, made by git from copies of what changes.

    Raises ToolError without git, and OSError.
    """
    with tempfile.TemporaryDirectory(prefix="shepherd-patch-") as name:
        place = Path(name)
        for side in ("a", "b"):
            (place / side).mkdir()
        for change in changes:
            if change.sort is Sort.DIRECTORY:
                continue
            if change.deed is not Deed.MADE:
                _copy(layer.root / change.path, place / "a" / change.path)
            if change.deed is not Deed.DELETED:
                _copy(layer.upper / change.path, place / "b" / change.path)
        done = run_git(place, _DIFF, seconds=_PATCH_SECONDS)
    if done is None:
        raise ToolError("a patch needs git, which is not installed, or took too long")
    if done.returncode > 1:  # 1: there are differences
        raise ToolError(f"git made no patch: {done.stderr.decode('utf-8', 'replace').strip()}")
    return done.stdout


def _copy(source: Path, target: Path) -> None:
    """Copy a file with its mode, or a link; nothing on the way to it is followed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    with os.fdopen(opening.open_regular(source), "rb") as old, target.open("wb") as new:
        shutil.copyfileobj(old, new)
        target.chmod(os.fstat(old.fileno()).st_mode & 0o777 | 0o600)
