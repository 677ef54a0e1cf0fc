"""The files that a model's weights are mapped from, watched for changes."""

import os
from dataclasses import dataclass
from pathlib import Path

from shepherd.errors import ModelLoadError


class MappedFiles:
    """A model's files, held open from before it is loaded.

    llama.cpp reads weights from the files while it computes. A file that another one replaces
    stays as it was for those who have it open. One that is written to has other weights, and one
    that is cut off ends the process.
    """

    def __init__(self, model: Path) -> None:
        """Open all files of the model at this path; those that can't be opened are not watched."""
        self._files = [file for path in (model, *other_parts(model)) if (file := _opened(path))]

    def check(self) -> None:
        """Raise ModelLoadError if a file is not what was loaded."""
        for file in self._files:
            if _state(file.descriptor) != file.state:
                raise ModelLoadError(
                    f"{file.path} was changed while it was in use. Load the model again, "
                    "or restart Shepherd."
                )

    def close(self) -> None:
        """Give the descriptors back."""
        for file in self._files:
            os.close(file.descriptor)
        self._files.clear()


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    descriptor: int
    state: tuple[int, int]


def other_parts(model: Path) -> list[Path]:
    """The other files of a model that is split: `name-00001-of-00003.gguf`."""
    head, found, tail = model.name.rpartition("-of-")
    if not found:
        return []
    pattern = f"{head[:-5]}?????-of-{tail}"
    return sorted(path for path in model.parent.glob(pattern.replace("[", "[[]")) if path != model)


def _opened(path: Path) -> _File | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return None
    return _File(path, descriptor, _state(descriptor))


def _state(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns
