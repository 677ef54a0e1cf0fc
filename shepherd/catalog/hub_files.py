"""Which files of a repository on the hub a user means."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from msgspec import Struct

from shepherd.catalog.local_models import find_local_model
from shepherd.catalog.model_files import is_model_name, is_projector_name, model_name
from shepherd.errors import ModelLoadError

PREFERRED = ("Q4_K_M", "Q4_K_XL", "Q4_K_S", "MXFP4", "IQ4_XS", "Q5_K_M", "Q4_0", "Q6_K", "Q8_0")
"""The default quantisations in order of preference: small, and nearly as good as the original."""

MAX_NAMES = 30

_PROJECTORS = ("F16", "BF16", "Q8_0", "F32")
"""Of a model's projectors, the first of these precisions is downloaded."""


class HubFile(Struct, frozen=True):
    """A file of a repository; `size` in bytes, 0 = unknown; `sha256` is "" if unknown."""

    name: str
    size: int = 0
    sha256: str = ""


class ModelSelection(Struct, frozen=True):
    """The model to download: a file of `repo`, a quantisation, or the default."""

    repo: str
    file: str = ""
    quant: str = ""


def parse_selection(text: str) -> ModelSelection:
    """`OWNER/NAME`, `OWNER/NAME:QUANT` or `OWNER/NAME/FILE`, or the name of a model of the table.

    Raises ModelLoadError.
    """
    text = text.removeprefix("https://huggingface.co/").removeprefix("hf.co/")
    before, _, last = text.rpartition(":")
    for name, quant in ((text, ""), (before, last)):  # names of the table may have a colon, too
        if known := find_local_model(name):
            return ModelSelection(known.repository, quant=quant)
    whole, _, quant = text.partition(":")
    owner, _, rest = whole.partition("/")
    name, _, file = rest.partition("/")
    file = re.sub(r"^(blob|resolve)/[^/]+/", "", file)
    if not owner or not name or (file and quant):
        raise ModelLoadError(
            f"{text!r} is not a model on the hub: write OWNER/NAME, OWNER/NAME:QUANT, "
            "OWNER/NAME/FILE.gguf or a name that `shepherd model pick` lists."
        )
    return ModelSelection(f"{owner}/{name}", file, quant)


def choose_files(files: Sequence[HubFile], selection: ModelSelection) -> list[HubFile]:
    """The files of one model, all parts of a split one; raises ModelLoadError with the choices.

    A projector must be named as a file.
    """
    models: dict[str, list[HubFile]] = {}
    is_candidate = is_projector_name if is_projector_name(selection.file) else is_model_name
    for file in sorted(files, key=lambda f: f.name):
        if is_candidate(PurePosixPath(file.name).name):
            models.setdefault(model_name(file.name), []).append(file)
    if not models:
        raise ModelLoadError(
            f"{selection.repo} has no GGUF files; look for a repository of the same model with "
            "GGUF in its name."
        )
    chosen_names = _matching(list(models), selection)
    if len(chosen_names) == 1:
        return models[chosen_names[0]]
    names = ", ".join(sorted(models)[:MAX_NAMES])
    query = selection.file or selection.quant
    is_missing = query and not chosen_names
    reason = f"nothing there is {query}" if is_missing else "several models are there"
    raise ModelLoadError(
        f"{selection.repo}: {reason}; choose with OWNER/NAME:QUANT or OWNER/NAME/FILE: {names}"
    )


def projectors(files: Sequence[HubFile]) -> list[HubFile]:
    """The one projector with which a model of these files sees images; none if there is none."""
    seeing = [file for file in files if is_projector_name(PurePosixPath(file.name).name)]

    def rank(file: HubFile) -> int:
        precisions = [i for i, quant in enumerate(_PROJECTORS) if _is_quant(file.name, quant)]
        return min(precisions, default=len(_PROJECTORS))

    return sorted(seeing, key=rank)[:1]


def _matching(names: Sequence[str], selection: ModelSelection) -> list[str]:
    """The names of models that the selection may mean; exactly one if it is clear."""
    if selection.file:
        file_name = model_name(selection.file.removesuffix(".gguf") + ".gguf")
        return [name for name in names if file_name in (name, PurePosixPath(name).name)]
    if selection.quant:
        return [name for name in names if _is_quant(name, selection.quant)]
    if len(names) > 1:
        for quant in PREFERRED:
            if matching := [name for name in names if _is_quant(name, quant)]:
                return matching
    return list(names)


def _is_quant(name: str, quant: str) -> bool:
    """Whether the name has this quantisation as a word: `Q4_K` is not in `model-Q4_K_M`."""
    word = rf"(?<![A-Za-z0-9]){re.escape(quant)}(?![A-Za-z0-9_])"
    return re.search(word, name, re.IGNORECASE) is not None
