"""A loaded model: its files, its vocabulary, its metadata, its adapters."""

import ctypes
import math
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from shepherd.backends.llamacpp.native import gguf, trial, vocab
from shepherd.backends.llamacpp.native.bindings import bindings, native_log
from shepherd.backends.llamacpp.native.params import ModelTraits
from shepherd.backends.llamacpp.rpc.workers import Workers
from shepherd.catalog.model_files import parts_of
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import ConfigError, ModelLoadError

ENCODERS = frozenset(
    {
        "bert", "eurobert", "gemma-embedding", "jina-bert-v2", "jina-bert-v3", "llama-embed",
        "modern-bert", "neo-bert", "nomic-bert", "nomic-bert-moe", "t5encoder",
    }
)  # fmt: skip
"""llama.cpp's architectures that can't write text."""

_SHORTAGE = re.compile("alloc|out of memory|insufficient memory", re.IGNORECASE)


class MappedFiles:
    """The files of a model, open since before it was loaded.

    llama.cpp reads weights from the files while it computes. A file that is replaced stays
    available while it is open. Writing to a file changes the weights, and truncating it kills the
    process.
    """

    def __init__(self, model: Path) -> None:
        """Open all files of the model; files that can't be opened are not checked."""
        self._files: dict[Path, tuple[int, tuple[int, int]]] = {}
        """Each file's descriptor, and its size and date when it was opened."""
        for path in parts_of(model):
            with suppress(OSError):  # which llama.cpp will report
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
                self._files[path] = descriptor, _state(descriptor)

    def check(self) -> None:
        """Raise ModelLoadError if a file has changed since it was loaded."""
        for path, (descriptor, state) in self._files.items():
            if _state(descriptor) != state:
                raise ModelLoadError(
                    f"{path} was changed while it was in use. Load the model again, "
                    "or restart Shepherd."
                )

    def close(self) -> None:
        """Close all files."""
        files, self._files = self._files, {}
        for descriptor, _ in files.values():
            os.close(descriptor)


def _state(descriptor: int) -> tuple[int, int]:
    """The size and the date of an open file."""
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


class NativeModel:
    """Owns llama.cpp's model. Close it after its contexts."""

    def __init__(self, path: Path, params: Any, workers: Workers | None = None) -> None:
        """Load the file; raises ModelLoadError with llama.cpp's own reason.

        `workers` are the RPC workers of the parameters.
        """
        self._lib = bindings()
        native_log.progress = 0.0
        trial.try_model(path)
        native_log.take_errors()
        native_log.take_places()
        self.name = path.name
        self.workers = workers
        self.files = MappedFiles(path)
        self.handle: Any = self._lib.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            self.files.close()
            raise self.load_error(f"{path} can't be loaded")
        self.places = native_log.take_places()
        """The number of layers on each device; the output counts as one."""
        try:
            self.vocab = vocab.Vocab(self._lib.llama_model_get_vocab(self.handle))
        except BaseException:
            self.close()
            raise
        self.trained_context: int = self._lib.llama_model_n_ctx_train(self.handle)
        self.window: int = self._lib.llama_model_n_swa(self.handle)
        """Tokens of the sliding window, 0 without one."""

    @property
    def traits(self) -> ModelTraits:
        """What a context's parameters depend on."""
        heads: int = self._lib.llama_model_n_head(self.handle)
        group = heads // max(1, self._lib.llama_model_n_head_kv(self.handle))
        head = self._lib.llama_model_n_embd(self.handle) // max(1, heads)
        architecture = self.metadata("general.architecture")
        own = self.metadata(f"{architecture}.attention.key_length")
        head = int(own) if own.isdecimal() else head
        return ModelTraits(self.bytes, heads, self.window, self.trained_context, head, group)

    def chat_template(self, name: str | None = None) -> str:
        """The template with this name, or the default one; "" if there is none."""
        source: bytes | None = self._lib.llama_model_chat_template(
            self.handle, name.encode() if name else None
        )
        return (source or b"").decode("utf-8", "replace")

    def metadata(self, key: str) -> str:
        """A scalar of the file's header as text; "" if it is missing."""
        buffer = ctypes.create_string_buffer(512)
        length: int = self._lib.llama_model_meta_val_str(
            self.handle, key.encode(), buffer, len(buffer)
        )
        return buffer.value.decode("utf-8", "replace") if length >= 0 else ""

    @property
    def bytes(self) -> int:
        """The size of all weights."""
        size: int = self._lib.llama_model_size(self.handle)
        return size

    @property
    def can_generate(self) -> bool:
        """False for encoders and for files without a vocabulary."""
        decodes: bool = self._lib.llama_model_has_decoder(self.handle)
        # llama.cpp says of some encoders that they decode, too.
        is_encoder = self.metadata("general.architecture") in ENCODERS
        return decodes and not is_encoder and self.vocab.size > 0

    @property
    def keeps_state(self) -> bool:
        """Whether each sequence needs memory for a state, as in recurrent and hybrid models."""
        lib = self._lib
        return bool(
            lib.llama_model_is_recurrent(self.handle) or lib.llama_model_is_hybrid(self.handle)
        )

    def load_error(self, problem: str) -> ModelLoadError:
        """The error for a failure to load: a lost worker, or llama.cpp's own reason."""
        if self.workers is not None and self.workers.lost:
            return ModelLoadError(f"{problem}: {self.workers.lost}")
        return load_error(problem)

    def close(self) -> None:
        """Free the model; safe to call twice."""
        if self.handle:
            self._lib.llama_model_free(self.handle)
            self.handle = None
            self.files.close()


class MemoryShortageError(ModelLoadError):
    """There is not enough memory for a model or its context."""


def load_error(problem: str) -> ModelLoadError:
    """The error for a failure to load, with llama.cpp's own reason after `problem`."""
    errors = native_log.take_errors()
    text = f"{problem}: {_reason(errors)}"
    if any(map(_SHORTAGE.search, errors)):
        advice = "Set a smaller llamacpp.context_size or fewer llamacpp.gpu_layers."
        return MemoryShortageError(f"{text.removesuffix('.')}. {advice}")
    return ModelLoadError(text)


def last_error() -> str:
    """The most specific recent error of llama.cpp, as the end of a sentence."""
    return _reason(native_log.take_errors())


def _reason(errors: Sequence[str]) -> str:
    """The first error that says more than that loading has failed, without its function's name."""
    specific = [e for e in errors if "failed to load model" not in e] or errors
    if not specific:
        return "llama.cpp gives no reason"
    # As in `llama_model_load: error loading model`.
    return specific[0].split(": ", 1)[-1]


class Adapter(Struct, frozen=True):
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
    return tuple(_parsed(text, settings.models_path) for text in settings.lora)


class NativeAdapters:
    """The adapters of a model; the model frees them."""

    def __init__(self, model: NativeModel, adapters: Sequence[Adapter]) -> None:
        """Load the adapters before the context, which reserves memory for them.

        Raises ModelLoadError for a file that can't be read or belongs to another model.
        """
        self._lib = bindings()
        self._scales = [adapter.scale for adapter in adapters]
        self._handles = [self._load(model, adapter.path) for adapter in adapters]

    def apply(self, context_handle: Any) -> None:
        """Use the adapters in the context of this handle."""
        count = len(self._handles)
        if count:
            handles = (self._lib.llama_adapter_lora_p_ctypes * count)(*self._handles)
            scales = (ctypes.c_float * count)(*self._scales)
            self._lib.llama_set_adapters_lora(context_handle, handles, count, scales)

    def _load(self, model: NativeModel, path: Path) -> Any:
        """llama.cpp's pointer to the adapter in a file; raises ModelLoadError."""
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
    """An adapter from `PATH` or `PATH:SCALE`; a colon that no number follows belongs to PATH."""
    name, colon, number = text.rpartition(":")
    try:
        scale = float(number) if colon else 1.0
    except ValueError:  # the colon belongs to the path
        colon, scale = "", 1.0
    if not colon:
        name = text
    if not name or not math.isfinite(scale):
        raise ConfigError(f"llamacpp.lora takes PATH or PATH:SCALE, got {text!r}")
    return Adapter(models / Path(name).expanduser(), scale)


def _check_header(path: Path, architecture: str) -> None:
    """Raise ModelLoadError unless the file is a LoRA adapter for this architecture."""
    if not path.exists():
        raise ModelLoadError(f"There is no LoRA adapter {path}.")
    values = gguf.check_model_file(path).values
    if values.get("general.type") != "adapter":
        raise ModelLoadError(f"{path} is not a LoRA adapter, but a model.")
    kind, wants = values.get("adapter.type"), values.get("general.architecture")
    if kind != "lora":
        raise ModelLoadError(f"{path} is an adapter of another kind ({kind}) than LoRA.")
    if wants != architecture:
        raise ModelLoadError(
            f"The LoRA adapter {path} is for another kind of model ({wants}, not {architecture})."
        )
