"""Finds GGUF models, by name and size, where programs store them; does not open files.

All commands read directories of models with this module. A model that is split into parts counts
as one model, under the name of its first part, if all parts exist. Projectors (mmproj),
importance matrices and vocabularies are not models.
"""

import glob
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from stat import S_ISREG

from msgspec import Struct

from shepherd.errors import ModelLoadError
from shepherd.json_text import as_objects, object_in

GIB, MIB = 2**30, 2**20

MIN_BYTES = MIB
"""Smaller files in other programs' directories are vocabularies and tests."""

MAX_EFFORT = 10_000
"""The maximum number of names to read in one place; a directory counts as ten names."""

DIRECTORY_EFFORT = 10
MAX_DEPTH = 4
"""The depth of a search: Hugging Face has models--OWNER--NAME/snapshots/VERSION/QUANT."""

SUFFIX = ".gguf"
_OLLAMA_MODEL = "application/vnd.ollama.image.model"
_OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")
"""Where Ollama keeps models on Linux if it runs as a service."""
_PART = re.compile(r"-\d{5}-of-(?P<count>\d{5})$")
_PROJECTOR = re.compile("mmproj", re.IGNORECASE)
_NOT_A_MODEL = re.compile(r"mmproj|imatrix|(^|-)vocab(?![a-z])", re.IGNORECASE)
_NOT_A_PLACE = re.compile(r"\.|blobs$|refs$|datasets--|spaces--|node_modules$|__pycache__$")


class ModelFile(Struct, frozen=True):
    """A model's first file; `size` is the size of all its parts in bytes.

    `called` is its name where that is not the file's, as in the store of Ollama.
    """

    path: Path
    size: int
    called: str = ""

    @property
    def name(self) -> str:
        """The name that a user gives, without suffix and part number."""
        return self.called or model_name(self.path.name)


def is_model_name(name: str) -> bool:
    """Whether a file of this name is a model or a part of one."""
    return name.lower().endswith(SUFFIX) and not _NOT_A_MODEL.search(name)


def is_projector_name(name: str) -> bool:
    """Whether a file of this name turns images into embeddings for a model."""
    return name.lower().endswith(SUFFIX) and _PROJECTOR.search(name) is not None


def model_name(name: str) -> str:
    """The name without suffix and part number: the same for all parts of a model."""
    return _PART.sub("", _stem(name))


def parts_of(path: Path) -> list[Path]:
    """The parts of the model whose first file is at `path`, in their order."""
    part = _PART.search(_stem(path.name))
    if part is None:
        return [path]
    prefix, count = path.name[: part.start()], part["count"]
    return sorted(path.parent.glob(f"{glob.escape(prefix)}-?????-of-{count}{path.suffix}"))


def models_in(directory: Path) -> list[ModelFile]:
    """The complete models of a directory and its subdirectories, by path; [] if unreadable."""
    models = [
        model for entries in _walk(directory, max_depth=1) for model, _identity in _models(entries)
    ]
    return sorted(models, key=lambda model: model.path)


def locate_model(name: str, models_dir: str | Path, cwd: Path | None = None) -> Path:
    """The file of a path, or of a model in `models_dir`, with or without its suffix.

    The beginning of a name is enough if only one model matches. If none does, the stores of other
    programs are searched, where a model stays. Raises ModelLoadError, which lists the models.
    """
    models = Path(models_dir).expanduser()
    path = Path(name).expanduser()
    # A file of the current directory comes before a model of the same name.
    roots = [Path()] if path.is_absolute() else [cwd or Path.cwd(), models]
    for root in roots:
        for candidate in (root / path, root / f"{path}{SUFFIX}"):
            if candidate.is_file():
                return _file_of(candidate)
    directories = [root / path for root in roots if (root / path).is_dir()]
    if directories:
        return _only_model(directories[0])
    return _by_prefix(name, models)


def _file_of(path: Path) -> Path:
    """The file itself; a link to a file of another type stays a link.

    Hugging Face's cache has links to files named by their hash, without other parts beside them.
    """
    target = path.resolve()
    return target if target.suffix == path.suffix else path.absolute()


def _only_model(directory: Path) -> Path:
    """The model in a directory that has just one; raises ModelLoadError, which names them."""
    models = models_in(directory)
    if len(models) == 1:
        return _file_of(models[0].path)
    names = ", ".join(model.path.name for model in models[:10]) or f"no {SUFFIX} file"
    raise ModelLoadError(f"{directory} is a directory; name one model in it ({names}).")


def _by_prefix(name: str, models_dir: Path) -> Path:
    """The only model whose name begins so."""
    models = [model.path for model in models_in(models_dir)]
    start = name.lower()
    named = {path.name: path for path in models if path.name.lower().startswith(start)}
    if not named:
        others = {file.name: file.path for file in model_files(os.environ, models_dir)}
        named = {key: path for key, path in others.items() if key.lower().startswith(start)}
        named = {key: path for key, path in named.items() if key.lower() == start} or named
    if len(named) == 1:
        return _file_of(*named.values())
    if named:
        raise ModelLoadError(f"'{name}' could be any of: {', '.join([*named][:10])}.")
    names = ", ".join(path.name for path in models[:10])
    there = f"Models there: {names}." if names else "There are no models there yet."
    raise ModelLoadError(f"No model '{name}' as a path or in {models_dir}. {there}")


def model_files(env: Mapping[str, str], models_dir: Path) -> Iterator[ModelFile]:
    """The complete models in the models directory and in those of other programs, each once.

    Reads at most `MAX_EFFORT` names in each place, level by level.
    """
    seen: set[tuple[int, int]] = set()
    for place in usual_places(env, models_dir):
        for entries in _walk(place, MAX_DEPTH):
            for model, identity in _models(entries):
                # Links, as in Hugging Face's cache, lead to one file by several names.
                if model.size >= MIN_BYTES and identity not in seen:
                    seen.add(identity)
                    yield model
    yield from _ollama_models(env)


def _ollama_models(env: Mapping[str, str]) -> Iterator[ModelFile]:
    """The models in the store of Ollama, by the names that it gives them, as `qwen3:4b`.

    A manifest names the blobs of a model, among them one in GGUF.
    """
    home = Path(env.get("HOME") or Path.home())
    own = _directory_from(env, home, "OLLAMA_MODELS")
    for store in [own] if own else [home / ".ollama" / "models", _OLLAMA_SERVICE]:
        manifests = islice((store / "manifests").glob("*/*/*/*"), MAX_EFFORT)
        for manifest in sorted(manifests):
            with suppress(OSError):
                layers = as_objects(object_in(manifest.read_bytes()).get("layers"))
                parts = {part.get("mediaType"): part.get("digest") for part in layers}
                blob = store / "blobs" / str(parts.get(_OLLAMA_MODEL)).replace(":", "-")
                yield ModelFile(blob, blob.stat().st_size, _ollama_name(manifest))


def _ollama_name(manifest: Path) -> str:
    """`qwen3:4b` of registry.ollama.ai/library/qwen3/4b; other owners and hosts stay."""
    host, owner, name, tag = manifest.parts[-4:]
    owner = "" if owner == "library" else f"{owner}/"
    host = "" if host == "registry.ollama.ai" else f"{host}/"
    return f"{host}{owner}{name}:{tag}"


def usual_places(env: Mapping[str, str], models_dir: Path) -> list[Path]:
    """Directories that may contain models, the user's own first; they need not exist."""
    home = Path(env.get("HOME") or Path.home())
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    hugging_face = _directory_from(env, home, "HF_HOME") or cache / "huggingface"
    hub = _directory_from(env, home, "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
    hub = hub or hugging_face / "hub"
    llama = _directory_from(env, home, "LLAMA_CACHE")
    return [
        models_dir,
        home / "models",
        *([llama] if llama else [cache / "llama.cpp", home / "Library" / "Caches" / "llama.cpp"]),
        hub,
        home / ".lmstudio" / "models",
        home / ".cache" / "lm-studio" / "models",
    ]


def _directory_from(env: Mapping[str, str], home: Path, *variables: str) -> Path | None:
    """The directory in the first of the variables that is set; `~` is `home`."""
    text = next((env[name] for name in variables if env.get(name)), "")
    if text == "~" or text.startswith("~/"):
        return home / text.removeprefix("~").removeprefix("/")
    return Path(text) if text else None


def _walk(root: Path, max_depth: int) -> Iterator[list[os.DirEntry[str]]]:
    """The GGUF files of each directory, by name; `root` first, then level by level."""
    waiting = deque([(str(root), 0)])
    effort_left = MAX_EFFORT
    while waiting and effort_left > 0:
        directory, depth = waiting.popleft()
        entries: list[os.DirEntry[str]] = []
        with suppress(OSError), os.scandir(directory) as listing:
            entries = sorted(islice(listing, effort_left), key=lambda entry: entry.name)
        effort_left -= DIRECTORY_EFFORT + len(entries)
        yield [entry for entry in entries if is_model_name(entry.name)]
        if depth < max_depth:
            waiting += [(entry.path, depth + 1) for entry in entries if _is_place(entry)]


def _is_place(entry: os.DirEntry[str]) -> bool:
    """Whether it is a directory that may contain models."""
    if _NOT_A_PLACE.match(entry.name) or entry.name.lower().endswith(SUFFIX):
        return False
    try:
        return entry.is_dir()
    except OSError:
        return False


def _models(
    entries: Iterable[os.DirEntry[str]],
) -> Iterator[tuple[ModelFile, tuple[int, int]]]:
    """The complete models of one directory, each with the identity of its first file."""
    models: dict[tuple[str, int], list[tuple[Path, os.stat_result]]] = {}
    for entry in entries:
        facts = _facts(entry)
        if facts is not None:
            part = _PART.search(_stem(entry.name))
            part_count = int(part["count"]) if part else 1
            key = (model_name(entry.name), part_count)
            models.setdefault(key, []).append((Path(entry.path), facts))
    for (_name, part_count), files in models.items():
        if len(files) == part_count:
            first_path, first_facts = files[0]
            size = sum(facts.st_size for _path, facts in files)
            yield ModelFile(first_path, size), (first_facts.st_dev, first_facts.st_ino)


def _stem(name: str) -> str:
    """The name without `.gguf`, in whatever case it is written."""
    return name[: -len(SUFFIX)] if name.lower().endswith(SUFFIX) else name


def _facts(entry: os.DirEntry[str]) -> os.stat_result | None:
    """The status of a file, following links; None if it is not a file."""
    try:
        facts = entry.stat()
    except OSError:
        return None
    return facts if S_ISREG(facts.st_mode) else None


def size_text(size: int) -> str:
    """A number of bytes in a readable unit."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"
