"""Changes as a patch that `git apply` takes, also of what nobody has decided on at the end."""

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from shepherd.config.files import make_private_directory, write_private
from shepherd.errors import ToolError
from shepherd.tools.files import opening
from shepherd.tools.layer import describe
from shepherd.tools.layer.change import Change, Deed, Sort
from shepherd.tools.layer.commit import has_intent
from shepherd.tools.layer.effect import Effect, read_effect
from shepherd.tools.layer.git import is_of_git
from shepherd.tools.layer.layer import LayerFiles, root_of, stale_layers
from shepherd.tools.paths import reason
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


def rescue(layer: LayerFiles, patches: Path) -> str:
    """Keep what is in the layer in a file of the directory `patches`.

    Returns a sentence for the user, "" if there was nothing.
    """
    try:
        effect = read_effect(layer)
        # without git's own data, as in a patch that is printed
        changes = [change for change in effect.changes if not is_of_git(change.path)]
        data = patch(changes, layer)
        if not data:
            return ""
        make_private_directory(patches)
        file = patches / f"{time.strftime('%Y%m%d-%H%M%S')}-{layer.base.name[-6:]}.patch"
        write_private(file, data)
    except (OSError, ToolError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        return f"The changes in {layer.root} that waited for your answer could not be kept: {why}"
    what = describe.summary(Effect(tuple(changes)))
    return (
        f"Nothing is changed: what waited for your answer ({what}) is kept as a patch. "
        f"To apply it:\n{apply_command(layer.root, file)}"
    )


def rescue_killed(place: Path, patches: Path) -> Iterator[str]:
    """Keep what waited in the layers of killed programs; yields a sentence about each."""
    for base in stale_layers(place):
        with suppress(OSError):
            root = root_of(base)
            layer = LayerFiles(base, root)
            if not layer.undecided.exists() or has_intent(base) or not root.is_dir():
                continue
            if sentence := rescue(layer, patches):
                yield f"A session in {root} was killed. {sentence}"
            layer.undecided.unlink()


def apply_command(root: Path, file: Path) -> str:
    """How to apply a patch of the directory `root`.

    git takes its paths from the top of the repository, and says nothing if they are not there.
    """
    tops = (path for path in (root, *root.parents) if (path / ".git").exists())
    below = root.relative_to(next(tops, root))
    option = [f"--directory={below}"] if below.parts else []
    return shlex.join(["git", "-C", str(root), "apply", *option, str(file)])
