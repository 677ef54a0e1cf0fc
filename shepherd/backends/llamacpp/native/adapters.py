"""LoRA adapters: their settings, and how they are loaded into a model."""

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shepherd.backends.llamacpp.native.bindings import bindings, native_log
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.native.model import NativeModel, last_error
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import ConfigError, ModelLoadError


@dataclass(frozen=True, slots=True)
class Adapter:
    """The file of an adapter, and its scale."""

    path: Path
    scale: float = 1.0

    @property
    def identity(self) -> str:
        """Identifies the file's current content and the scale, for saved states.

        Raises OSError if the file is missing.
        """
        status = self.path.stat()
        return f"{self.path}:{self.scale!r} {status.st_size} {status.st_mtime_ns}"


def configured_adapters(settings: LlamaCppSection) -> tuple[Adapter, ...]:
    """The adapters of the settings: `PATH` or `PATH:SCALE`, relative to `models_dir`.

    Raises ConfigError for other texts.
    """
    models = Path(settings.models_dir).expanduser()
    return tuple(_parsed(text, models) for text in settings.lora)


class NativeAdapters:
    """The adapters of a model; the model frees them."""

    def __init__(self, model: NativeModel, adapters: Sequence[Adapter]) -> None:
        """Load the adapters before the context, which reserves memory for them.

        Raises ModelLoadError for a file that can't be read or belongs to another model.
        """
        self._lib = bindings()
        self._scales = [adapter.scale for adapter in adapters]
        self._handles = [self._load(model, adapter.path) for adapter in adapters]

    def apply(self, context: Any) -> None:
        """Use the adapters in the context of this handle."""
        count = len(self._handles)
        if count:
            handles = (self._lib.llama_adapter_lora_p_ctypes * count)(*self._handles)
            scales = (ctypes.c_float * count)(*self._scales)
            self._lib.llama_set_adapters_lora(context, handles, count, scales)

    def _load(self, model: NativeModel, path: Path) -> Any:
        _check_header(path, model.metadata("general.architecture"))
        native_log.take_errors()
        handle: Any = self._lib.llama_adapter_lora_init(model.handle, str(path).encode())
        if not handle:
            reason = last_error().removeprefix("failed to apply lora adapter: ")
            raise ModelLoadError(f"The LoRA adapter {path} does not fit the model: {reason}.")
        if self._lib.llama_adapter_get_alora_n_invocation_tokens(handle):
            raise ModelLoadError(f"{path} is an activated LoRA (aLoRA), which is not supported.")
        return handle


def _parsed(text: str, models: Path) -> Adapter:
    name, colon, number = text.rpartition(":")
    try:
        scale = float(number) if colon else 1.0
    except ValueError:
        scale, name = 1.0, text
    name = name if colon else text
    if not name or not math.isfinite(scale):
        raise ConfigError(f"llamacpp.lora takes PATH or PATH:SCALE, got {text!r}")
    return Adapter(models / Path(name).expanduser(), scale)


def _check_header(path: Path, architecture: str) -> None:
    if not path.exists():
        raise ModelLoadError(f"There is no LoRA adapter {path}.")
    values = check_model_file(path).values
    if values.get("general.type") != "adapter":
        raise ModelLoadError(f"{path} is not a LoRA adapter, but a model.")
    kind, wants = values.get("adapter.type"), values.get("general.architecture")
    if kind != "lora":
        raise ModelLoadError(f"{path} is an adapter of another kind ({kind}) than LoRA.")
    if wants != architecture:
        raise ModelLoadError(
            f"The LoRA adapter {path} is for another kind of model ({wants}, not {architecture})."
        )
