"""Keeps the changes of a layer as a patch, if its session ends before the user has decided."""

import shlex
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from shepherd.config.files import make_private_directory, write_private
from shepherd.errors import ToolError
from shepherd.tools.layer import describe
from shepherd.tools.layer.commit import has_intent
from shepherd.tools.layer.effect import Effect, read_effect
from shepherd.tools.layer.git import is_of_git
from shepherd.tools.layer.layer import LayerFiles, root_of, stale_layers
from shepherd.tools.layer.patch import patch
from shepherd.tools.paths import reason


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
