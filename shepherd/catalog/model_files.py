"""GGUF files in the places where programs keep them: names and sizes, no file is opened."""

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from stat import S_ISREG

LEAST_BYTES = 1_048_576
"""Smaller models are vocabularies and tests."""

MOST_EFFORT = 10_000
"""Names that are read in one place at most; a directory costs as much as ten names."""

DIRECTORY_EFFORT = 10
DEEPEST = 4
"""Directories below a place: Hugging Face has models--OWNER--NAME/snapshots/VERSION/QUANT."""

SUFFIX = ".gguf"
_PART = re.compile(r"-(\d{5})-of-(\d{5})$")
_NO_MODEL = re.compile(r"mmproj|imatrix|(^|-)vocab(?![a-z])", re.IGNORECASE)
_NO_PLACE = re.compile(r"\.|blobs$|refs$|datasets--|spaces--|node_modules$|__pycache__$")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model's first file; `size` of all its parts in bytes."""

    path: Path
    size: int


def model_files(env: Mapping[str, str], models_dir: Path) -> Iterator[ModelFile]:
    """Whole models in the models directory and where other programs keep theirs, each once.

    Looks no further than `MOST_EFFORT` in each place, at what is near first.
    """
    seen: set[tuple[int, int]] = set()
    for place in usual_places(env, models_dir):
        for entries in _walk(place):
            yield from _models(entries, seen)


def usual_places(env: Mapping[str, str], models_dir: Path) -> list[Path]:
    """Directories where models may be, the user's own first; they need not exist."""
    home = Path(env.get("HOME") or Path.home())
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    hugging_face = _given(env, home, "HF_HOME") or cache / "huggingface"
    hub = _given(env, home, "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE") or hugging_face / "hub"
    llama = _given(env, home, "LLAMA_CACHE")
    return [
        models_dir,
        home / "models",
        *([llama] if llama else [cache / "llama.cpp", home / "Library" / "Caches" / "llama.cpp"]),
        hub,
        home / ".lmstudio" / "models",
        home / ".cache" / "lm-studio" / "models",
    ]


def _given(env: Mapping[str, str], home: Path, *variables: str) -> Path | None:
    """The directory that the first of the variables names; `~` is `home`."""
    text = next((env[name] for name in variables if env.get(name)), "")
    if text == "~" or text.startswith("~/"):
        return home / text[2:]
    return Path(text) if text else None


def _walk(root: Path) -> Iterator[list[os.DirEntry[str]]]:
    """The GGUF files of each directory, by name; `root` first, then those below, level by level."""
    waiting = deque([(str(root), 0)])
    left = MOST_EFFORT
    while waiting and left > 0:
        directory, depth = waiting.popleft()
        entries = _listed(directory, left)
        left -= DIRECTORY_EFFORT + len(entries)
        yield [entry for entry in entries if entry.name.lower().endswith(SUFFIX)]
        if depth < DEEPEST:
            waiting += [(entry.path, depth + 1) for entry in entries if _is_place(entry)]


def _listed(directory: str, most: int) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(directory) as entries:
        return sorted(islice(entries, most), key=lambda entry: entry.name)
    return []


def _is_place(entry: os.DirEntry[str]) -> bool:
    if _NO_PLACE.match(entry.name) or entry.name.lower().endswith(SUFFIX):
        return False
    try:
        return entry.is_dir()
    except OSError:
        return False


def _models(entries: Iterable[os.DirEntry[str]], seen: set[tuple[int, int]]) -> Iterator[ModelFile]:
    """The models of one directory that are whole and not in `seen`, which they are afterwards."""
    found: dict[tuple[str, int], list[tuple[Path, os.stat_result]]] = {}
    for entry in entries:
        facts = None if _NO_MODEL.search(entry.name) else _facts(entry)
        if facts is not None:
            stem = entry.name[: -len(SUFFIX)]
            part = _PART.search(stem)
            key = (stem[: part.start()], int(part[2])) if part else (stem, 1)
            found.setdefault(key, []).append((Path(entry.path), facts))
    for (_, parts), files in found.items():
        path, facts = files[0]
        size = sum(of_part.st_size for _, of_part in files)
        identity = facts.st_dev, facts.st_ino
        if len(files) == parts and size >= LEAST_BYTES and identity not in seen:
            seen.add(identity)
            yield ModelFile(path, size)


def _facts(entry: os.DirEntry[str]) -> os.stat_result | None:
    """What a file is, its link followed; None for what is no file."""
    try:
        facts = entry.stat()
    except OSError:
        return None
    return facts if S_ISREG(facts.st_mode) else None
