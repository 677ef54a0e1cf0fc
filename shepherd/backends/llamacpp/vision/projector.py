"""Finds the projector of a model: the setting, or the file beside the model that fits it."""

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct

from shepherd.backends.llamacpp.native.bindings import reads_images
from shepherd.backends.llamacpp.native.gguf import GgufHeader, check_model_file
from shepherd.catalog.model_files import SUFFIX, is_projector_name, model_name
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import ModelLoadError

NONE = "none"
"""The value of `llamacpp.projector` for a model that must not see."""

_WORD = re.compile(r"[-_. ]+")
_WORDS_OF_ALL = frozenset({"mmproj", "model", "ggml", "gguf", "projector", "vision"})
_PRECISION = re.compile(r"(bf16|f16|fp16|f32|fp32|i?q\d.*|k|[sml]|xs|xxs|ud)$")
_PREFERRED = ("f16", "fp16", "bf16", "q8", "f32")
"""Of files that differ in precision only, the first of these is used."""

_OWN_WIDTH = frozenset(
    {"mlp", "mlp_norm", "ldp", "ldpv2", "resampler", "adapter", "qwen2vl_merger"}
)
"""Types whose files may give the encoder's own width as `projection_dim`."""

_HASHED = 1024 * 1024


class Projector(Struct, frozen=True):
    """A projector's file, and a digest that stands for its contents."""

    path: Path
    digest: bytes
    bytes: int


class ProjectorChoice(Struct, frozen=True):
    """The projector of a model, or a notice why the model can't see; neither without a file."""

    projector: Projector | None = None
    notice: str = ""

    @property
    def text(self) -> str:
        """Whether the model sees, in a few words."""
        return f"yes, with {self.projector.path.name}" if self.projector else self.notice or "no"

    @property
    def bytes(self) -> int:
        """The size of the projector's file, 0 without one."""
        return self.projector.bytes if self.projector is not None else 0


def choose_projector(model: Path, header: GgufHeader, settings: LlamaCppSection) -> ProjectorChoice:
    """The projector for a model. Raises ModelLoadError if the one of the settings does not fit."""
    if settings.projector == NONE:
        return ProjectorChoice()
    if settings.projector:
        path = locate_projector(settings.projector, settings.models_path)
        return ProjectorChoice(_checked(path, header))
    return _beside(model, header)


def projector_bytes(model: Path, header: GgufHeader, settings: LlamaCppSection) -> int:
    """The size of a model's projector; 0 without one that can be used."""
    try:
        return choose_projector(model, header, settings).bytes
    except ModelLoadError:
        return 0


def locate_projector(name: str, models: Path) -> Path:
    """The file of a path, or of a name in the folder of models; raises ModelLoadError."""
    path = Path(name).expanduser()
    for candidate in (path, models / path, models / f"{path}{SUFFIX}"):
        if candidate.is_file():
            return candidate.resolve()
    raise ModelLoadError(f"llamacpp.projector: there is no file {name}, and none in {models}.")


def projectors_beside(model: Path) -> list[Path]:
    """The projectors in the model's folder whose names fit the model, the best one first.

    Raises ModelLoadError if the folder's only model could have any of several.
    """
    files = sorted(model.parent.glob(f"*{SUFFIX}"))
    projectors = [path for path in files if is_projector_name(path.name)]
    models = {model_name(path.name) for path in files if path not in projectors}
    fits = {path: _common_words(path, model) for path in projectors}
    if len(projectors) == 1 and len(models) == 1:  # whatever their names are
        return projectors
    best = max(fits.values(), default=-1)
    if best < 0 and projectors and len(models) == 1:
        names = ", ".join(path.name for path in projectors)
        raise ModelLoadError(
            f"Several projectors are beside {model.name}, and none has its name: {names}. "
            'Set llamacpp.projector to one of them, or to "none".'
        )
    if best < 0:
        return []
    return sorted((path for path in projectors if fits[path] == best), key=_precision)


def _beside(model: Path, header: GgufHeader) -> ProjectorChoice:
    """The projector beside a model; one that does not fit costs only its use."""
    try:
        candidates = projectors_beside(model)
        if not candidates:
            return ProjectorChoice()
        return ProjectorChoice(_checked(candidates[0], header))
    except ModelLoadError as error:
        return ProjectorChoice(notice=f"The model can't see images: {error}")
    except OSError:  # nobody asked for a projector, so that a folder that can't be read is no error
        return ProjectorChoice()


def _checked(path: Path, model: GgufHeader) -> Projector:
    """The projector in a file; raises ModelLoadError if it is damaged or for another model.

    So does a build of llama.cpp that reads no images.
    """
    header = check_model_file(path)
    values = header.values
    if values.get("general.architecture") != "clip" or not values.get("clip.has_vision_encoder"):
        raise ModelLoadError(f"{path} is not a projector for images.")
    width, projected = _model_width(model), values.get("clip.vision.projection_dim")
    kind = values.get("clip.projector_type") or values.get("clip.vision.projector_type")
    if kind not in _OWN_WIDTH and projected and width and projected != width:
        raise ModelLoadError(
            f"The projector {path} is for another model: its embeddings have {projected} numbers, "
            f"those of the model {width}."
        )
    if not reads_images():
        raise ModelLoadError(
            f"The projector {path.name} needs llama.cpp's library for images, which this build "
            "lacks. docs/install.md has the commands that build it."
        )
    return Projector(path, _digest(path), path.stat().st_size)


def _model_width(header: GgufHeader) -> int | None:
    """The numbers of a token's embedding; None if the header does not say it."""
    architecture = header.values.get("general.architecture")
    width: Any = header.values.get(f"{architecture}.embedding_length")
    return width if isinstance(width, int) else None


def _digest(path: Path) -> bytes:
    """A hash of the beginning, the end and the size: weights differ in all files."""
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = sha256(file.read(_HASHED))
        file.seek(max(0, size - _HASHED))
        digest.update(file.read(_HASHED))
    digest.update(str(size).encode())
    return digest.digest()


def _common_words(projector: Path, model: Path) -> int:
    """How many words of the names agree; -1 if the projector's name is that of another model."""
    own, words = _words(projector.name), _words(model_name(model.name))
    return len(own) if words[: len(own)] == own else -1


def _words(name: str) -> Sequence[str]:
    """The words that name a model, without those of all files and of precision."""
    stem = name.lower().removesuffix(SUFFIX)
    words = [word for word in _WORD.split(stem) if word and word not in _WORDS_OF_ALL]
    while words and (_PRECISION.fullmatch(words[-1]) or words[-1].isdigit()):
        words.pop()
    return tuple(words)


def _precision(path: Path) -> tuple[int, str]:
    """Sorts files of one projector: by the preferred precision, then by name."""
    words = _WORD.split(path.name.lower())
    place = next((i for i, word in enumerate(_PREFERRED) if word in words), len(_PREFERRED))
    return place, path.name
